#include "client/cli/made_inputs.h"

#include <gmock/gmock.h>

#include <cstring>

#include "proto/weir/v1/tensor.pb.h"

namespace weir::client {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

inference::ModelMetadataResponse Model(
    const std::vector<std::pair<std::string, std::string>>& inputs,
    const std::vector<int64_t>& shape) {
  inference::ModelMetadataResponse model;
  for (const auto& [name, datatype] : inputs) {
    auto* input = model.add_inputs();
    input->set_name(name);
    input->set_datatype(datatype);
    for (int64_t extent : shape) input->add_shape(extent);
  }
  return model;
}

TensorArgument Given(const std::string& name) {
  return *ParseTensorArgument(name + "=float:1:7");
}

TEST(MadeInputsTest, FillsWhatTheModelLeavesOpen) {
  const auto model = Model({{"x", "FP32"}, {"ids", "INT64"}}, {-1, 3});
  const auto made = MakeInputs(model, {}, {}, 1);
  ASSERT_TRUE(made.ok()) << made.status();
  ASSERT_EQ(made->inputs.size(), 2u);
  EXPECT_TRUE(made->chose_extents);
  const TensorArgument& x = made->inputs[0];
  EXPECT_EQ(x.name, "x");
  EXPECT_EQ(x.dtype, v1::DATA_TYPE_FLOAT);
  EXPECT_THAT(x.shape, ElementsAre(1, 3));
  ASSERT_EQ(x.bytes.size(), 3 * sizeof(float));
  std::vector<float> values(3);
  std::memcpy(values.data(), x.bytes.data(), x.bytes.size());
  EXPECT_THAT(values,
              Each(::testing::AllOf(::testing::Ge(0.0f), ::testing::Lt(1.0f))));
  EXPECT_NE(values[0], values[1]);
  // The same in every run.
  EXPECT_EQ(MakeInputs(model, {}, {}, 1)->inputs[0].bytes, x.bytes);
  EXPECT_EQ(Summary(made->inputs[1].dtype, made->inputs[1].shape,
                    made->inputs[1].bytes),
            "int64 [1,3]: 1 1 1");
  EXPECT_THAT(made->notes,
              ElementsAre("x: float [1,3] of random numbers from 0 to 1",
                          "ids: int64 [1,3] of ones"));
  EXPECT_THAT(MakeInputs(model, {}, {}, 4)->inputs[0].shape, ElementsAre(4, 3));
}

TEST(MadeInputsTest, MakesEveryTypeButText) {
  const std::vector<std::pair<std::string, size_t>> types = {
      {"BOOL", 1}, {"UINT8", 1}, {"UINT16", 2}, {"UINT32", 4}, {"UINT64", 8},
      {"INT8", 1}, {"INT16", 2}, {"INT32", 4},  {"INT64", 8},  {"FP16", 2},
      {"BF16", 2}, {"FP32", 4},  {"FP64", 8}};
  for (const auto& [type, bytes] : types) {
    const auto made = MakeInputs(Model({{"x", type}}, {2}), {}, {}, 1);
    ASSERT_TRUE(made.ok()) << type << made.status();
    EXPECT_EQ(made->inputs[0].bytes.size(), 2 * bytes) << type;
    EXPECT_FALSE(made->chose_extents);
  }
  for (const char* type : {"BYTES", "FP8"}) {
    const auto made = MakeInputs(Model({{"x", type}}, {2}), {}, {}, 1);
    EXPECT_EQ(made.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(made.status().message()),
                HasSubstr("give it with --input"));
  }
}

TEST(MadeInputsTest, TakesWhatIsGiven) {
  const auto model = Model({{"a", "FP32"}, {"b", "FP32"}}, {-1});
  auto made = MakeInputs(model, {Given("b")}, {{"a", {5}}}, 1);
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_THAT(made->inputs[0].shape, ElementsAre(5));
  EXPECT_EQ(made->inputs[1].bytes, Given("b").bytes);
  EXPECT_EQ(made->notes.size(), 1u);
  EXPECT_FALSE(made->chose_extents);
  // Of a scalar there is nothing to choose.
  made = MakeInputs(Model({{"a", "FP32"}}, {}), {}, {}, 9);
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(made->inputs[0].bytes.size(), sizeof(float));
  // Nothing of an empty one.
  made = MakeInputs(Model({{"a", "FP32"}}, {0, -1}), {}, {}, 9);
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(made->inputs[0].bytes, "");
}

TEST(MadeInputsTest, SaysWhatDoesNotFit) {
  const auto model = Model({{"a", "FP32"}, {"b", "FP32"}}, {-1, 3});
  const struct {
    std::vector<TensorArgument> given;
    NamedShapes shapes;
    int64_t free;
    const char* part;
  } cases[] = {
      {{Given("c")}, {}, 1, "no input 'c', but 'a', 'b'"},
      {{}, {{"c", {1, 3}}}, 1, "no input 'c', but 'a', 'b'"},
      {{Given("a")}, {{"a", {1, 3}}}, 1, "has the shape that --input says"},
      {{}, {{"a", {1, 4}}}, 1, "--shape a=1x4: the model's shape is [-1,3]"},
      {{}, {{"a", {3}}}, 1, "--shape a=3: the model's shape is [-1,3]"},
      {{}, {}, int64_t{1} << 31, "'a' float [2147483648,3] is more than"},
      {{}, {{"a", {int64_t{1} << 62, 3}}}, 1, "is more than a message"},
  };
  const auto wide = Model({{"a", "BOOL"}}, {-1, int64_t{1} << 32});
  EXPECT_FALSE(MakeInputs(wide, {}, {}, int64_t{1} << 32).ok());
  for (const auto& c : cases) {
    const auto made = MakeInputs(model, c.given, c.shapes, c.free);
    EXPECT_EQ(made.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(made.status().message()), HasSubstr(c.part));
  }
}

TEST(MadeInputsTest, ReadsShapes) {
  const auto shapes = ParseShapes({"a=2x3", "b=c=4", "s=scalar"});
  ASSERT_TRUE(shapes.ok()) << shapes.status();
  EXPECT_THAT(shapes->at("a"), ElementsAre(2, 3));
  EXPECT_THAT(shapes->at("b=c"), ElementsAre(4));
  EXPECT_TRUE(shapes->at("s").empty());
  EXPECT_EQ(ParseShapes({"a=2", "b=2", "a=2"}).status().message(),
            "--shape: 'a' is given twice");
  for (const char* text : {"a", "=3", "a=-1", "a=x", "a=3x"}) {
    EXPECT_EQ(ParseShapes({text}).status().code(),
              absl::StatusCode::kInvalidArgument)
        << text;
  }
}

}  // namespace
}  // namespace weir::client
