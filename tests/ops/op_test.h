// Runs single operators through the registry on every device: values go to
// device memory, the kernel runs inside a work on a stream, results come back.
// A test is parameterized by device and skips, with the reason printed, where
// there is none.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "kernels/device/device.h"
#include "kernels/ops/op.h"
#include "kernels/ops/registry.h"
#include "kernels/ops/type_dispatch.h"

namespace weir {

// A dense tensor in host memory. dtype kInvalid stands for a missing input.
struct Value {
  DType dtype = DType::kInvalid;
  Dims dims;
  std::vector<std::byte> bytes;

  template <typename T>
  std::vector<T> As() const {
    std::vector<T> values(bytes.size() / sizeof(T));
    if (!bytes.empty()) {
      std::memcpy(values.data(), bytes.data(), bytes.size());
    }
    return values;
  }
  int64_t elements() const {
    return static_cast<int64_t>(bytes.size() / SizeOf(dtype));
  }
};

// The values as they are.
template <typename T>
Value Of(const Dims& dims, const std::vector<T>& values) {
  Value value;
  value.dtype = kDTypeOf<T>;
  value.dims.assign(dims.begin(), dims.end());
  value.bytes.resize(values.size() * sizeof(T));
  if (!values.empty()) {
    std::memcpy(value.bytes.data(), values.data(), value.bytes.size());
  }
  return value;
}
inline Value Int64s(const std::vector<int64_t>& values) {
  return Of<int64_t>({static_cast<int64_t>(values.size())}, values);
}
// Rounded to the type; for bool, "not zero". Empty for kString.
Value Rounded(DType dtype, Dims dims, const std::vector<double>& values);
std::vector<double> ToDoubles(const Value& value);

// The same numbers for the same seed, spread over [low, high].
std::vector<double> Spread(int64_t n, double low, double high, uint32_t seed);

// Opset 21 unless said otherwise.
NodeInfo Node(std::string op, Attributes attributes = {}, int opset = 21);
NodeInfo WeirNode(std::string op, Attributes attributes = {});

inline Attributes Attrs(
    std::vector<std::pair<std::string, AttributeValue>> values) {
  Attributes attributes;
  for (auto& [name, value] : values) attributes.Set(name, std::move(value));
  return attributes;
}

// A result may be off by `ulps` units in the last place of its type (measured
// at the exact result, at least at the smallest normal number) plus `absolute`
// plus `relative` times the exact result. Small results show only where
// `absolute` is 0, and so it is for operators in which nothing cancels out.
struct Bound {
  double ulps = 0;
  double absolute = 0;
  double relative = 0;
};
void ExpectClose(const Value& actual, const std::vector<double>& exact,
                 Bound bound);
void ExpectEqual(const Value& actual, const Value& expected);

// Shape inference alone, with symbols and with host inputs known or not.
// Gives "dtype[dims]" per output.
absl::StatusOr<std::vector<std::string>> InferShapes(
    const NodeInfo& node, const std::vector<SymbolicShape>& shapes,
    const std::vector<std::optional<std::vector<int64_t>>>& host_ints = {});

// The parameter is a device; of vector code, "cpu" may be followed by a slash
// and an instruction set, the widest of the processor that it runs as.
class OpTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override;
  void TearDown() override;

  // Whether the suite runs on every instruction set. One that meets vector code
  // and does not fails.
  virtual bool on_every_target() const { return false; }

  // Checks, infers, plans and runs `node`; its input types are set here. It
  // runs twice, over memory full of two different poisons, and fails the test
  // if
  // - the two runs differ in a bit: something was read before it was written,
  //   or an output not written in full;
  // - inputs, or the bytes around operands and scratch memory, were changed,
  //   by a run that fails, too;
  // - its cost does not cover what it takes;
  // - it has vector code, and the suite does not run on every instruction set.
  absl::StatusOr<std::vector<Value>> Run(NodeInfo node,
                                         const std::vector<Value>& inputs,
                                         RandomKey random = {});
  // Output 0 of a run that must succeed; an empty value (and a failed test)
  // otherwise.
  Value RunOne(const NodeInfo& node, const std::vector<Value>& inputs);

  // Plans are made to run once from here on, as the host does (PlanArgs::once).
  void set_once(bool once) { once_ = once; }

  bool on_cuda() const { return GetParam().rfind("cuda", 0) == 0; }
  Device& device() { return *device_; }
  const OpRegistry& registry() { return *registry_; }

 private:
  struct Planned;
  // What the outputs hold after a run over `poison`.
  absl::StatusOr<std::vector<Value>> RunOver(uint8_t poison,
                                             const Planned& planned,
                                             const std::vector<Value>& inputs,
                                             RandomKey random);

  Device* device_ = nullptr;
  const OpRegistry* registry_ = nullptr;
  bool once_ = false;
};

// "cpu", "cuda:0", and the CPU as each instruction set narrower than its own.
std::vector<std::string> DevicesAndTargets();
// "cpu", "cuda" or "cpu_AVX2", for the names of tests.
std::string DeviceTestName(const testing::TestParamInfo<std::string>& device);

#define WEIR_OP_TEST(Suite)                                                  \
  class Suite : public OpTest {};                                            \
  INSTANTIATE_TEST_SUITE_P(Devices, Suite, testing::Values("cpu", "cuda:0"), \
                           DeviceTestName)

// For suites whose operators have vector code (Highway's).
#define WEIR_VECTOR_OP_TEST(Suite)                         \
  class Suite : public OpTest {                            \
    bool on_every_target() const override { return true; } \
  };                                                       \
  INSTANTIATE_TEST_SUITE_P(                                \
      Devices, Suite, testing::ValuesIn(DevicesAndTargets()), DeviceTestName)

}  // namespace weir
