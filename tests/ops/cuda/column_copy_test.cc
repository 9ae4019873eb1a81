// Concat and Split of many operands, without a GPU: NVRTC compiles their
// kernels, and a pretended driver runs the same text, compiled for the host, on
// what it is launched with.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "kernels/backend/devices.h"
#include "kernels/device/cuda/cuda_device.h"
#include "kernels/ops/cuda/register.h"
#include "kernels/ops/registry.h"

// The kernel's text as the host's compiler takes it, for each number of
// operands that a launch may have and for both directions. A word is a byte.
namespace host {

struct Index {
  uint64_t x = 0;
};
Index blockIdx, blockDim, gridDim, threadIdx;
uint64_t GlobalThread() { return blockIdx.x * blockDim.x + threadIdx.x; }

#undef __global__
#undef __grid_constant__
#define __global__
#define __grid_constant__
#define __launch_bounds__(threads)
#define E uint8_t
#define MOVE_COLUMNS 1

namespace join4 {
#define JOIN 1
#define COLUMNS 4
#define weir_kernel weir_join4
#include "kernels/ops/cuda/movement.cuh"
#undef weir_kernel
#undef COLUMNS
}  // namespace join4
namespace join64 {
#define COLUMNS 64
#define weir_kernel weir_join64
#include "kernels/ops/cuda/movement.cuh"
#undef weir_kernel
#undef COLUMNS
}  // namespace join64
namespace join1024 {
#define COLUMNS 1024
#define weir_kernel weir_join1024
#include "kernels/ops/cuda/movement.cuh"
#undef weir_kernel
#undef COLUMNS
#undef JOIN
}  // namespace join1024
namespace split4 {
#define JOIN 0
#define COLUMNS 4
#define weir_kernel weir_split4
#include "kernels/ops/cuda/movement.cuh"
#undef weir_kernel
#undef COLUMNS
}  // namespace split4
namespace split64 {
#define COLUMNS 64
#define weir_kernel weir_split64
#include "kernels/ops/cuda/movement.cuh"
#undef weir_kernel
#undef COLUMNS
}  // namespace split64
namespace split1024 {
#define COLUMNS 1024
#define weir_kernel weir_split1024
#include "kernels/ops/cuda/movement.cuh"
#undef weir_kernel
#undef COLUMNS
#undef JOIN
}  // namespace split1024

#undef MOVE_COLUMNS
#undef E

}  // namespace host

namespace weir {
namespace {

// What the pretended driver is to run, and how often it was asked to.
bool joins = false;
size_t most_columns = 0;
size_t launched = 0;
// Fewer than there are elements, so that threads have several.
unsigned most_blocks = 0;

template <typename Args>
void RunOn(void (*kernel)(Args), void* params, unsigned blocks,
           unsigned threads) {
  host::gridDim.x = std::min(blocks, most_blocks);
  host::blockDim.x = threads;
  for (host::blockIdx.x = 0; host::blockIdx.x < host::gridDim.x;
       ++host::blockIdx.x) {
    for (host::threadIdx.x = 0; host::threadIdx.x < threads;
         ++host::threadIdx.x) {
      kernel(*static_cast<const Args*>(params));
    }
  }
}

CUresult Launch(CUfunction, unsigned x, unsigned, unsigned, unsigned threads,
                unsigned, unsigned, unsigned, CUstream, void** params, void**) {
  ++launched;
  if (joins) {
    switch (most_columns) {
      case 4:
        RunOn(host::join4::weir::weir_join4, params[0], x, threads);
        break;
      case 64:
        RunOn(host::join64::weir::weir_join64, params[0], x, threads);
        break;
      default:
        RunOn(host::join1024::weir::weir_join1024, params[0], x, threads);
    }
  } else {
    switch (most_columns) {
      case 4:
        RunOn(host::split4::weir::weir_split4, params[0], x, threads);
        break;
      case 64:
        RunOn(host::split64::weir::weir_split64, params[0], x, threads);
        break;
      default:
        RunOn(host::split1024::weir::weir_split1024, params[0], x, threads);
    }
  }
  return CUDA_SUCCESS;
}

TensorMeta Bytes(Dims dims) {
  TensorMeta meta;
  meta.dtype = DType::kUint8;
  meta.elements = *NumElements(dims);
  meta.bytes = static_cast<size_t>(meta.elements);
  meta.dims = std::move(dims);
  return meta;
}

class ColumnCopyTest : public testing::Test {
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
    launched = 0;
    most_blocks = 3;
  }

  std::unique_ptr<const KernelPlan> Plan(const char* op, int64_t axis,
                                         const std::vector<TensorMeta>& inputs,
                                         const std::vector<TensorMeta>& outs) {
    NodeInfo node;
    node.name = "n";
    node.op = op;
    node.opset = 21;
    node.attributes.Set("axis", axis);
    for (const TensorMeta& in : inputs) node.input_types.push_back(in.dtype);
    node.num_outputs = static_cast<int>(outs.size());
    auto kernel = registry_->CreateKernel(node, *device_);
    EXPECT_TRUE(kernel.ok()) << kernel.status();
    kernels_.push_back(*std::move(kernel));
    const std::vector<std::vector<int64_t>> ints(inputs.size());
    auto plan = kernels_.back()->Plan({inputs, outs, ints});
    EXPECT_TRUE(plan.ok()) << plan.status();
    return *std::move(plan);
  }

  // Splits `rows` x sum(widths) x 3 bytes along axis 1, checks every byte, and
  // joins the parts again. Returns how many launches each direction took.
  size_t SplitAndJoin(int64_t rows, const std::vector<int64_t>& widths) {
    int64_t columns = 0;
    std::vector<TensorMeta> parts;
    for (const int64_t width : widths) {
      columns += width;
      parts.push_back(Bytes({rows, width, 3}));
    }
    const TensorMeta whole = Bytes({rows, columns, 3});
    std::vector<uint8_t> matrix(whole.bytes);
    for (size_t i = 0; i < matrix.size(); ++i) {
      matrix[i] = static_cast<uint8_t>(i * 7 + i / 251);
    }
    const auto split = Plan("Split", 1, {whole}, parts);
    const auto join = Plan("Concat", 1, parts, {whole});
    if (split == nullptr || join == nullptr) return 0;

    // Each with a byte behind it that nobody may touch.
    std::vector<std::vector<uint8_t>> made;
    std::vector<void*> outputs;
    for (const TensorMeta& part : parts) {
      made.emplace_back(part.bytes + 1, uint8_t{0xa5});
    }
    for (auto& part : made) outputs.push_back(part.data());
    const void* in[] = {matrix.data()};
    joins = false;
    launched = 0;
    EXPECT_TRUE(
        split->Run(RunArgs{*stream_, nullptr, in, outputs, nullptr, {}, 0})
            .ok());
    EXPECT_EQ(launched, split->launches());
    int64_t first = 0;
    for (size_t k = 0; k < parts.size(); ++k) {
      const int64_t width = widths[k] * 3;
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t column = 0; column < width; ++column) {
          const auto at =
              static_cast<size_t>(row * columns * 3 + first + column);
          const auto got = made[k][static_cast<size_t>(row * width + column)];
          if (got == matrix[at]) continue;
          ADD_FAILURE() << "part " << k << ", row " << row << ", byte "
                        << column << ": " << int{got};
          return 0;
        }
      }
      first += width;
      EXPECT_EQ(made[k].back(), 0xa5) << k;
    }

    std::vector<uint8_t> joined(matrix.size() + 1, uint8_t{0xa5});
    const std::vector<const void*> inputs(outputs.begin(), outputs.end());
    void* out[] = {joined.data()};
    joins = true;
    launched = 0;
    EXPECT_TRUE(
        join->Run(RunArgs{*stream_, nullptr, inputs, out, nullptr, {}, 0})
            .ok());
    EXPECT_EQ(launched, join->launches());
    EXPECT_EQ(joined.back(), 0xa5);
    joined.pop_back();
    EXPECT_EQ(joined, matrix);
    return launched;
  }

  std::unique_ptr<CudaDevice> device_;
  std::unique_ptr<OpRegistry> registry_;
  std::vector<std::unique_ptr<const Kernel>> kernels_;
  std::unique_ptr<Device> near_;
  std::unique_ptr<Stream> stream_;
};

TEST_F(ColumnCopyTest, FewOperands) {
  most_columns = 4;
  EXPECT_EQ(SplitAndJoin(5, {7}), 1u);
  EXPECT_EQ(SplitAndJoin(5, {1, 2, 3, 1}), 1u);
  EXPECT_EQ(SplitAndJoin(1, {300, 1, 20}), 1u);
  EXPECT_EQ(SplitAndJoin(300, {1, 1}), 1u);
}

TEST_F(ColumnCopyTest, EmptyOnesTakeNoPlace) {
  most_columns = 4;
  EXPECT_EQ(SplitAndJoin(3, {0, 1, 0, 0, 2, 0, 1, 1, 0}), 1u);
  EXPECT_EQ(SplitAndJoin(3, {0, 5}), 1u);
  EXPECT_EQ(SplitAndJoin(3, {0, 0}), 0u);
  EXPECT_EQ(SplitAndJoin(3, std::vector<int64_t>(5000, 0)), 0u);
}

TEST_F(ColumnCopyTest, ManyOperandsTakeALaunchForEach1024) {
  std::vector<int64_t> widths;
  for (int i = 0; i < 64; ++i) widths.push_back(i % 5);
  most_columns = 64;
  EXPECT_EQ(SplitAndJoin(3, widths), 1u);
  for (int i = 0; i < 9936; ++i) widths.push_back(i % 5);
  most_columns = 1024;
  // A fifth of them is empty.
  EXPECT_EQ(SplitAndJoin(2, widths), 8u);
  EXPECT_EQ(SplitAndJoin(2, std::vector<int64_t>(1024, 1)), 1u);
  EXPECT_EQ(SplitAndJoin(2, std::vector<int64_t>(1025, 1)), 2u);
}

TEST_F(ColumnCopyTest, AsManyOperandsAsAGraphMayHave) {
  most_columns = 1024;
  EXPECT_EQ(SplitAndJoin(1, std::vector<int64_t>(400'000, 1)), 391u);
}

}  // namespace
}  // namespace weir
