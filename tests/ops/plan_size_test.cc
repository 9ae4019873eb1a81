// A plan's size grows with ranks, not with extents (KernelPlan): what a caller
// names in a few bytes takes no memory before it is computed. Counted is what a
// plan takes of the heap while it is made, beside what it says that it holds.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "kernels/backend/devices.h"
#include "kernels/base/error_info.h"
#include "kernels/ops/registry.h"
#include "tests/ops/op_test.h"

namespace {

// The machine's memory is not for a test that fails.
constexpr size_t kMost = size_t{256} << 20;

thread_local size_t taken = 0;

void Take(size_t bytes) {
  taken += bytes;
  if (bytes > kMost) {
    std::fprintf(stderr, "one allocation of %zu bytes\n", bytes);
    std::abort();
  }
}

}  // namespace

void* operator new(size_t bytes) {
  Take(bytes);
  if (void* const memory = std::malloc(bytes)) return memory;
  std::abort();
}
void* operator new(size_t bytes, std::align_val_t alignment) {
  Take(bytes);
  const auto unit = static_cast<size_t>(alignment);
  if (void* const memory =
          std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit)) {
    return memory;
  }
  std::abort();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace weir {
namespace {

using List = std::vector<int64_t>;

// What "a few kilobytes" are.
constexpr size_t kFew = 4096;

struct Sizes {
  std::vector<Dims> inputs;
  std::vector<Dims> outputs;
  std::vector<List> host_ints = {};
};

struct Case {
  NodeInfo node;
  Sizes small, large;
  DType dtype = DType::kFloat;
  // Of inputs after the first, if another.
  DType others = DType::kFloat;
};

constexpr int64_t kSide = int64_t{1} << 11;
constexpr int64_t kLong = int64_t{1} << 30;

std::vector<Case> Cases() {
  const Attributes window = Attrs({{"kernel_shape", List{3, 2}}});
  const Attributes padded =
      Attrs({{"kernel_shape", List{3}}, {"pads", List{kLong, kLong}}});
  const Attributes wide = Attrs({{"kernel_shape", List{kLong, kLong}},
                                 {"pads", List{kLong, kLong, 0, 0}}});
  const Attributes narrow =
      Attrs({{"kernel_shape", List{2, 2}}, {"pads", List{1, 1, 0, 0}}});
  return {
      {Node("MatMul"),
       {{{2, 1, 1, 1}, {1, 2, 1, 1}}, {{2, 2, 1, 1}}},
       {{{kSide, 1, 1, 1}, {1, kSide, 1, 1}}, {{kSide, kSide, 1, 1}}}},
      {Node("MatMul"),
       {{{2, 1, 1, 1}, {1, 2, 1, 1}}, {{2, 2, 1, 1}}},
       {{{kSide, 1, 1, 1}, {1, kSide, 1, 1}}, {{kSide, kSide, 1, 1}}},
       DType::kInt32,
       DType::kInt32},
      {Node("MatMul"),
       {{{64, 64}, {64, 64}}, {{64, 64}}},
       {{{4096, 4096}, {4096, 4096}}, {{4096, 4096}}}},
      {Node("MaxPool", window),
       {{{1, 2, 8, 8}}, {{1, 2, 6, 7}}},
       {{{1, 2, kLong, 8}}, {{1, 2, kLong - 2, 7}}}},
      {Node("AveragePool", window),
       {{{1, 2, 8, 8}}, {{1, 2, 6, 7}}},
       {{{1, 2, kLong, 8}}, {{1, 2, kLong - 2, 7}}}},
      {Node("AveragePool", padded),
       {{{1, 1, 1}}, {{1, 1, 2 * kLong - 1}}},
       {{{1, 1, kLong}}, {{1, 1, 3 * kLong - 2}}}},
      {Node("ReduceSum"),
       {{{2, 3, 4}, {1}}, {{2, 1, 4}}, {{}, {1}}},
       {{{kLong, 3, kLong}, {1}}, {{kLong, 1, kLong}}, {{}, {1}}},
       DType::kFloat,
       DType::kInt64},
      {Node("Softmax"), {{{4, 5}}, {{4, 5}}}, {{{kLong, 5}}, {{kLong, 5}}}},
      {Node("Transpose"), {{{4, 5}}, {{5, 4}}}, {{{kLong, 5}}, {{5, kLong}}}},
      {Node("Expand"),
       {{{1, 3}, {2}}, {{2, 3}}, {{}, {2, 3}}},
       {{{1, 3}, {2}}, {{kLong, 3}}, {{}, {kLong, 3}}},
       DType::kFloat,
       DType::kInt64},
      {Node("Concat", Attrs({{"axis", int64_t{0}}})),
       {{{2, 3}, {4, 3}}, {{6, 3}}},
       {{{kLong, 3}, {4, 3}}, {{kLong + 4, 3}}}},
      {Node("Gather"),
       {{{2, 3}, {4}}, {{4, 3}}},
       {{{2, 3}, {kLong}}, {{kLong, 3}}},
       DType::kFloat,
       DType::kInt64},
      {Node("Pad"),
       {{{2, 3}, {4}}, {{3, 3}}, {{}, {1, 0, 0, 0}}},
       {{{2, 3}, {4}}, {{kLong + 2, 3}}, {{}, {kLong, 0, 0, 0}}},
       DType::kFloat,
       DType::kInt64},
      {Node("Add"),
       {{{2, 1}, {1, 2}}, {{2, 2}}},
       {{{kLong, 1}, {1, kLong}}, {{kLong, kLong}}}},
      {Node("MaxPool", narrow),
       {{{1, 1, 8, 8}}, {{1, 1, 8, 8}}},
       {{{1, 1, 8, kLong}}, {{1, 1, 8, kLong}}}},
      {Node("MaxPool", wide),
       {{{1, 1, 8, 8}}, {{1, 1, 9, 9}}},
       {{{1, 1, 8, kLong}}, {{1, 1, 9, kLong + 1}}}},
  };
}

std::vector<TensorMeta> Metas(const std::vector<Dims>& shapes, DType first,
                              DType others) {
  std::vector<TensorMeta> metas;
  for (const Dims& dims : shapes) {
    TensorMeta meta;
    meta.dtype = metas.empty() ? first : others;
    meta.dims = dims;
    meta.elements = 1;
    for (const int64_t size : dims) meta.elements *= size;
    meta.bytes = static_cast<size_t>(meta.elements) * SizeOf(meta.dtype);
    metas.push_back(std::move(meta));
  }
  return metas;
}

TEST(PlanSizeTest, GrowsWithRanksAlone) {
  const auto registry = MakeOpRegistry();
  auto device = MakeDevice("cpu", {}, *registry);
  ASSERT_TRUE(device.ok()) << device.status();
  for (Case& test : Cases()) {
    SCOPED_TRACE(test.node.op + " of " + DimsString(test.large.inputs[0]));
    test.node.input_types.assign(test.small.inputs.size(), test.others);
    test.node.input_types[0] = test.dtype;
    test.node.num_outputs = 1;
    const auto kernel = registry->CreateKernel(test.node, **device);
    ASSERT_TRUE(kernel.ok()) << kernel.status();
    const auto take = [&](const Sizes& sizes, size_t* held) {
      const auto inputs = Metas(sizes.inputs, test.dtype, test.others);
      const auto outputs = Metas(sizes.outputs, test.dtype, test.dtype);
      std::vector<List> host_ints = sizes.host_ints;
      host_ints.resize(inputs.size());
      const size_t before = taken;
      const auto plan = (*kernel)->Plan({inputs, outputs, host_ints});
      const size_t took = taken - before;
      EXPECT_TRUE(plan.ok()) << plan.status();
      *held = plan.ok() ? (*plan)->held_bytes() : 0;
      return took;
    };
    size_t held = 0;
    const size_t small = take(test.small, &held);
    EXPECT_GT(small, 0u);
    const size_t large = take(test.large, &held);
    EXPECT_LE(large, small + held + kFew);
  }
}

// Lists of attributes are what a plan may keep, and then tells.
TEST(PlanSizeTest, CountsTheListsThatAPlanKeeps) {
  constexpr int64_t kChannels = 65536;
  const auto registry = MakeOpRegistry();
  auto device = MakeDevice("cpu", {}, *registry);
  ASSERT_TRUE(device.ok()) << device.status();
  NodeInfo node = WeirNode(
      "Normalize", Attrs({{"mean", std::vector<float>(kChannels, 1)},
                          {"stddev", std::vector<float>(kChannels, 2)}}));
  node.input_types = {DType::kUint8};
  node.num_outputs = 1;
  const auto kernel = registry->CreateKernel(node, **device);
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  const auto input = Metas({{1, 1, kChannels}}, DType::kUint8, DType::kUint8);
  const auto output = Metas({{1, 1, kChannels}}, DType::kFloat, DType::kFloat);
  const std::vector<List> host_ints(1);
  const auto plan = (*kernel)->Plan({input, output, host_ints});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_GE((*plan)->held_bytes(), 2 * kChannels * sizeof(float));
}

// A large product is a library's on a GPU, which has its descriptors.
TEST(PlanSizeTest, CountsALibrarysProductOnCuda) {
  const auto registry = MakeOpRegistry();
  auto device = MakeDevice("cuda", {}, *registry);
  if (Reason(device.status()) == "NO_CUDA_DEVICE") {
    GTEST_SKIP() << device.status();
  }
  ASSERT_TRUE(device.ok()) << device.status();
  NodeInfo node;
  node.name = "product";
  node.op = "MatMul";
  node.opset = 13;
  node.input_types = {DType::kFloat, DType::kFloat};
  node.num_outputs = 1;
  const auto kernel = registry->CreateKernel(node, **device);
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  const auto inputs =
      Metas({{512, 512}, {512, 512}}, DType::kFloat, DType::kFloat);
  const auto output = Metas({{512, 512}}, DType::kFloat, DType::kFloat);
  const std::vector<List> host_ints(2);
  const auto plan = (*kernel)->Plan({inputs, output, host_ints});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_GE((*plan)->held_bytes(), 1000u);
}

}  // namespace
}  // namespace weir
