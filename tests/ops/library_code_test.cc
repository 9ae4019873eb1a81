// What oneDNN generates for convolutions: a plan says how much it holds, has no
// more than a bounded amount, and gives it back. Counted is the memory of
// executable mappings that belong to no file.
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/device/devices.h"
#include "kernels/ops/registry.h"
#include "tests/ops/op_test.h"

namespace weir {
namespace {

using List = std::vector<int64_t>;

int64_t CodeBytes() {
  std::ifstream mappings("/proc/self/smaps");
  int64_t bytes = 0;
  bool counts = false;
  for (std::string line; std::getline(mappings, line);) {
    char access[5] = {};
    long long kilobytes = 0;
    if (std::sscanf(line.c_str(), "%*x-%*x %4s", access) == 1) {
      counts =
          access[2] == 'x' && line.find_first_of("/[") == std::string::npos;
    } else if (counts &&
               std::sscanf(line.c_str(), "Rss: %lld", &kilobytes) == 1) {
      bytes += kilobytes * 1024;
    }
  }
  return bytes;
}

struct Case {
  std::vector<Dims> inputs;
  Dims output;
  Attributes attributes;
};

class LibraryCodeTest : public testing::Test {
 protected:
  LibraryCodeTest()
      : registry_(MakeOpRegistry()),
        device_(*MakeDevice("cpu", {.cpu_threads = 1}, *registry_)) {
    Plan(Row(64, 3));  // what oneDNN keeps once and for all
  }

  static Case Row(int64_t out, int64_t kernel) {
    return {{{1, 1, out + kernel - 1}, {1, 1, kernel}}, {1, 1, out}, {}};
  }

  std::unique_ptr<const KernelPlan> Plan(const Case& c) {
    NodeInfo node = Node("Conv", c.attributes);
    node.input_types = {DType::kFloat, DType::kFloat};
    const auto meta = [](const Dims& dims) {
      TensorMeta made = {.dtype = DType::kFloat, .dims = dims, .elements = 1};
      for (const int64_t size : dims) made.elements *= size;
      made.bytes = static_cast<size_t>(made.elements) * sizeof(float);
      return made;
    };
    const std::vector<TensorMeta> inputs = {meta(c.inputs[0]),
                                            meta(c.inputs[1])};
    const TensorMeta output = meta(c.output);
    const std::vector<List> ints(2);
    const auto kernel = registry_->CreateKernel(node, *device_);
    EXPECT_TRUE(kernel.ok()) << kernel.status();
    auto plan = (*kernel)->Plan({inputs, {&output, 1}, ints});
    EXPECT_TRUE(plan.ok()) << plan.status();
    return *std::move(plan);
  }

  const std::unique_ptr<OpRegistry> registry_;
  const std::unique_ptr<Device> device_;
};

constexpr int64_t kMiB = 1 << 20;

TEST_F(LibraryCodeTest, IsHeldAsFarAsThePlanSaysAndGivenBack) {
  constexpr int64_t kMost = 128 * kMiB;
  const Case cases[] = {
      Row(64, 1 << 20),
      Row(64, 1 << 14),
      Row(1 << 20, 3),
      {{{1, 1, 1 << 20}, {1, 1, 3}},
       {1, 1, 1 << 20},
       Attrs({{"pads", List{1, 1}}})},
      {{{1, 64, 8192}, {63, 64, 2048}},
       {1, 63, 8192},
       Attrs({{"pads", List{1024, 1023}}})},
      {{{1, 1000, 8000}, {64, 1000, 500}},
       {1, 64, 8016},
       Attrs({{"pads", List{4000, 4000}}, {"dilations", List{16}}})},
      {{{1, 3, 64, 3000}, {64, 3, 7, 7}},
       {1, 64, 64, 3000},
       Attrs({{"pads", List{3, 3, 3, 3}}})},
      {{{1, 1, 4, 1 << 20}, {1, 1, 3, 3}}, {1, 1, 2, (1 << 20) - 2}, {}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(DimsString(c.inputs[0]) + " by " + DimsString(c.inputs[1]));
    const int64_t before = CodeBytes();
    auto plan = Plan(c);
    const auto held = static_cast<int64_t>(plan->held_bytes());
    EXPECT_LE(held, kMost + kMiB);
    EXPECT_LE(CodeBytes() - before, held + kMiB) << plan->implementation();
    plan.reset();
    EXPECT_LE(CodeBytes() - before, kMiB);
  }
}

TEST_F(LibraryCodeTest, OfManyPlansIsGivenBack) {
  const int64_t before = CodeBytes();
  for (int64_t kernel = 65; kernel < 465; ++kernel) Plan(Row(64, kernel));
  EXPECT_LE(CodeBytes() - before, kMiB);
}

// While one of them lives.
TEST_F(LibraryCodeTest, OfEqualConvolutionsIsShared) {
  const auto first = Plan(Row(400, 2000));
  if (first->implementation().find("brgconv") == std::string::npos) {
    GTEST_SKIP() << "too little code to tell on this processor";
  }
  const int64_t one = CodeBytes();
  const auto second = Plan(Row(400, 2000));
  EXPECT_LE(CodeBytes() - one, 64 << 10);
  ASSERT_EQ(first->shared_holds().size(), 1u);
  ASSERT_EQ(second->shared_holds().size(), 1u);
  EXPECT_EQ(first->shared_holds()[0].object, second->shared_holds()[0].object);
  EXPECT_LE(first->shared_holds()[0].bytes, first->held_bytes());
}

}  // namespace
}  // namespace weir
