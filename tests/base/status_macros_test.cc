#include "kernels/base/status_macros.h"

#include <gtest/gtest.h>

#include <memory>

namespace weir {
namespace {

absl::StatusOr<std::unique_ptr<int>> Make(bool ok, int* calls) {
  ++*calls;
  if (!ok) return absl::InternalError("no");
  return std::make_unique<int>(7);
}

absl::Status Use(bool ok, int* calls, int* result) {
  WEIR_ASSIGN_OR_RETURN(auto made, Make(ok, calls));
  WEIR_ASSIGN_OR_RETURN(const auto again, Make(ok, calls));
  *result = *made + *again;
  return absl::OkStatus();
}

absl::Status Pass(const absl::Status& status, int* calls) {
  WEIR_RETURN_IF_ERROR((++*calls, status));
  return absl::OkStatus();
}

TEST(StatusMacrosTest, AssignMovesTheValueOut) {
  int calls = 0, result = 0;
  EXPECT_TRUE(Use(true, &calls, &result).ok());
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(result, 14);
}

TEST(StatusMacrosTest, AssignReturnsTheFirstError) {
  int calls = 0, result = 0;
  EXPECT_EQ(Use(false, &calls, &result).message(), "no");
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(result, 0);
}

TEST(StatusMacrosTest, ReturnIfErrorEvaluatesOnce) {
  int calls = 0;
  EXPECT_TRUE(Pass(absl::OkStatus(), &calls).ok());
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(Pass(absl::AbortedError("x"), &calls), absl::AbortedError("x"));
  EXPECT_EQ(calls, 2);
}

}  // namespace
}  // namespace weir
