// How soon the CPU's operators end once nobody wants their result: between two
// questions whether it is so, each computes a bounded number of operations,
// however its shapes and attributes share them out.
#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/backend/devices.h"
#include "kernels/device/cpu_team.h"
#include "kernels/ops/registry.h"
#include "tests/ops/op_test.h"

namespace weir {
namespace {

using List = std::vector<int64_t>;

// One thread.
class AskedTeam final : public CpuTeam {
 public:
  explicit AskedTeam(bool gives_up) : gives_up_(gives_up) {}

  int size() const override { return 1; }
  void Run(int64_t n, int64_t,
           absl::FunctionRef<void(int64_t, int64_t)> fn) override {
    pieces_ += n;
    fn(0, n);
  }
  bool GivenUp() override {
    ++questions_;
    return gives_up_;
  }

  int64_t questions() const { return questions_; }
  int64_t pieces() const { return pieces_; }

 private:
  const bool gives_up_;
  int64_t questions_ = 0;
  int64_t pieces_ = 0;
};

TensorMeta MetaOf(DType dtype, const Dims& dims) {
  TensorMeta meta = {.dtype = dtype, .dims = dims, .elements = 1};
  for (const int64_t size : dims) meta.elements *= size;
  meta.bytes = static_cast<size_t>(meta.elements) * SizeOf(dtype);
  return meta;
}

struct Case {
  NodeInfo node;
  DType dtype;
  std::vector<Dims> inputs;
  Dims output;
  std::vector<int64_t> pads = {};  // input 1, known to the host
  DType result = DType::kInvalid;  // that of the inputs
};

TensorMeta OutputOf(const Case& c) {
  return MetaOf(c.result == DType::kInvalid ? c.dtype : c.result, c.output);
}

// Small numbers, none of which is 0, in a period that no side has.
std::vector<std::byte> Filled(DType dtype, const Dims& dims) {
  std::vector<std::byte> bytes(MetaOf(dtype, dims).bytes);
  DispatchType(NumericTypeList(), dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    std::vector<T> period;
    for (uint32_t i = 0; i < 251; ++i) {
      period.push_back(T(static_cast<float>(1 + ((i * 2654435761u) >> 29))));
    }
    const size_t whole = period.size() * sizeof(T);
    for (size_t at = 0; at < bytes.size(); at += whole) {
      std::memcpy(&bytes[at], period.data(),
                  std::min(whole, bytes.size() - at));
    }
  });
  return bytes;
}

class GivenUpTest : public testing::Test {
 protected:
  GivenUpTest()
      : registry_(MakeOpRegistry()),
        device_(*MakeDevice("cpu", {.cpu_threads = 1}, *registry_)) {}

  // Plans it; `operations` of it are what it says it takes.
  std::unique_ptr<const KernelPlan> Plan(const Case& c, int64_t* operations) {
    NodeInfo node = c.node;
    node.input_types.assign(c.inputs.size(), c.dtype);
    std::vector<TensorMeta> inputs;
    for (const Dims& dims : c.inputs) inputs.push_back(MetaOf(c.dtype, dims));
    const TensorMeta output = OutputOf(c);
    std::vector<std::vector<int64_t>> ints(inputs.size());
    if (!c.pads.empty()) ints[1] = c.pads;
    const PlanArgs args = {inputs, {&output, 1}, ints};
    *operations = registry_->Find(node.domain, node.op)
                      ->cost(node, Pace::kInTurn, args)
                      .operations;
    auto kernel = registry_->CreateKernel(node, *device_);
    EXPECT_TRUE(kernel.ok()) << kernel.status();
    kernels_.push_back(*std::move(kernel));
    auto plan = kernels_.back()->Plan(args);
    EXPECT_TRUE(plan.ok()) << plan.status();
    return *std::move(plan);
  }

  // The output's bytes. Without a team nobody is asked.
  std::vector<std::byte> Run(const Case& c, const KernelPlan& plan,
                             CpuTeam* team) {
    std::vector<std::vector<std::byte>> memory;
    memory.reserve(c.inputs.size());
    std::vector<const void*> inputs;
    for (const Dims& dims : c.inputs) {
      inputs.push_back(memory.emplace_back(Filled(c.dtype, dims)).data());
    }
    std::vector<std::byte> output(OutputOf(c).bytes);
    std::vector<std::byte> scratch(plan.scratch_bytes() + 1);
    void* const written = output.data();
    const auto stream = device_->CreateStream(0);
    EXPECT_TRUE(stream.ok()) << stream.status();
    const absl::Status status = plan.Run({.stream = **stream,
                                          .team = team,
                                          .inputs = inputs,
                                          .outputs = {&written, 1},
                                          .scratch = scratch.data(),
                                          .random = {}});
    EXPECT_TRUE(status.ok()) << status;
    return output;
  }

  // Runs it asked and not; the results are the same. Gives how often it asked.
  int64_t QuestionsOf(const Case& c, const KernelPlan& plan) {
    AskedTeam team(false);
    // Of so many bytes gtest would print the most.
    EXPECT_TRUE(Run(c, plan, &team) == Run(c, plan, nullptr))
        << "questions change the result";
    return team.questions();
  }

  const std::unique_ptr<OpRegistry> registry_;
  const std::unique_ptr<Device> device_;
  std::vector<std::unique_ptr<const Kernel>> kernels_;  // plans refer to them
};

// Operations of a product are of 0.1 ns, and an element counts as ten of them.
int64_t MostBetween(const NodeInfo& node) {
  const bool products = node.op == "MatMul" || node.op == "Conv";
  return products ? 10'000'000 : 2'000'000;
}

TEST_F(GivenUpTest, AsksWithinPlanesWindowsAndTiles) {
  const Attributes window = Attrs({{"kernel_shape", List{65, 65}}});
  const Case cases[] = {
      {Node("MaxPool", window),
       DType::kFloat,
       {{1, 1, 128, 128}},
       {1, 1, 64, 64}},
      {Node("AveragePool", window),
       DType::kFloat,
       {{1, 1, 128, 128}},
       {1, 1, 64, 64}},
      {Node("Conv"),
       DType::kDouble,
       {{1, 1, 128, 128}, {1, 1, 65, 65}},
       {1, 1, 64, 64}},
      {Node("MatMul"), DType::kInt64, {{256, 256}, {256, 256}}, {256, 256}},
      {Node("MatMul"), DType::kInt32, {{1 << 17, 64}, {64, 64}}, {1 << 17, 64}},
      // A band of columns, and a run of runs.
      {Node("ReduceMax", Attrs({{"axes", List{0}}}), 13),
       DType::kUint8,
       {{1 << 23, 2}},
       {1, 2}},
      {Node("ReduceMax", Attrs({{"axes", List{0, 2}}}), 13),
       DType::kUint8,
       {{1 << 19, 2, 16}},
       {1, 2, 1}},
      {Node("Conv"),
       DType::kFloat,
       {{1, 0, 4096, 4096}, {1, 0, 1, 1}},
       {1, 1, 4096, 4096}},
      // Most of it are the conversions to float and back.
      {Node("Conv"),
       DType::kFloat16,
       {{1, 1, 4096, 4096}, {1, 1, 1, 1}},
       {1, 1, 4096, 4096}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.node.op);
    int64_t operations = 0;
    const auto plan = Plan(c, &operations);
    ASSERT_GT(operations, MostBetween(c.node));
    const int64_t questions = QuestionsOf(c, *plan);
    EXPECT_LE(operations / std::max<int64_t>(1, questions),
              MostBetween(c.node));
    AskedTeam none(true);
    Run(c, *plan, &none);
    EXPECT_LE(none.questions(), questions / 4);
  }
}

// One row, and one band of two.
TEST_F(GivenUpTest, AsksWithinOneRow) {
  constexpr int64_t kMostBetween = 2'000'000;
  constexpr int64_t kLength = 1 << 23;
  const auto padded = [](const char* mode) {
    return Case{Node("Pad", Attrs({{"mode", std::string(mode)}})),
                DType::kInt64,
                {{kLength}, {2}},
                {2 * kLength},
                {kLength / 2, kLength / 2}};
  };
  const Case cases[] = {
      padded("constant"),
      padded("edge"),
      padded("reflect"),
      padded("wrap"),
      {Node("Transpose"), DType::kUint8, {{kLength, 2}}, {2, kLength}},
      {Node("Concat", Attrs({{"axis", int64_t{0}}})),
       DType::kUint8,
       {{kLength}},
       {kLength}},
      {WeirNode("RandomUniform", Attrs({{"shape", List{1, kLength}}})),
       DType::kFloat,
       {},
       {1, kLength}},
      // Its scale is written out for a row.
      {Node("LayerNormalization", Attrs({{"axis", int64_t{0}}})),
       DType::kFloat,
       {{2, 2, 2, 2, 2, 2, 2, kLength / 128}, {1}},
       {2, 2, 2, 2, 2, 2, 2, kLength / 128}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.node.op + " " + c.node.attributes.String("mode", ""));
    int64_t operations = 0;
    const auto plan = Plan(c, &operations);
    ASSERT_GT(operations, 4 * kMostBetween);
    const int64_t questions = QuestionsOf(c, *plan);
    EXPECT_LE(operations / std::max<int64_t>(1, questions), kMostBetween);
    AskedTeam none(true);
    Run(c, *plan, &none);
    EXPECT_LE(none.questions(), questions / 4);
  }
}

// One picture of two rows, of one, and of a single pixel; one row; and a run of
// one output's.
TEST_F(GivenUpTest, AsksWithinOnePictureAndOneRow) {
  constexpr int64_t kLength = 1 << 22;
  constexpr int64_t kChannels = 1 << 16;
  const auto normalize = [](const char* layout, int64_t dtype) {
    return WeirNode("Normalize", Attrs({{"output_layout", std::string(layout)},
                                        {"dtype", dtype}}));
  };
  const Dims wide = {2, kLength / kChannels, kChannels};
  const Dims planes = {kChannels, 2, kLength / kChannels};
  const Case cases[] = {
      {normalize("CHW", 1), DType::kUint8, {wide}, planes, {}, DType::kFloat},
      {normalize("CHW", 2), DType::kUint8, {wide}, planes, {}, DType::kUint8},
      {normalize("HWC", 1), DType::kUint8, {wide}, wide, {}, DType::kFloat},
      {WeirNode("Resize", Attrs({{"resize_x", 64.0f}, {"resize_y", 64.0f}})),
       DType::kUint8,
       {{2, 1 << 14, 8}},
       {64, 64, 8}},
      {WeirNode("Crop"), DType::kUint8, {{1, kLength, 2}}, {1, kLength, 2}},
      {WeirNode("Flip"), DType::kUint8, {{1, kLength, 2}}, {1, kLength, 2}},
      {WeirNode("Flip"),
       DType::kUint8,
       {{1, 1, 2 * kLength}},
       {1, 1, 2 * kLength}},
      {Node("ArgMax"), DType::kUint8, {{kLength}}, {1}, {}, DType::kInt64},
      {Node("ArgMax"),
       DType::kUint8,
       {{kLength, 2}},
       {1, 2},
       {},
       DType::kInt64},
      {Node("ReduceMax", Attrs({{"axes", List{0, 2}}}), 13),
       DType::kUint8,
       {{2, 2, kLength}},
       {1, 2, 1}},
      {Node("ReduceSum", Attrs({{"axes", List{0}}}), 11),
       DType::kInt32,
       {{0, 2 * kLength}},
       {1, 2 * kLength}},
      {Node("Softmax"), DType::kFloat, {{kLength}}, {kLength}},
      {Node("Softmax"), DType::kDouble, {{kLength}}, {kLength}},
      {Node("Softmax"), DType::kFloat16, {{kLength}}, {kLength}},
      {Node("Softmax", Attrs({{"axis", int64_t{0}}}), 13),
       DType::kFloat,
       {{kLength, 2}},
       {kLength, 2}},
      {Node("LayerNormalization"),
       DType::kFloat,
       {{kLength}, {kLength}},
       {kLength}},
      {Node("LayerNormalization"),
       DType::kDouble,
       {{kLength}, {kLength}},
       {kLength}},
      {Node("LayerNormalization"),
       DType::kFloat16,
       {{kLength}, {kLength}},
       {kLength}},
      {Node("BatchNormalization"),
       DType::kFloat,
       {{1, 1, kLength}, {1}, {1}, {1}, {1}},
       {1, 1, kLength}},
      {Node("MatMul"), DType::kFloat, {{2048, 0}, {0, 4096}}, {2048, 4096}},
      {Node("MatMul"), DType::kInt32, {{1, 0}, {0, 1 << 23}}, {1, 1 << 23}},
      {Node("Max"), DType::kUint8, std::vector<Dims>(8192, Dims{1024}), {1024}},
      {Node("Min"),
       DType::kFloat16,
       std::vector<Dims>(8192, Dims{1024}),
       {1024}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(testing::PrintToString(c.inputs[0]) + " " + c.node.op +
                 " of type " + std::to_string(static_cast<int>(c.dtype)));
    int64_t operations = 0;
    const auto plan = Plan(c, &operations);
    ASSERT_GT(operations, 2 * MostBetween(c.node));
    const int64_t questions = QuestionsOf(c, *plan);
    EXPECT_LE(operations / std::max<int64_t>(1, questions),
              MostBetween(c.node));
    AskedTeam none(true);
    Run(c, *plan, &none);
    EXPECT_LE(none.questions(), questions / 4);
  }
}

// Of this thread alone, in seconds: other programs do not count.
double ThreadSeconds() {
  timespec time = {};
  EXPECT_EQ(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time), 0);
  return static_cast<double>(time.tv_sec) +
         static_cast<double>(time.tv_nsec) * 1e-9;
}

// One column takes no more than its share of 64, give or take.
TEST_F(GivenUpTest, NarrowProductsTakeWhatTheyAreChargedFor) {
  const auto seconds_of_operation = [&](int64_t rows, int64_t columns) {
    constexpr int64_t kDepth = 512;
    const Case product = {Node("MatMul"),
                          DType::kInt64,
                          {{rows, kDepth}, {kDepth, columns}},
                          {rows, columns}};
    int64_t operations = 0;
    const auto plan = Plan(product, &operations);
    AskedTeam team(false);
    double least = 1e9;
    for (int i = 0; i < 3; ++i) {
      const double begin = ThreadSeconds();
      Run(product, *plan, &team);
      least = std::min(least, ThreadSeconds() - begin);
    }
    return least / static_cast<double>(operations);
  };
  EXPECT_LT(seconds_of_operation(8192, 1), 16 * seconds_of_operation(512, 64));
}

// One window, one plane.
TEST_F(GivenUpTest, AsksWithinOneWindow) {
  constexpr int64_t kMostBetween = 2'100'000;
  constexpr int64_t kSide = 4096;
  const auto window = [](List kernel) {
    return Attrs({{"kernel_shape", std::move(kernel)}});
  };
  const Case cases[] = {
      {Node("MaxPool", window({kSide, kSide})),
       DType::kUint8,
       {{1, 1, kSide, kSide}},
       {1, 1, 1, 1}},
      {Node("MaxPool", window({kSide * kSide})),
       DType::kUint8,
       {{1, 1, kSide * kSide}},
       {1, 1, 1}},
      {Node("AveragePool", window({kSide, kSide})),
       DType::kFloat16,
       {{1, 1, kSide, kSide}},
       {1, 1, 1, 1}},
      {Node("GlobalAveragePool"),
       DType::kFloat16,
       {{1, 1, kSide, kSide}},
       {1, 1, 1, 1}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.node.op);
    int64_t operations = 0;
    const auto plan = Plan(c, &operations);
    ASSERT_GE(operations, 4 * kMostBetween);
    EXPECT_LE(operations / std::max<int64_t>(1, QuestionsOf(c, *plan)),
              kMostBetween);
  }
}

// Computes the first piece alone.
class FirstPieceTeam final : public CpuTeam {
 public:
  int size() const override { return 1; }
  void Run(int64_t n, int64_t,
           absl::FunctionRef<void(int64_t, int64_t)> fn) override {
    pieces_ += n;
    fn(0, 1);
  }
  bool GivenUp() override {
    ++questions_;
    return false;
  }

  int64_t questions() const { return questions_; }
  int64_t pieces() const { return pieces_; }

 private:
  int64_t questions_ = 0;
  int64_t pieces_ = 0;
};

TEST_F(GivenUpTest, AsksBetweenCallsOfTheLibrary) {
  constexpr int64_t kSide = 4608;
  int64_t operations = 0;
  const Case product = {Node("MatMul"),
                        DType::kFloat,
                        {{kSide, kSide}, {kSide, kSide}},
                        {kSide, kSide}};
  const auto plan = Plan(product, &operations);
  FirstPieceTeam team;
  std::vector<std::vector<float>> memory(
      2, std::vector<float>(size_t{kSide * kSide}, 1.0f));
  memory.emplace_back(size_t{kSide * kSide});
  const void* const inputs[] = {memory[0].data(), memory[1].data()};
  void* const output = memory[2].data();
  const auto stream = device_->CreateStream(0);
  ASSERT_TRUE(plan->Run({.stream = **stream,
                         .team = &team,
                         .inputs = inputs,
                         .outputs = {&output, 1},
                         .random = {}})
                  .ok());
  ASSERT_GT(team.pieces(), 0);
  ASSERT_GT(team.questions(), 0);
  EXPECT_LE(operations / team.pieces() / team.questions(), 2'500'000'000);
  const auto made = std::count(memory[2].begin(), memory[2].end(), kSide);
  EXPECT_GE(made, kSide * kSide / team.pieces());
  EXPECT_EQ(made + std::count(memory[2].begin(), memory[2].end(), 0),
            kSide * kSide);
}

// Long rows, with padding about them and without, and a large image.
TEST_F(GivenUpTest, AsksBetweenCallsOfAConvolution) {
  constexpr int64_t kMostBetween = 2'500'000'000;
  const Case cases[] = {
      {Node("Conv"),
       DType::kFloat,
       {{1, 64, 12000}, {63, 64, 4096}},
       {1, 63, 7905}},
      {Node("Conv", Attrs({{"pads", List{1024, 1023}}})),
       DType::kFloat,
       {{1, 64, 8192}, {63, 64, 2048}},
       {1, 63, 8192}},
      {Node("Conv"),
       DType::kFloat,
       {{1, 256, 128, 128}, {256, 256, 11, 11}},
       {1, 256, 118, 118}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(testing::PrintToString(c.inputs[0]));
    int64_t operations = 0;
    const auto plan = Plan(c, &operations);
    EXPECT_NE(plan->implementation(), "");
    ASSERT_GT(operations, 16 * kMostBetween);
    FirstPieceTeam team;
    Run(c, *plan, &team);
    // The first question precedes the new layout of the input.
    EXPECT_LE(operations / std::max<int64_t>(1, team.pieces()) /
                  std::max<int64_t>(1, team.questions() - 1),
              kMostBetween);
  }
}

// Rows that see padding alone do not keep the others from being cut.
TEST_F(GivenUpTest, AsksBetweenCallsOfAPaddedConvolution) {
  constexpr int64_t kMostBetween = 2'500'000'000;
  constexpr int64_t kSide = 128, kKernel = 31, kPad = 200, kChannels = 32;
  constexpr int64_t kWidth = kSide - kKernel + 1;
  constexpr int64_t kSeeing = kSide + kKernel - 1;  // rows
  int64_t operations = 0;
  const auto plan = Plan(
      {Node("Conv", Attrs({{"pads", List{kPad, 0, kPad, 0}}})),
       DType::kFloat,
       {{1, kChannels, kSide, kSide}, {kChannels, kChannels, kKernel, kKernel}},
       {1, kChannels, 2 * kPad + kWidth, kWidth}},
      &operations);
  EXPECT_NE(plan->implementation(), "");
  AskedTeam team(true);
  const void* const inputs[] = {&team, &team};  // never read
  void* const output = &team;                   // nor written
  std::vector<std::byte> scratch(plan->scratch_bytes() + 1);
  const auto stream = device_->CreateStream(0);
  ASSERT_TRUE(plan->Run({.stream = **stream,
                         .team = &team,
                         .inputs = inputs,
                         .outputs = {&output, 1},
                         .scratch = scratch.data(),
                         .random = {}})
                  .ok());
  constexpr int64_t kProducts =
      kSeeing * kWidth * kChannels * kChannels * kKernel * kKernel;
  EXPECT_GT(kProducts, 4 * kMostBetween);
  EXPECT_LE(kProducts / std::max<int64_t>(1, team.pieces()), kMostBetween);
}

// The parts of a row lie elsewhere where channels lie last.
TEST_F(GivenUpTest, PartsOfARowMakeTheWholeInBothLayouts) {
  constexpr int64_t kChannels = 64, kIn = 2400, kKernel = 1024;
  constexpr int64_t kBefore = 1500, kAfter = 1100;
  constexpr int64_t kOut = kBefore + kIn + kAfter - kKernel + 1;
  const auto fill = [](std::vector<float>& to) {
    for (size_t i = 0; i < to.size(); ++i) {
      to[i] = static_cast<float>(i * i % 7 % 3) - 1;
    }
  };
  std::vector<float> x(kChannels * kIn), x_last(x.size());
  std::vector<float> w(kChannels * kChannels * kKernel);
  fill(x);
  fill(w);
  for (int64_t c = 0; c < kChannels; ++c) {
    for (int64_t i = 0; i < kIn; ++i) {
      x_last[static_cast<size_t>(i * kChannels + c)] =
          x[static_cast<size_t>(c * kIn + i)];
    }
  }
  NodeInfo node = Node("Conv", Attrs({{"pads", List{0, kBefore, 0, kAfter}}}));
  node.input_types = {DType::kFloat, DType::kFloat};
  const auto kernel = registry_->CreateKernel(node, *device_);
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  const auto run = [&](Layout layout, const std::vector<float>& from) {
    TensorMeta inputs[] = {
        MetaOf(DType::kFloat, {1, kChannels, 1, kIn}),
        MetaOf(DType::kFloat, {kChannels, kChannels, 1, kKernel})};
    TensorMeta output = MetaOf(DType::kFloat, {1, kChannels, 1, kOut});
    inputs[0].layout = output.layout = layout;
    const std::vector<std::vector<int64_t>> ints(2);
    const auto plan = (*kernel)->Plan({inputs, {&output, 1}, ints});
    EXPECT_TRUE(plan.ok()) << plan.status();
    std::vector<float> y(kChannels * kOut, -0.5f);
    std::vector<std::byte> scratch((*plan)->scratch_bytes() + 1);
    const void* const read[] = {from.data(), w.data()};
    void* const written = y.data();
    AskedTeam team(false);
    const auto stream = device_->CreateStream(0);
    EXPECT_TRUE((*plan)
                    ->Run({.stream = **stream,
                           .team = &team,
                           .inputs = read,
                           .outputs = {&written, 1},
                           .scratch = scratch.data(),
                           .random = {}})
                    .ok());
    EXPECT_GT(team.pieces(), 1);
    return y;
  };
  const std::vector<float> y = run(Layout::kRowMajor, x);
  const std::vector<float> y_last = run(Layout::kChannelsLast, x_last);
  for (int64_t c = 0; c < kChannels; ++c) {
    for (int64_t i = 0; i < kOut; ++i) {
      // Whole numbers: any order of summing up gives the same.
      ASSERT_EQ(y[static_cast<size_t>(c * kOut + i)],
                y_last[static_cast<size_t>(i * kChannels + c)])
          << "channel " << c << " at " << i;
    }
  }
}

// A product of few rows and columns is cut along what it sums up.
TEST_F(GivenUpTest, DeepProductsAreSummedInParts) {
  constexpr int64_t kRows = 128, kColumns = 96, kDepth = 250'000;
  int64_t operations = 0;
  const Case product = {Node("MatMul"),
                        DType::kFloat,
                        {{kRows, kDepth}, {kDepth, kColumns}},
                        {kRows, kColumns}};
  const auto plan = Plan(product, &operations);
  std::vector<float> a(kRows * kDepth, 1.0f), b(kDepth * kColumns, 1.0f);
  std::vector<float> c(kRows * kColumns);
  // The ends of a row and of a column count, too.
  for (int64_t i = 0; i < kRows; ++i) {
    a[static_cast<size_t>((i + 1) * kDepth - 1)] = static_cast<float>(i);
  }
  for (int64_t j = 0; j < kColumns; ++j) b[static_cast<size_t>(j)] = 3;
  AskedTeam team(false);
  const void* const inputs[] = {a.data(), b.data()};
  void* const output = c.data();
  const auto stream = device_->CreateStream(0);
  ASSERT_TRUE(plan->Run({.stream = **stream,
                         .team = &team,
                         .inputs = inputs,
                         .outputs = {&output, 1},
                         .random = {}})
                  .ok());
  EXPECT_LE(operations / std::max<int64_t>(1, team.questions()), 2'500'000'000);
  for (int64_t i = 0; i < kRows; ++i) {
    for (int64_t j = 0; j < kColumns; ++j) {
      ASSERT_EQ(c[static_cast<size_t>(i * kColumns + j)],
                static_cast<float>(kDepth - 2 + 3 + i));
    }
  }
}

// oneDNN is not asked within a call.
TEST_F(GivenUpTest, NoCallOfTheLibraryTakesMinutes) {
  constexpr int64_t kSide = 16384;
  int64_t operations = 0;
  const Case product = {Node("MatMul"),
                        DType::kFloat,
                        {{kSide, kSide}, {kSide, kSide}},
                        {kSide, kSide}};
  const auto plan = Plan(product, &operations);
  AskedTeam team(true);
  const void* const inputs[] = {&team, &team};  // never read
  void* const output = &team;                   // nor written
  const auto stream = device_->CreateStream(0);
  ASSERT_TRUE(plan->Run({.stream = **stream,
                         .team = &team,
                         .inputs = inputs,
                         .outputs = {&output, 1},
                         .random = {}})
                  .ok());
  EXPECT_LE(operations / std::max<int64_t>(1, team.pieces()), 20'000'000'000);

  const auto row = [&](int64_t in, int64_t kernel) {
    return Plan({Node("Conv"),
                 DType::kFloat,
                 {{1, 1, in}, {1, 1, kernel}},
                 {1, 1, in - kernel + 1}},
                &operations)
        ->implementation();
  };
  EXPECT_NE(row(1 << 12, 1 << 11), "");
  EXPECT_EQ(row(1 << 20, 1 << 19), "") << "our own loops ask, the library not";
  // One row of the output, which needs two of the input, is not cut.
  const auto pair = [&](int64_t in) {
    return Plan({Node("Conv"),
                 DType::kFloat,
                 {{1, 64, 2, in}, {63, 64, 2, 2048}},
                 {1, 63, 1, in - 2047}},
                &operations)
        ->implementation();
  };
  EXPECT_NE(pair(4096), "");
  EXPECT_EQ(pair(122'000), "");
  // Nor are many positions under many taps, of one channel too.
  const auto thin = [&](int64_t taps) {
    return Plan({Node("Conv"),
                 DType::kFloat,
                 {{1, 1, 2, 2 * taps}, {1, 1, 2, taps}},
                 {1, 1, 1, taps + 1}},
                &operations)
        ->implementation();
  };
  EXPECT_NE(thin(1024), "");
  EXPECT_EQ(thin(int64_t{1} << 17), "");
}

}  // namespace
}  // namespace weir
