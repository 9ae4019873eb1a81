#include "client/cli/operator_page.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "absl/strings/str_split.h"

namespace weir::client {
namespace {

v1::OperatorDescription Gather() {
  v1::OperatorDescription op;
  op.mutable_summary()->set_name("Gather");
  op.mutable_summary()->add_devices(v1::DEVICE_TYPE_CPU);
  op.mutable_summary()->add_devices(v1::DEVICE_TYPE_CUDA);
  op.set_description("Elements of data at indices.");
  auto* opsets = op.add_opsets();
  opsets->set_first(11);
  opsets->set_last(12);
  opsets = op.add_opsets();
  opsets->set_first(13);
  opsets->set_last(13);
  auto* input = op.add_inputs();
  input->set_name("data");
  input->set_presence(v1::OperatorArgument::PRESENCE_REQUIRED);
  input->add_types(v1::DATA_TYPE_FLOAT);
  input->add_types(v1::DATA_TYPE_INT64);
  input = op.add_inputs();
  input->set_name("more");
  input->set_presence(v1::OperatorArgument::PRESENCE_VARIADIC);
  input->add_types(v1::DATA_TYPE_INT64);
  auto* output = op.add_outputs();
  output->set_name("output");
  output->set_presence(v1::OperatorArgument::PRESENCE_OPTIONAL);
  output = op.add_outputs();
  output->set_name("places");
  output->add_types(v1::DATA_TYPE_INT64);
  auto* attribute = op.add_attributes();
  attribute->set_name("axis");
  attribute->set_kind(v1::OperatorAttribute::KIND_INT);
  attribute->set_description("Default 0.");
  attribute = op.add_attributes();
  attribute->set_name("to");
  attribute->set_kind(v1::OperatorAttribute::KIND_INTS);
  attribute->set_required(true);
  return op;
}

TEST(OperatorPageTest, TellsAll) {
  EXPECT_EQ(OperatorPage(Gather()),
            R"(Gather

  Elements of data at indices.

Domain   ONNX ("" or ai.onnx)
Opsets   11 to 13, with changes in 13
Devices  CPU, CUDA

Inputs
  data       float, int64
  more, ...  int64

Outputs
  output  optional
  places  int64

Attributes
  axis  int. Default 0.
  to    ints, required
)");
}

// Whose types are one is said once.
TEST(OperatorPageTest, NamesTheTypesThatAreOne) {
  v1::OperatorDescription op = Gather();
  op.mutable_inputs(0)->set_type_group(1);
  op.mutable_outputs(0)->set_type_group(1);
  op.mutable_outputs(0)->add_types(v1::DATA_TYPE_FLOAT);
  op.mutable_outputs(0)->set_type_attribute("to");
  std::string page = OperatorPage(op);
  EXPECT_THAT(page, ::testing::HasSubstr("Inputs\n"
                                         "  data       T\n"
                                         "  more, ...  int64\n"
                                         "\n"
                                         "Outputs\n"
                                         "  output  optional; T; or what to "
                                         "says\n"
                                         "  places  int64\n"
                                         "\n"
                                         "Types\n"
                                         "  T  float, int64\n"));
  op.mutable_inputs(1)->set_type_group(2);
  op.mutable_outputs(1)->set_type_group(2);
  op.mutable_outputs(0)->clear_types();
  op.mutable_outputs(0)->clear_type_group();
  page = OperatorPage(op);
  EXPECT_THAT(page, ::testing::HasSubstr("Inputs\n"
                                         "  data       T1\n"
                                         "  more, ...  T2\n"
                                         "\n"
                                         "Outputs\n"
                                         "  output  optional; what to says\n"
                                         "  places  T2\n"
                                         "\n"
                                         "Types\n"
                                         "  T1  float, int64\n"
                                         "  T2  int64\n"));
}

TEST(OperatorPageTest, TellsOpsetsWithoutHoles) {
  v1::OperatorDescription op;
  const auto text = [&](int first, int last) {
    auto* range = op.add_opsets();
    range->set_first(first);
    range->set_last(last);
    const std::string page = OperatorPage(op);
    const size_t at = page.find("Opsets   ") + 9;
    return page.substr(at, page.find('\n', at) - at);
  };
  EXPECT_EQ(text(11, 11), "11");
  EXPECT_EQ(text(12, 12), "11 to 12, with changes in 12");
  EXPECT_EQ(text(13, 13), "11 to 13, with changes in 12 and 13");
  EXPECT_EQ(text(14, 25), "11 to 25, with changes in 12, 13 and 14");
}

TEST(OperatorPageTest, SaysWhatIsMissing) {
  v1::OperatorDescription op;
  op.mutable_summary()->set_domain("weir");
  op.mutable_summary()->set_name("Nothing");
  op.set_description("Does nothing.");
  EXPECT_EQ(OperatorPage(op),
            "weir.Nothing\n\n  Does nothing.\n\nDomain   weir\n"
            "Devices  none of this server's\n");
}

TEST(OperatorPageTest, BreaksLinesBetweenWords) {
  v1::OperatorDescription op = Gather();
  std::string words;
  for (int i = 0; i < 60; ++i) words += "word ";
  op.set_description(words + std::string(100, 'x'));
  op.mutable_attributes(0)->set_description(words);
  const std::string page = OperatorPage(op);
  EXPECT_THAT(page, ::testing::HasSubstr("\n  " + std::string(100, 'x')));
  EXPECT_THAT(page, ::testing::HasSubstr("\n        word"));
  for (absl::string_view line : absl::StrSplit(page, '\n')) {
    if (line.find('x') != line.npos) continue;
    EXPECT_LE(line.size(), 80u) << line;
  }
}

}  // namespace
}  // namespace weir::client
