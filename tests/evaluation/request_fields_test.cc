#include "server/evaluation/request_fields.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/base/error_info.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

std::vector<ValueDecl> Declared(const std::vector<std::string>& names) {
  std::vector<ValueDecl> declared;
  for (const std::string& name : names) declared.emplace_back().name = name;
  return declared;
}

// The missing one's name; "" for none.
std::string Missing(const std::vector<std::string>& declared,
                    const std::vector<std::string>& given) {
  const std::vector<ValueDecl> decls = Declared(declared);
  const ValueDecl* missing =
      FindMissing(decls, given.size(), [&](size_t i) -> std::string_view {
        EXPECT_LT(i, given.size());
        return given[i];
      });
  return missing == nullptr ? "" : missing->name;
}

std::string FieldAfter(std::string_view field,
                       const std::vector<size_t>& places) {
  return Field(WithRequestField(InvalidField(field, "wrong"), places));
}

TEST(RequestFieldsTest, AnInputHasTheRequestsNumber) {
  const std::vector<size_t> places = {2, kNotGiven, 0};
  EXPECT_EQ(FieldAfter("inputs[0]", places), "inputs[2]");
  EXPECT_EQ(FieldAfter("inputs[2]", places), "inputs[0]");
  EXPECT_EQ(FieldAfter("inputs[1]", places), "inputs")
      << "the request has no such input";
}

TEST(RequestFieldsTest, OtherFieldsStayAsTheyAre) {
  for (const char* field :
       {"inputs", "inputs[]", "inputs[2]", "inputs[-1]", "inputs[x]",
        "inputs[0].shape", "inputs[0", "outputs[0]", "inputs[1e0]",
        "inputs[99999999999999999999]"}) {
    EXPECT_EQ(FieldAfter(field, {7, 7}), field);
  }
  const absl::Status none = absl::InvalidArgumentError("of no field");
  EXPECT_EQ(WithRequestField(none, {}), none);
  EXPECT_EQ(WithRequestField(absl::OkStatus(), {}), absl::OkStatus());
}

TEST(RequestFieldsTest, TheRestOfTheErrorIsKept) {
  const absl::Status status =
      WithReason(WithField(absl::ResourceExhaustedError("large"), "inputs[0]"),
                 "TOO_LARGE");
  const absl::Status given = WithRequestField(status, std::vector<size_t>{3});
  EXPECT_EQ(given.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(given.message(), "large");
  EXPECT_EQ(Reason(given), "TOO_LARGE");
  EXPECT_EQ(Field(given), "inputs[3]");
}

TEST(RequestFieldsTest, OneThatIsMissingIsFound) {
  EXPECT_EQ(Missing({"a", "b", "c"}, {"c", "a"}), "b");
  EXPECT_EQ(Missing({"a", "b"}, {}), "a");
  EXPECT_EQ(Missing({"a", "b"}, {"a"}), "b");
  EXPECT_EQ(Missing({"a", "b", "c"}, {"a", "unknown"}), "b");
  EXPECT_EQ(Missing({"a", "b", "c"}, {"a", "a"}), "b");
}

// What is wrong then is told of the inputs one by one.
TEST(RequestFieldsTest, NoneIsMissingWhereAsManyAreGiven) {
  EXPECT_EQ(Missing({}, {}), "");
  EXPECT_EQ(Missing({"a", "b"}, {"b", "a"}), "");
  EXPECT_EQ(Missing({"a", "b"}, {"a", "unknown"}), "");
  EXPECT_EQ(Missing({"a"}, {"b", "c"}), "");
}

TEST(RequestFieldsTest, TheErrorNamesTheInputAndWhoseItIs) {
  const absl::Status status = MissingInput(Declared({"mask"})[0], "the graph");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Field(status), "inputs");
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("input \"mask\" of the graph is missing"));
  EXPECT_EQ(InputLabel("mask"), "input \"mask\": ");
  EXPECT_EQ(InputField(12), "inputs[12]");
}

}  // namespace
}  // namespace weir
