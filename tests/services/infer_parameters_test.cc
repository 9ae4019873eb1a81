#include "server/services/infer_parameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/error_info.h"

namespace weir {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using enum absl::StatusCode;

using Value = decltype(InferParameter::value);

Value Bool(bool value) { return value; }
Value Int(int64_t value) { return value; }
Value Count(uint64_t value) { return value; }
Value Text(std::string_view value) { return value; }
Value Double(double value) { return value; }
Value Unset() { return std::monostate(); }

absl::StatusOr<ReportWish> Read(std::string_view name, Value value) {
  const InferParameter parameter{name, value};
  return ReadInferParameters({&parameter, 1});
}

// Of input "in", the first one.
absl::Status CheckOfTensor(std::string_view name, Value value) {
  const InferParameter parameter{name, value};
  return CheckTensorParameters("in", "inputs[0]", {&parameter, 1});
}

void ExpectPasses(std::string_view name, const std::vector<Value>& values) {
  for (size_t i = 0; i < values.size(); ++i) {
    const auto wish = Read(name, values[i]);
    ASSERT_TRUE(wish.ok()) << name << ", value " << i << ": " << wish.status();
    EXPECT_EQ(*wish, ReportWish::kNone);
  }
}

void ExpectRefused(std::string_view name, absl::StatusCode code,
                   const std::vector<Value>& values) {
  for (size_t i = 0; i < values.size(); ++i) {
    SCOPED_TRACE(absl::StrCat(std::string(name), ", value ", i));
    const absl::Status status = Read(name, values[i]).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_EQ(Field(status), absl::StrCat("parameters.", std::string(name)));
    EXPECT_THAT(std::string(status.message()), HasSubstr(std::string(name)));
  }
}

TEST(InferParametersTest, AReportIsWishedByItsName) {
  EXPECT_EQ(*ReadInferParameters({}), ReportWish::kNone);
  EXPECT_EQ(*Read("weir_sync_report", Text("brief")), ReportWish::kBrief);
  EXPECT_EQ(*Read("weir_sync_report", Text("full")), ReportWish::kFull);
  ExpectRefused("weir_sync_report", kInvalidArgument,
                {Text(""), Text("Full"), Bool(true), Int(1), Unset()});
}

TEST(InferParametersTest, EveryParameterIsLookedAt) {
  const std::vector<InferParameter> good = {{"request_label", Text("mine")},
                                            {kReportParameter, Text("full")},
                                            {"timeout", Int(5)}};
  EXPECT_EQ(*ReadInferParameters(good), ReportWish::kFull);
  std::vector<InferParameter> bad = good;
  bad.push_back({"priority", Text("high")});
  EXPECT_EQ(Field(ReadInferParameters(bad).status()), "parameters.priority");
}

TEST(InferParametersTest, PriorityAndTimeoutAreIntegersOfEitherForm) {
  for (const char* name : {"priority", "timeout"}) {
    ExpectPasses(name,
                 {Int(0), Int(7), Int(std::numeric_limits<int64_t>::max()),
                  Count(0), Count(std::numeric_limits<uint64_t>::max())});
    ExpectRefused(name, kInvalidArgument,
                  {Int(-1), Int(std::numeric_limits<int64_t>::min()), Text("7"),
                   Bool(false), Double(7), Unset()});
  }
  EXPECT_THAT(std::string(Read("timeout", Int(-3)).status().message()),
              AllOf(HasSubstr("0 or more"), HasSubstr("sent as -3")));
}

// A client that always sends them asks for nothing; one that needs them would
// get wrong results.
TEST(InferParametersTest, SequencesAreRefusedOnlyWhereOneIsMeant) {
  ExpectPasses("sequence_id", {Int(0), Count(0), Text("")});
  ExpectRefused("sequence_id", kUnimplemented,
                {Int(1), Int(-1), Count(1), Text("a")});
  ExpectRefused("sequence_id", kInvalidArgument,
                {Bool(false), Double(0), Unset()});
  for (const char* name : {"sequence_start", "sequence_end"}) {
    ExpectPasses(name, {Bool(false)});
    ExpectRefused(name, kUnimplemented, {Bool(true)});
    ExpectRefused(name, kInvalidArgument, {Int(0), Text(""), Unset()});
  }
}

TEST(InferParametersTest, NamesOfTritonAreReserved) {
  ExpectPasses("triton_enable_empty_final_response", {Bool(true), Bool(false)});
  ExpectRefused("triton_enable_empty_final_response", kInvalidArgument,
                {Int(1), Text("true"), Unset()});
  ExpectRefused("triton_", kInvalidArgument, {Bool(false)});
  ExpectRefused("triton_later", kInvalidArgument, {Bool(false), Int(0)});
}

TEST(InferParametersTest, NamesThatOnlyTheCallerKnowsPass) {
  for (const char* name : {"", "request_label", "Priority", "my_triton_",
                           "shared_memory_region", "classification"}) {
    ExpectPasses(
        name, {Bool(true), Int(-1), Count(1), Text("x"), Double(1), Unset()});
  }
}

TEST(InferParametersTest, TensorsAskForNoSharedMemoryAndNoClasses) {
  for (const char* name : {"classification", "shared_memory_region",
                           "shared_memory_offset", "shared_memory_byte_size"}) {
    SCOPED_TRACE(name);
    for (const Value& none : {Bool(false), Int(0), Count(0), Text("")}) {
      EXPECT_EQ(CheckOfTensor(name, none), absl::OkStatus());
    }
    for (const Value& wanted :
         {Bool(true), Int(1), Count(1), Text("r"), Double(0), Unset()}) {
      const absl::Status status = CheckOfTensor(name, wanted);
      EXPECT_EQ(status.code(), kUnimplemented);
      EXPECT_EQ(Field(status), absl::StrCat("inputs[0].parameters.", name));
      EXPECT_THAT(std::string(status.message()),
                  AllOf(HasSubstr("tensor \"in\""), HasSubstr(name)));
    }
  }
}

TEST(InferParametersTest, OtherParametersOfTensorsPass) {
  for (const char* name : {"binary_data", "priority", "classifications",
                           "my_shared_memory_region", "shared_memory"}) {
    EXPECT_EQ(CheckOfTensor(name, Int(-1)), absl::OkStatus()) << name;
  }
  const std::vector<InferParameter> last = {
      {"mine", Int(1)}, {"classification", Int(0)}, {"classification", Int(3)}};
  EXPECT_EQ(CheckTensorParameters("out", "outputs[1]", last).code(),
            kUnimplemented);
}

}  // namespace
}  // namespace weir
