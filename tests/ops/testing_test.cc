// weir.Spin and weir.Fault. What poisons a GPU is not tried here: the process
// would be lost.
#include "kernels/base/clock.h"
#include "kernels/base/error_info.h"
#include "tests/ops/op_test.h"

namespace weir {
namespace {

WEIR_OP_TEST(TestingTest);

TEST_P(TestingTest, SpinTakesItsTimeAndCopies) {
  for (const DType dtype : {DType::kFloat, DType::kUint8, DType::kInt64}) {
    const Value in = Rounded(dtype, {3, 5}, Spread(15, 0, 100, 1));
    const Nanos start = NowNanos();
    ExpectEqual(
        RunOne(WeirNode("Spin", Attrs({{"microseconds", int64_t{2000}}})),
               {in}),
        in);
    EXPECT_GE(NowNanos() - start, 2'000'000);
  }
  const Value in = Of<float>({2}, {1, 2});
  ExpectEqual(RunOne(WeirNode("Spin"), {in}), in);
}

TEST_P(TestingTest, FaultFailsTheWorkAndNothingElse) {
  const Value in = Of<float>({2}, {1, 2});
  const absl::Status injected = Run(WeirNode("Fault"), {in}).status();
  EXPECT_EQ(injected.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(Reason(injected), "INJECTED_FAULT");
  const absl::Status index =
      Run(WeirNode("Fault", Attrs({{"mode", std::string("index")}})), {in})
          .status();
  EXPECT_EQ(index.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Reason(index), "INDEX_OUT_OF_RANGE");
  ExpectEqual(RunOne(WeirNode("Spin"), {in}), in);
}

TEST_P(TestingTest, RefusesBadArguments) {
  const Value in = Of<float>({2}, {1, 2});
  EXPECT_EQ(Run(WeirNode("Spin", Attrs({{"microseconds", int64_t{-1}}})), {in})
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Run(WeirNode("Fault", Attrs({{"mode", std::string("no")}})), {in})
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(TestingRegistryTest, HiddenUnlessAskedFor) {
  const auto registry = MakeOpRegistry();
  EXPECT_EQ(registry->Find("weir", "Spin"), nullptr);
  EXPECT_EQ(registry->Find("weir", "Fault"), nullptr);
}

}  // namespace
}  // namespace weir
