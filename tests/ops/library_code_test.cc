// What oneDNN generates for convolutions: a plan says how much it holds, has no
// more than a bounded amount, and gives it back. Counted is the memory of
// executable mappings that belong to no file, and what malloc gave out.
#include <gtest/gtest.h>
#include <malloc.h>

#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernels/backend/devices.h"
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
    int64_t kilobytes = 0;
    if (std::sscanf(line.c_str(), "%*x-%*x %4s", access) == 1) {
      counts =
          access[2] == 'x' && line.find_first_of("/[") == std::string::npos;
    } else if (counts &&
               std::sscanf(line.c_str(), "Rss: %" SCNd64, &kilobytes) == 1) {
      bytes += kilobytes * 1024;
    }
  }
  return bytes;
}

// With tables; code alone where a sanitizer has its own malloc.
int64_t HeldBytes() {
  const struct mallinfo2 heap = mallinfo2();
  return CodeBytes() + static_cast<int64_t>(heap.uordblks + heap.hblkhd);
}

struct Case {
  std::vector<Dims> inputs;
  Dims output;
  Attributes attributes;
  DType dtype = DType::kFloat;
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

  // As large as its input, but for the channels.
  static Case Image(int64_t in, int64_t out, int64_t height, int64_t width,
                    int64_t kernel, int64_t dilation = 1) {
    const int64_t pad = kernel / 2 * dilation;
    return {{{1, in, height, width}, {out, in, kernel, kernel}},
            {1, out, height, width},
            Attrs({{"pads", List{pad, pad, pad, pad}},
                   {"dilations", List{dilation, dilation}}})};
  }

  // What these hold together, what they share counted once.
  static int64_t Counted(
      const std::vector<std::unique_ptr<const KernelPlan>>& plans) {
    std::set<const void*> shared;
    size_t held = 0;
    for (const auto& plan : plans) {
      held += plan->held_bytes();
      for (const SharedHold& hold : plan->shared_holds()) {
        if (!shared.insert(hold.object).second) held -= hold.bytes;
      }
    }
    return static_cast<int64_t>(held);
  }

  bool TakesBrgconv() {
    return Plan(Row(400, 2000))->implementation().find("brgconv") !=
           std::string::npos;
  }

  std::unique_ptr<const KernelPlan> Plan(const Case& c, bool once = false) {
    NodeInfo node = Node("Conv", c.attributes);
    node.input_types = {c.dtype, c.dtype};
    const auto meta = [&c](const Dims& dims) {
      TensorMeta made = {.dtype = c.dtype, .dims = dims, .elements = 1};
      for (const int64_t size : dims) made.elements *= size;
      made.bytes = static_cast<size_t>(made.elements) * SizeOf(c.dtype);
      return made;
    };
    const std::vector<TensorMeta> inputs = {meta(c.inputs[0]),
                                            meta(c.inputs[1])};
    const TensorMeta output = meta(c.output);
    const std::vector<List> ints(2);
    const auto kernel = registry_->CreateKernel(node, *device_);
    EXPECT_TRUE(kernel.ok()) << kernel.status();
    auto plan = (*kernel)->Plan({.inputs = inputs,
                                 .outputs = {&output, 1},
                                 .host_ints = ints,
                                 .once = once});
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
      Image(64, 64, 16, 9000, 3),
      Image(64, 64, 16, 9000, 3, 2),
      Image(64, 64, 16, 3000, 3, 3),
      Image(16, 16, 16, 5000, 13),
      Image(16, 16, 16, 3000, 15),
      Image(1000, 8, 16, 2000, 3),
      {{{1, 1024, 16, 5600}, {3, 1024, 3, 1}},
       {1, 3, 16, 800},
       Attrs({{"strides", List{1, 7}}, {"pads", List{1, 0, 1, 0}}})},
      {{{1, 64, 16, 3000}, {64, 64, 3, 3}},
       {1, 64, 16, 3002},
       Attrs({{"pads", List{1, 2, 1, 2}}})},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(DimsString(c.inputs[0]) + " by " + DimsString(c.inputs[1]));
    const int64_t before = HeldBytes();
    auto plan = Plan(c);
    const auto held = static_cast<int64_t>(plan->held_bytes());
    EXPECT_LE(held, kMost + kMiB);
    EXPECT_LE(HeldBytes() - before, held + kMiB) << plan->implementation();
    plan.reset();
    EXPECT_LE(HeldBytes() - before, kMiB);
  }
}

TEST_F(LibraryCodeTest, OfManyPlansIsGivenBack) {
  const int64_t before = CodeBytes();
  for (int64_t kernel = 65; kernel < 465; ++kernel) Plan(Row(64, kernel));
  EXPECT_LE(CodeBytes() - before, kMiB);
}

// It takes longer to generate than what runs once takes without it.
TEST_F(LibraryCodeTest, IsNotMadeToRunOnce) {
  const Case small = Image(16, 16, 16, 16, 3);
  ASSERT_NE(Plan(small)->implementation(), "");
  const auto plan = Plan(small, /*once=*/true);
  EXPECT_EQ(plan->implementation(), "");
  EXPECT_EQ(plan->held_bytes(), 0u);
}

// While one of them lives.
TEST_F(LibraryCodeTest, OfEqualConvolutionsIsShared) {
  if (!TakesBrgconv()) {
    GTEST_SKIP() << "too little code to tell on this processor";
  }
  const auto first = Plan(Row(400, 2000));
  const int64_t one = CodeBytes();
  const auto second = Plan(Row(400, 2000));
  EXPECT_LE(CodeBytes() - one, 64 << 10);
  const std::vector<SharedHold> holds = first->shared_holds();
  const std::vector<SharedHold> others = second->shared_holds();
  ASSERT_EQ(holds.size(), others.size());
  size_t bytes = 0;
  for (size_t i = 0; i < holds.size(); ++i) {
    EXPECT_EQ(holds[i].object, others[i].object);
    bytes += holds[i].bytes;
  }
  EXPECT_LE(bytes, first->held_bytes());
}

// What changes the layouts of operands, too: many small ones are charged.
TEST_F(LibraryCodeTest, OfManyEqualConvolutionsIsNoMoreThanTheyCount) {
  for (const DType dtype : {DType::kFloat16, DType::kFloat}) {
    SCOPED_TRACE(DTypeName(dtype));
    Case small = Image(16, 16, 4, 4, 1);
    small.dtype = dtype;
    const int64_t before = HeldBytes();
    std::vector<std::unique_ptr<const KernelPlan>> plans;
    plans.reserve(200);
    for (int i = 0; i < 200; ++i) plans.push_back(Plan(small));
    EXPECT_LE(HeldBytes() - before, Counted(plans) + kMiB / 4);
  }
}

TEST_F(LibraryCodeTest, OfManyDifferentConvolutionsIsNoMoreThanTheyCount) {
  const int64_t before = HeldBytes();
  std::vector<std::unique_ptr<const KernelPlan>> plans;
  for (int64_t side = 1; side <= 100; ++side) {
    plans.push_back(Plan(Image(16, 16, side, 4, 1)));
  }
  EXPECT_LE(HeldBytes() - before, Counted(plans) + kMiB / 4);
}

TEST_F(LibraryCodeTest, IsTakenForImagesWithLongRows) {
  const Case cases[] = {
      Image(64, 64, 16, 9000, 3),    Image(3, 64, 16, 20000, 3),
      Image(64, 64, 16, 20000, 3),   Image(64, 64, 16, 9000, 3, 2),
      Image(256, 256, 16, 16384, 3), Image(64, 64, 16, 9000, 7)};
  for (const Case& c : cases) {
    SCOPED_TRACE(DimsString(c.inputs[0]) + " by " + DimsString(c.inputs[1]));
    EXPECT_NE(Plan(c)->implementation(), "");
  }
}

// The bound is that of a library that has code for each length of a run: what
// computes without it knows no longest row.
TEST_F(LibraryCodeTest, OfOtherProcessorsIsNotCounted) {
  if (TakesBrgconv()) GTEST_SKIP() << "this processor's code grows with rows";
  const auto plan = Plan(Image(64, 64, 16, 100000, 3));
  EXPECT_NE(plan->implementation(), "");
  EXPECT_LE(plan->held_bytes(), static_cast<size_t>(2 * kMiB));
}

// Two convolutions at each of five sizes, and two more on the way back up: an
// evaluation may hold 256 MiB.
TEST_F(LibraryCodeTest, OfAUNetOfALargePictureFits) {
  std::vector<std::unique_ptr<const KernelPlan>> plans;
  int64_t height = 2160, width = 3840, in = 3;
  for (int64_t channels = 64; channels <= 1024; channels *= 2) {
    plans.push_back(Plan(Image(in, channels, height, width, 3)));
    plans.push_back(Plan(Image(channels, channels, height, width, 3)));
    if (channels < 1024) {
      plans.push_back(Plan(Image(2 * channels, channels, height, width, 3)));
      plans.push_back(Plan(Image(channels, channels, height, width, 3)));
    }
    in = channels;
    height /= 2;
    width /= 2;
  }
  for (const auto& plan : plans) EXPECT_NE(plan->implementation(), "");
  EXPECT_LE(Counted(plans), 256 * kMiB);
}

}  // namespace
}  // namespace weir
