// What operators say they take (OpDef::cost). Scratch memory is compared with
// what plans ask for by every test of an operator (op_test.h); how many
// operations there are is held here: an operator's own count by an example, and
// one that goes by sizes of tensors by having no attribute that loops go by.
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/saturating.h"
#include "kernels/ops/registry.h"
#include "tests/ops/op_test.h"

namespace weir {
namespace {

using Cost = decltype(OpDef::cost);

constexpr int64_t kVast = int64_t{1} << 62;

bool GoesBySizes(const OpDef& def) {
  return def.cost == LinearCost || def.cost == OutputCost ||
         def.cost == RowwiseCost || def.cost == ElementwiseCost;
}

TensorMeta Meta(DType dtype, const Dims& dims) {
  TensorMeta meta;
  meta.dtype = dtype;
  meta.dims = dims;
  meta.elements = 1;
  for (const int64_t size : dims) meta.elements *= size;
  meta.bytes = static_cast<size_t>(meta.elements) * SizeOf(dtype);
  return meta;
}

struct Example {
  NodeInfo node;
  std::vector<Dims> inputs;
  std::vector<Dims> outputs;
  // Beside one for each element of inputs and outputs.
  int64_t operations = 0;
  DType dtype = DType::kFloat;
  std::vector<std::vector<int64_t>> host_ints = {};
  bool once = false;
};

// From the beginning to the end of one axis of three.
Example SliceBy(int64_t step, const Dims& input, const Dims& output,
                int64_t operations) {
  const int64_t most = std::numeric_limits<int64_t>::max();
  return {
      .node = Node("Slice"),
      .inputs = {input, {1}, {1}, {1}, {1}},
      .outputs = {output},
      .operations = operations,
      .host_ints = {
          {}, {step > 0 ? 0 : most}, {step > 0 ? most : -most}, {2}, {step}}};
}

std::vector<Example> Examples() {
  using List = std::vector<int64_t>;
  const Attributes window = Attrs({{"kernel_shape", List{3, 2}}});
  const Attributes beyond = Attrs({{"kernel_shape", List{1 << 30, 1 << 30}},
                                   {"dilations", List{1, 3}},
                                   {"pads", List{1 << 30, 1 << 30, 0, 0}}});
  const auto spin = [](int64_t microseconds) {
    return WeirNode("Spin", Attrs({{"microseconds", microseconds}}));
  };
  const auto resize = [](std::string interpolation) {
    return WeirNode("Resize",
                    Attrs({{"resize_x", 10.0f},
                           {"resize_y", 2.0f},
                           {"interp_type", std::move(interpolation)}}));
  };
  std::vector<Example> examples = {
      // Each element of operands and result takes a CPU as long as ten
      // products.
      {Node("MatMul"), {{4, 2, 3}, {3, 5}}, {{4, 2, 5}}, 40 * 3 + 9 * 79},
      {Node("MatMul"),
       {{4, 2, 3}, {3, 5}},
       {{4, 2, 5}},
       40 * 3 + 99 * 79,
       DType::kFloat16},
      // All of A's matrices share B: they are one.
      {Node("MatMul"), {{4, 1, 1}, {1, 1, 1}}, {{4, 1, 1}}, 4 + 9 * 9},
      {Node("MatMul"), {{7}, {7}}, {{}}, 7 + 9 * 15},
      {Node("MatMul"),
       {{1 << 16, 1, 1, 8}, {1, 1 << 16, 8, 1}},
       {{1 << 16, 1 << 16, 1, 1}},
       (int64_t{8 + 500} << 32) + 9 * ((int64_t{1} << 32) + (1 << 20))},
      {Node("MatMul"),
       {{6, 2, 3}, {6, 3, 5}},
       {{6, 2, 5}},
       60 * 3 + 6 * 500 + 9 * 186},
      {Node("Gemm"), {{2, 7}, {7, 3}}, {{2, 3}}, 6 * 7 + 9 * 41},
      {Node("Gemm", Attrs({{"transA", int64_t{1}}})),
       {{7, 2}, {7, 3}},
       {{2, 3}},
       6 * 7 + 9 * 41},
      // On the CPU each tap of each picture, too, and each picture; elements
      // that are moved take as long as ten products.
      {Node("Conv"),
       {{2, 3, 8, 8}, {4, 3, 3, 3}},
       {{2, 4, 6, 6}},
       288 * 27 + 2 * 108 * 20 + 2 * 50'000 + 9 * (384 + 108 + 288)},
      {Node("Conv", Attrs({{"group", int64_t{3}}})),
       {{1, 3, 8}, {6, 1, 5}},
       {{1, 6, 4}},
       24 * 5 + 30 * 20 + 50'000 + 9 * (24 + 30 + 24)},
      // Without the library each product takes as long as five.
      {.node = Node("Conv"),
       .inputs = {{2, 3, 8, 8}, {4, 3, 3, 3}},
       .outputs = {{2, 4, 6, 6}},
       .operations = 5 * 288 * 27 + 2 * 108 * 20 + 9 * (384 + 108 + 288),
       .once = true},
      {Node("Conv"),
       {{1, 3, 8}, {6, 3, 5}},
       {{1, 6, 4}},
       24 * 15 + 90 * 20 + 9 * (24 + 90 + 24),
       DType::kDouble},
      // Each product waits for a line of the input if they lie apart, or else
      // the first of each row.
      {Node("Conv", Attrs({{"strides", List{1, 512}}})),
       {{1, 4, 4096, 512}, {16, 4, 1, 1}},
       {{1, 16, 4096, 1}},
       65536 * 4 * (1 + 2 * 20) + 64 * 20 + 9 * ((1 << 23) + 64 + 65536),
       DType::kDouble},
      {.node = Node("Conv", Attrs({{"strides", List{1, 512}}})),
       .inputs = {{1, 4, 4096, 512}, {16, 4, 1, 1}},
       .outputs = {{1, 16, 4096, 1}},
       .operations =
           65536 * 4 * (5 + 10 * 20) + 64 * 20 + 9 * ((1 << 23) + 64 + 65536),
       .once = true},
      {Node("Conv", Attrs({{"dilations", List{512}}})),
       {{1, 1, 1 << 18}, {1, 1, 512}},
       {{1, 1, 512}},
       512 * (512 + 2 * 20) + 512 * 20 + 9 * ((1 << 18) + 512 + 512),
       DType::kDouble},
      {Node("Conv"),
       {{1, 1 << 18, 1}, {4, 1 << 18, 1}},
       {{1, 4, 1}},
       (4 << 18) + 2 * 4 * 20 + (4 << 18) * 20 +
           9 * ((1 << 18) + (4 << 18) + 4),
       DType::kDouble},
      {Node("Conv", Attrs({{"group", int64_t{3}}})),
       {{1, 3, 8}, {6, 1, 5}},
       {{1, 6, 4}},
       24 * 5 + 30 * 20 + 50'000 + 99 * (24 + 30 + 24),
       DType::kBfloat16},
      // 20 for each window, and so for rows and planes below, on the CPU.
      {Node("MaxPool", window), {{1, 2, 8, 8}}, {{1, 2, 6, 7}}, 84 * (6 + 20)},
      {Node("AveragePool", window),
       {{1, 2, 8, 8}},
       {{1, 2, 6, 7}},
       84 * (6 + 20)},
      // What lies in the padding costs nothing: 8 rows, and 3 of 8 columns.
      {Node("MaxPool", beyond),
       {{1, 1, 8, 8}},
       {{1, 1, 9, 9}},
       81 * (8 * 3 + 20)},
      {Node("AveragePool", beyond),
       {{1, 1, 8, 8}},
       {{1, 1, 9, 9}},
       81 * (8 * 3 + 20)},
      {spin(0), {{8}}, {{8}}, 0},
      {spin(250), {{8}}, {{8}}, 250'000},
      // 50 for each picture. 8 rows become 2 of windows of 8, then 20 columns
      // 10 of windows of 4.
      {resize("linear"),
       {{8, 20, 3}},
       {{2, 10, 3}},
       50 + 2 * 20 * 3 * 8 + 2 * 10 * 3 * 4,
       DType::kUint8},
      {resize("nearest"), {{8, 20, 3}}, {{2, 10, 3}}, 50, DType::kUint8},
      // Their tables are made for one run: 15 for each pixel of a side, and 7
      // for each of its taps.
      {.node = resize("linear"),
       .inputs = {{8, 20, 3}},
       .outputs = {{2, 10, 3}},
       .operations = 50 + 2 * 20 * 3 * 8 + 2 * 10 * 3 * 4 + 2 * (15 + 7 * 8) +
                     10 * (15 + 7 * 4),
       .dtype = DType::kUint8,
       .once = true},
      {.node = resize("nearest"),
       .inputs = {{8, 20, 3}},
       .outputs = {{2, 10, 3}},
       .operations = 50 + 2 * (15 + 7) + 10 * (15 + 7),
       .dtype = DType::kUint8,
       .once = true},
      {WeirNode("Crop"), {{7, 2, 3, 1}}, {{7, 2, 2, 1}}, 7 * 50 - 42},
      {WeirNode("Flip"), {{2, 3, 1}}, {{2, 3, 1}}, 50 - 6},
      // Each picture, however small.
      {WeirNode("DecodeImage"), {{1}}, {{4, 5, 3}}, 5000, DType::kUint8},
      {WeirNode("DecodeImage"), {{7}}, {{7, 4, 5, 3}}, 35'000, DType::kString},
      {WeirNode("Normalize"), {{4, 5, 3}}, {{4, 5, 3}}, 50},
      {WeirNode("Normalize"), {{7, 4, 5, 3}}, {{7, 4, 5, 3}}, 7 * 50},
      // A size of 2^62, of no pictures.
      {WeirNode("Normalize"), {{kVast, 0, 4, 3}}, {{kVast, 0, 4, 3}}, 0},
      {Node("Softmax"), {{4, 5}}, {{4, 5}}, 4 * 20},
      {Node("Softmax", Attrs({{"axis", int64_t{1}}})),
       {{4, 5, 3}},
       {{4, 5, 3}},
       12 * 20},
      {Node("BatchNormalization"),
       {{2, 3, 4}, {3}, {3}, {3}, {3}},
       {{2, 3, 4}},
       6 * 20},
      // Only its outputs, and the wait for what no cache holds.
      {Node("Gather"), {{4, 5}, {2}}, {{2, 5}}, -22},
      {Node("Gather", Attrs({{"axis", int64_t{1}}})),
       {{2, 1 << 17, 2}, {3}},
       {{2, 3, 2}},
       2 * 3 * 80 - (1 << 19) - 3},
      {Node("GlobalAveragePool"), {{2, 3, 4, 5}}, {{2, 3, 1, 1}}, 6 * 20},
      // Only their outputs and each row of theirs, and elements that lie apart
      // where no cache holds them.
      SliceBy(2, {4, 5, 8}, {4, 5, 4}, 20 * 3 * 6 - 164),
      SliceBy(16, {4, 5, 64}, {4, 5, 4}, 20 * 3 * 6 - 1284),
      SliceBy(16, {1, 1 << 14, 64}, {1, 1 << 14, 4},
              (1 << 14) * (3 * 6 + 4 * 20 - 64) - 4),
      SliceBy(-16, {1, 1 << 14, 64}, {1, 1 << 14, 4},
              (1 << 14) * (3 * 6 + 4 * 20 - 64) - 4),
      SliceBy(8, {1, 1 << 14, 64}, {1, 1 << 14, 8},
              (1 << 14) * (3 * 6 - 64) - 4),
      // Steps of rows.
      SliceBy(64, {1, 1 << 14, 64}, {1, 1 << 14, 1},
              (1 << 14) * 20 + 3 * 6 * 1 - ((1 << 14) * 64) - 4),
      // Only its output, and each row, of one element here.
      {Node("Pad"), {{4, 5, 1}, {6}}, {{6, 5, 1}}, 30 * 3 * 6 - 26},
      // Only their outputs, and each piece.
      {Node("Concat", Attrs({{"axis", int64_t{-1}}})),
       {{2, 3}, {2, 4}},
       {{2, 7}},
       4 * 20 - 14},
      {Node("Split", Attrs({{"axis", int64_t{1}}})),
       {{2, 7}},
       {{2, 3}, {2, 4}},
       4 * 20 - 14},
      {Node("Split", Attrs({{"axis", int64_t{1}}})),
       {{2, 7}},
       {{2, 0}, {2, 7}},
       2 * 20 - 14},
      {Node("Conv"),
       {{1, 0, 8}, {6, 0, 5}},
       {{1, 6, 4}},
       24 * 100 + 50'000 + 9 * 24},
      {Node("LayerNormalization"), {{4, 5}, {5}}, {{4, 5}}, 4 * 20},
      // What is broadcast is written out for a row.
      {Node("LayerNormalization"),
       {{4, 5}, {1}, {1}},
       {{4, 5}},
       4 * 20 + 2 * 5},
      // Of no rows, each longer than any integer tells.
      {Node("LayerNormalization", Attrs({{"axis", int64_t{1}}})),
       {{0, 6442450944, 2147483648}, {1}},
       {{0, 6442450944, 2147483648}},
       0},
  };
  // The same along an axis that no cache holds.
  examples.push_back({Node("ArgMax", Attrs({{"axis", int64_t{0}}})),
                      {{1 << 14, 32}},
                      {{1, 32}},
                      (1 << 14) * 20 + 32 * 20 + (1 << 19) * 20});
  examples.push_back({Node("ArgMax", Attrs({{"axis", int64_t{1}}})),
                      {{1 << 14, 32}},
                      {{1 << 14, 1}},
                      (1 << 14) * 20 + (1 << 14) * 20});
  const auto registry = MakeOpRegistry();
  for (const OpDef* def : registry->List()) {
    if (def->name.rfind("Reduce", 0) == 0 || def->name.rfind("Arg", 0) == 0) {
      examples.push_back({Node(std::string(def->name)),
                          {{4, 5, 6}},
                          {{1, 5, 6}},
                          20 * 20 + (def->name == "ArgMax" ? 30 * 20 : 0)});
    }
  }
  return examples;
}

std::vector<TensorMeta> Metas(DType dtype, const std::vector<Dims>& shapes) {
  std::vector<TensorMeta> metas;
  for (const Dims& dims : shapes) metas.push_back(Meta(dtype, dims));
  return metas;
}

TEST(CostTest, OperationsOfEachOperatorWithACountOfItsOwn) {
  const auto registry = MakeOpRegistry({.test_operators = true});
  std::set<std::string_view> counted;
  for (const Example& example : Examples()) {
    const OpDef* def = registry->Find(example.node.domain, example.node.op);
    ASSERT_NE(def, nullptr) << example.node.op;
    counted.insert(def->name);
    NodeInfo node = example.node;
    node.input_types.assign(example.inputs.size(), example.dtype);
    const auto inputs = Metas(example.dtype, example.inputs);
    const auto outputs = Metas(example.dtype, example.outputs);
    std::vector<std::vector<int64_t>> host_ints = example.host_ints;
    host_ints.resize(inputs.size());
    const NodeCost cost = def->cost(node, Pace::kInTurn,
                                    {.inputs = inputs,
                                     .outputs = outputs,
                                     .host_ints = host_ints,
                                     .once = example.once});
    int64_t elements = 0;
    for (const TensorMeta& meta : inputs) elements += meta.elements;
    for (const TensorMeta& meta : outputs) elements += meta.elements;
    EXPECT_EQ(cost.operations - elements, example.operations)
        << def->name << " of " << DimsString(example.inputs[0]);
  }
  for (const OpDef* def : registry->List()) {
    if (GoesBySizes(*def)) continue;
    EXPECT_TRUE(counted.contains(def->name))
        << def->name << " counts its operations itself: give an example";
  }
}

// A block of threads makes a row there, and some hundred rows run at a time.
TEST(CostTest, FewRowsTakeAGpuAsLongAsMany) {
  const auto registry = MakeOpRegistry();
  for (const std::string op : {"Softmax", "LayerNormalization"}) {
    const OpDef* def = registry->Find("", op);
    ASSERT_NE(def, nullptr);
    const auto operations = [&](Pace pace, int64_t rows) {
      NodeInfo node = Node(op);
      node.input_types.assign(2, DType::kFloat);
      return def
          ->cost(node, pace,
                 {Metas(DType::kFloat, {{rows, 1000}, {1000}}),
                  Metas(DType::kFloat, {{rows, 1000}}),
                  std::vector<std::vector<int64_t>>(2)})
          .operations;
    };
    const auto on_cpu = [&](int64_t rows) {
      return operations(Pace::kInTurn, rows) - 20 * rows;
    };
    EXPECT_EQ(operations(Pace::kSideBySide, 1), 128 * on_cpu(1)) << op;
    EXPECT_EQ(operations(Pace::kSideBySide, 64), 2 * on_cpu(64)) << op;
    EXPECT_EQ(operations(Pace::kSideBySide, 128), on_cpu(128)) << op;
    EXPECT_EQ(operations(Pace::kSideBySide, 1000), on_cpu(1000)) << op;
    EXPECT_EQ(operations(Pace::kSideBySide, 0), on_cpu(0)) << op;
  }
}

int64_t OperationsOnCuda(const Example& example) {
  NodeInfo node = example.node;
  node.input_types.assign(example.inputs.size(), example.dtype);
  const std::vector<std::vector<int64_t>> host_ints(example.inputs.size());
  return MakeOpRegistry()
      ->Find(node.domain, node.op)
      ->cost(node, Pace::kSideBySide,
             {Metas(example.dtype, example.inputs),
              Metas(example.dtype, example.outputs), host_ints})
      .operations;
}

// A tile of 16 x 16 sums is computed whole there, whatever is asked of it.
TEST(CostTest, ProductsTakeAGpuWholeTiles) {
  const Example outer = {Node("MatMul"),
                         {{46000, 1, 1, 46000}, {1, 46000, 46000, 1}},
                         {{46000, 46000, 1, 1}},
                         0,
                         DType::kFloat16};
  EXPECT_GE(OperationsOnCuda(outer), 256 * int64_t{46000} * 46000 * 46000);
  const Example examples[] = {
      {Node("MatMul"),
       {{1000, 33, 8}, {1000, 8, 17}},
       {{1000, 33, 17}},
       int64_t{1000} * 48 * 32 * 8},
      // One B for all of A's matrices makes one tall matrix of them.
      {Node("MatMul"),
       {{4096, 1, 8}, {1, 8, 64}},
       {{4096, 1, 64}},
       int64_t{4096} * 64 * 8},
      {Node("Gemm"), {{4001, 7}, {7, 10}}, {{4001, 10}}, 4016 * 16 * 7},
      // A few outputs are charged as 10,000 by whoever adds costs up: 10 tiles
      // are as little, and 160 are as many as 50,000.
      {Node("MatMul"), {{10, 1, 8}, {10, 8, 1}}, {{10, 1, 1}}, 10 * 8},
      {Node("MatMul"), {{160, 1, 8}, {160, 8, 1}}, {{160, 1, 1}}, 160 * 5 * 8},
      {Node("MatMul"), {{0, 1, 8}, {0, 8, 1}}, {{0, 1, 1}}, 0}};
  for (const Example& example : examples) {
    int64_t elements = 0;
    for (const TensorMeta& meta : Metas(DType::kFloat, example.inputs)) {
      elements += meta.elements;
    }
    elements += Meta(DType::kFloat, example.outputs[0]).elements;
    EXPECT_EQ(OperationsOnCuda(example) - elements, example.operations)
        << example.node.op << " of " << DimsString(example.inputs[0]);
  }
}

// None of these makes a loop longer than the tensors that inference has told.
TEST(CostTest, OperatorsWithoutACountHaveNoAttributeThatLoopsGoBy) {
  const std::set<std::string_view> harmless = {
      "allowzero",     "alpha",      "approximate",  "axes",
      "axis",          "crop_h",     "crop_pos_x",   "crop_pos_y",
      "crop_w",        "dtype",      "end",          "epsilon",
      "fmod",          "horizontal", "max",          "min",
      "mode",          "momentum",   "num_outputs",  "perm",
      "range",         "round_mode", "saturate",     "seed",
      "shape",         "split",      "start",        "to",
      "training_mode", "value",      "value_float",  "value_floats",
      "value_int",     "value_ints", "value_string", "value_strings",
      "vertical"};
  const auto registry = MakeOpRegistry({.test_operators = true});
  for (const OpDef* def : registry->List()) {
    if (!GoesBySizes(*def)) {
      continue;
    }
    for (const AttributeDef& attribute : def->attributes) {
      EXPECT_TRUE(harmless.contains(attribute.name))
          << def->name << "." << attribute.name
          << ": if loops go by it, the operator needs a count of its own";
    }
  }
}

// Rows, however short, take it time.
TEST(CostTest, ShortRowsTakeACpuAsLongAsLongerOnes) {
  const auto operations = [](Cost cost, const std::vector<Dims>& inputs,
                             const Dims& output, Pace pace = Pace::kInTurn) {
    const auto metas = Metas(DType::kFloat, inputs);
    const auto outputs = Metas(DType::kFloat, {output});
    return cost({}, pace, {metas, outputs, {}}).operations;
  };
  EXPECT_EQ(operations(RowwiseCost, {}, {4, 5, 2}), 40 + 20 * 3 * 6);
  EXPECT_EQ(operations(RowwiseCost, {}, {4, 5, 2}, Pace::kSideBySide), 40);
  EXPECT_EQ(operations(RowwiseCost, {}, {5, 2, 1}), 10 + 5 * 3 * 6);
  EXPECT_EQ(operations(RowwiseCost, {}, {}), 1);
  EXPECT_EQ(operations(RowwiseCost, {}, {5, 0}), 0);
  const Dims column = {9, 1}, row = {2}, matrix = {9, 2};
  EXPECT_EQ(operations(ElementwiseCost, {column, matrix}, matrix), 36 + 9 * 20);
  EXPECT_EQ(operations(ElementwiseCost, {row, matrix}, matrix), 36 + 9 * 20);
  EXPECT_EQ(
      operations(ElementwiseCost, {row, matrix}, matrix, Pace::kSideBySide),
      36);
  // With many operands each has a row to find.
  EXPECT_EQ(operations(ElementwiseCost, {row, matrix, column, matrix}, matrix),
            4 * 18 + 9 * 40);
  // What is the same for all, or one for each, makes one row.
  EXPECT_EQ(operations(ElementwiseCost, {{1, 1}, matrix}, matrix), 36);
  EXPECT_EQ(operations(ElementwiseCost, {matrix, matrix}, matrix), 36);
}

TEST(CostTest, SizesAloneNeverWrap) {
  const TensorMeta vast = {.dtype = DType::kFloat,
                           .dims = {kSaturated},
                           .elements = kSaturated,
                           .bytes = 0};
  const std::vector<TensorMeta> metas(3, vast);
  for (const Cost cost :
       {LinearCost, OutputCost, RowwiseCost, ElementwiseCost}) {
    EXPECT_EQ(cost(Node("Sum"), Pace::kInTurn, {metas, metas, {}}).operations,
              kSaturated);
  }
  const std::vector<TensorMeta> inputs = Metas(DType::kFloat, {{4}, {4}, {4}});
  const std::vector<TensorMeta> outputs = Metas(DType::kFloat, {{4}});
  const PlanArgs args = {inputs, outputs, {}};
  EXPECT_EQ(OutputCost({}, Pace::kInTurn, args).operations, 4);
  EXPECT_EQ(ElementwiseCost({}, Pace::kInTurn, args).operations, 12);
  EXPECT_EQ(LinearCost({}, Pace::kInTurn, args).operations, 16);
}

}  // namespace
}  // namespace weir
