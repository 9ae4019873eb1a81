#include "server/services/request_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <string>
#include <vector>

#include "kernels/base/error_info.h"
#include "kernels/tensor/shape.h"
#include "proto/weir/v1/evaluator.pb.h"

namespace weir {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using enum absl::StatusCode;

WireTensor Input(std::string_view name, int32_t dtype,
                 std::span<const int64_t> shape) {
  WireTensor input;
  input.name = name;
  input.spec.dtype = dtype;
  input.spec.shape = shape;
  return input;
}

absl::Status CheckOne(const WireTensor& input) {
  return CheckSpecs({&input, 1}, "tensor.spec");
}

TEST(RequestChecksTest, APlacementIsANameAUuidOrNone) {
  DeviceInfo gpu;
  gpu.kind = DeviceKind::kCuda;
  gpu.ordinal = 1;
  gpu.uuid = "GPU-1234";
  for (const char* wanted : {"", "cuda:1", "GPU-1234"}) {
    EXPECT_EQ(CheckPlacement(wanted, gpu), absl::OkStatus()) << wanted;
  }
  for (const char* wanted :
       {"cuda", "cuda:0", "cuda:11", "cpu", "GPU-123", "gpu-1234"}) {
    const absl::Status status = CheckPlacement(wanted, gpu);
    EXPECT_EQ(status.code(), kUnimplemented) << wanted;
    EXPECT_EQ(Field(status), "device");
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("cuda:1"),
                      HasSubstr("\"" + std::string(wanted) + "\"")));
  }
}

TEST(RequestChecksTest, ThePrecisionIsStrict) {
  EXPECT_EQ(CheckPrecision(v1::PRECISION_UNSPECIFIED), absl::OkStatus());
  EXPECT_EQ(CheckPrecision(v1::PRECISION_STRICT), absl::OkStatus());
}

TEST(RequestChecksTest, EveryOtherPrecisionIsRefusedByName) {
  size_t others = 0;
  for (int32_t number = 0; number <= v1::Precision_MAX; ++number) {
    if (!v1::Precision_IsValid(number) || number == v1::PRECISION_UNSPECIFIED ||
        number == v1::PRECISION_STRICT) {
      continue;
    }
    ++others;
    const std::string name =
        v1::Precision_Name(static_cast<v1::Precision>(number));
    const absl::Status status = CheckPrecision(number);
    EXPECT_EQ(status.code(), kUnimplemented) << name;
    EXPECT_EQ(Reason(status), "PRECISION_NOT_ALLOWED");
    EXPECT_EQ(Field(status), "precision");
    EXPECT_THAT(Metadata(status),
                ElementsAre(Pair("precision", name),
                            Pair("allowed", "PRECISION_STRICT")));
  }
  EXPECT_GT(others, 0u);
}

TEST(RequestChecksTest, ANumberThatIsNoPrecisionIsWrong) {
  for (const int32_t number :
       {-1, v1::Precision_MAX + 1, std::numeric_limits<int32_t>::max(),
        std::numeric_limits<int32_t>::min()}) {
    const absl::Status status = CheckPrecision(number);
    EXPECT_EQ(status.code(), kInvalidArgument) << number;
    EXPECT_EQ(Field(status), "precision");
    EXPECT_EQ(Reason(status), "");
  }
}

TEST(RequestChecksTest, SpecsHaveAnElementTypeAndAtMostTheRank) {
  const std::array<int64_t, 9> ones = {1, 1, 1, 1, 1, 1, 1, 1, 1};
  const std::span<const int64_t> shape = ones;
  EXPECT_EQ(CheckSpecs({}, "spec"), absl::OkStatus());
  EXPECT_EQ(CheckOne(Input("in", v1::DATA_TYPE_FLOAT, {})), absl::OkStatus());
  EXPECT_EQ(CheckOne(Input("in", v1::DATA_TYPE_STRING, shape.first(kMaxRank))),
            absl::OkStatus());

  const absl::Status high =
      CheckOne(Input("in", v1::DATA_TYPE_FLOAT, shape.first(kMaxRank + 1)));
  EXPECT_EQ(high.code(), kInvalidArgument);
  EXPECT_EQ(Field(high), "inputs[0].tensor.spec.shape");
  EXPECT_THAT(std::string(high.message()),
              AllOf(HasSubstr("input \"in\": "), HasSubstr("rank 9")));

  const absl::Status unset =
      CheckOne(Input("in", v1::DATA_TYPE_UNSPECIFIED, {}));
  EXPECT_EQ(unset.code(), kInvalidArgument);
  EXPECT_EQ(Field(unset), "inputs[0].tensor.spec.dtype");
  EXPECT_THAT(std::string(unset.message()), HasSubstr("dtype is not set"));

  for (const int32_t number : {-1, 9999}) {
    const absl::Status unknown = CheckOne(Input("in", number, {}));
    EXPECT_EQ(unknown.code(), kInvalidArgument);
    EXPECT_EQ(Field(unknown), "inputs[0].tensor.spec.dtype");
    EXPECT_THAT(std::string(unknown.message()), HasSubstr("input \"in\": "));
  }
}

TEST(RequestChecksTest, RaggedBatchesAreNotOffered) {
  const std::array<int64_t, 1> two = {2};
  const std::array<std::span<const int64_t>, 1> samples = {two};
  // Whatever else is wrong with it.
  for (const int32_t dtype : {v1::DATA_TYPE_FLOAT, v1::DATA_TYPE_UNSPECIFIED}) {
    WireTensor ragged = Input("in", dtype, {});
    ragged.spec.sample_shapes = samples;
    const absl::Status status = CheckOne(ragged);
    EXPECT_EQ(status.code(), kUnimplemented);
    EXPECT_EQ(Field(status), "inputs[0].tensor.spec.sample_shapes");
    EXPECT_THAT(std::string(status.message()), HasSubstr("input \"in\": "));
  }
}

TEST(RequestChecksTest, TheFirstThatIsWrongIsNamed) {
  const std::vector<WireTensor> inputs = {
      Input("good", v1::DATA_TYPE_FLOAT, {}),
      Input("bad", v1::DATA_TYPE_UNSPECIFIED, {}), Input("worse", 9999, {})};
  const absl::Status status = CheckSpecs(inputs, "spec");
  EXPECT_EQ(Field(status), "inputs[1].spec.dtype");
  EXPECT_THAT(std::string(status.message()), HasSubstr("input \"bad\": "));
}

}  // namespace
}  // namespace weir
