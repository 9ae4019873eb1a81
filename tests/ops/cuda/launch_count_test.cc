// That plans count the launches that they make, without a GPU: NVRTC compiles
// the kernels, and a pretended driver counts what is launched.
#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/backend/devices.h"
#include "kernels/device/cuda/cuda_device.h"
#include "kernels/ops/cuda/register.h"
#include "kernels/ops/registry.h"

namespace weir {
namespace {

size_t launched = 0;

CUresult Launch(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned,
                unsigned, unsigned, CUstream, void**, void**) {
  ++launched;
  return CUDA_SUCCESS;
}

TensorMeta Tensor(Dims dims, DType dtype = DType::kFloat) {
  TensorMeta meta;
  meta.dtype = dtype;
  meta.elements = *NumElements(dims);
  meta.bytes = static_cast<size_t>(meta.elements) * SizeOf(dtype);
  meta.dims = std::move(dims);
  return meta;
}

class LaunchCountTest : public testing::Test {
 protected:
  void SetUp() override {
    DriverApi driver;
    driver.launch_kernel = Launch;
    auto device = CudaDevice::CreateCompiler(90, DeviceOptions(), driver);
    if (absl::IsFailedPrecondition(device.status())) {
      GTEST_SKIP() << device.status().message();
    }
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
    registry_ = MakeOpRegistry({});
    ASSERT_TRUE(RegisterCudaKernels(*registry_).ok());
    near_ = MakeCpuDevice({.cpu_threads = 1});
    stream_ = *near_->CreateStream(near_->info().least_priority);
  }

  // Runs a node once, on memory that nothing reads, and expects that it
  // launched as often as its plan says, which is `launches`.
  void ExpectLaunches(const std::string& op, Attributes attributes,
                      const std::vector<TensorMeta>& inputs,
                      const std::vector<TensorMeta>& outputs, size_t launches) {
    SCOPED_TRACE(op);
    NodeInfo node;
    node.name = "n";
    node.op = op;
    node.opset = 17;
    node.attributes = std::move(attributes);
    for (const TensorMeta& in : inputs) node.input_types.push_back(in.dtype);
    node.num_outputs = static_cast<int>(outputs.size());
    const auto kernel = registry_->CreateKernel(node, *device_);
    ASSERT_TRUE(kernel.ok()) << kernel.status();
    const std::vector<std::vector<int64_t>> ints(inputs.size());
    const auto plan = (*kernel)->Plan({inputs, outputs, ints});
    ASSERT_TRUE(plan.ok()) << plan.status();
    std::vector<std::byte> scratch((*plan)->scratch_bytes());
    std::byte memory[1];
    const std::vector<const void*> from(inputs.size(), memory);
    const std::vector<void*> to(outputs.size(), memory);
    launched = 0;
    const absl::Status status = (*plan)->Run(
        RunArgs{*stream_, nullptr, from, to, scratch.data(), {}, 0});
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ((*plan)->launches(), launches);
    EXPECT_EQ(launched, launches);
  }

  std::unique_ptr<CudaDevice> device_;
  std::unique_ptr<OpRegistry> registry_;
  std::unique_ptr<Device> near_;
  std::unique_ptr<Stream> stream_;
};

TEST_F(LaunchCountTest, LayerNormalizationWritesOutScaleAndBiasFirst) {
  const TensorMeta x = Tensor({8, 768}), row = Tensor({768}), one = Tensor({1});
  ExpectLaunches("LayerNormalization", {}, {x, row, row}, {x}, 1);
  ExpectLaunches("LayerNormalization", {}, {x, row, one}, {x}, 2);
  ExpectLaunches("LayerNormalization", {}, {x, one, one}, {x}, 3);
}

TEST_F(LaunchCountTest, OfOneLoopAndOfTwoPasses) {
  const TensorMeta x = Tensor({8, 768});
  ExpectLaunches("Relu", {}, {x}, {x}, 1);
  ExpectLaunches("Softmax", {}, {x}, {x}, 1);
  Attributes flat;
  flat.Set("keepdims", int64_t{0});
  ExpectLaunches("ReduceMax", std::move(flat), {Tensor({1 << 22})},
                 {Tensor({})}, 2);
}

}  // namespace
}  // namespace weir
