#include "tests/hostile/hostile_graphs.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/tensor/shape.h"

namespace weir::testing {
namespace {

using Ints = std::vector<int64_t>;
using absl::StatusCode;

std::string Attribute(const std::string& name, int64_t value) {
  return absl::StrCat(" attributes { name: \"", name, "\" i: ", value, " }");
}
std::string Attribute(const std::string& name, const Ints& values) {
  return absl::StrCat(" attributes { name: \"", name, "\" ints { ",
                      absl::StrJoin(values, " ",
                                    [](std::string* out, int64_t v) {
                                      absl::StrAppend(out, "values: ", v);
                                    }),
                      " } }");
}
std::string Text(const std::string& name, const std::string& value) {
  return absl::StrCat(" attributes { name: \"", name, "\" s: \"", value,
                      "\" }");
}

// "MatMul" or "weir.Resize".
std::string Node(const std::string& op, const std::vector<std::string>& inputs,
                 const std::vector<std::string>& outputs,
                 const std::string& name = "",
                 const std::string& attributes = "") {
  const size_t dot = op.find('.');
  std::string text = "nodes {";
  if (!name.empty()) absl::StrAppend(&text, " name: \"", name, "\"");
  if (dot != std::string::npos) {
    absl::StrAppend(&text, " domain: \"", op.substr(0, dot), "\"");
  }
  absl::StrAppend(&text, " op: \"",
                  dot == std::string::npos ? op : op.substr(dot + 1), "\"");
  for (const std::string& input : inputs) {
    absl::StrAppend(&text, " inputs: \"", input, "\"");
  }
  for (const std::string& output : outputs) {
    absl::StrAppend(&text, " outputs: \"", output, "\"");
  }
  return absl::StrCat(text, attributes, " }\n");
}

// An int64 list, little-endian, as bytes of text format.
std::string Constant(const std::string& name, const Ints& values) {
  std::string raw;
  for (const int64_t value : values) {
    for (int i = 0; i < 8; ++i) {
      absl::StrAppend(&raw, "\\x",
                      absl::Hex(static_cast<uint64_t>(value) >> (8 * i) & 0xFF,
                                absl::kZeroPad2));
    }
  }
  return absl::StrCat("constants { name: \"", name,
                      "\" value { spec { dtype: DATA_TYPE_INT64 shape: ",
                      values.size(), " } raw: \"", raw, "\" } }\n");
}

std::string Output(const std::string& name) {
  return absl::StrCat("outputs: \"", name, "\"\n");
}

// An input without a declaration takes that of what is given.
std::string Input(const std::string& name) {
  return absl::StrCat("inputs { name: \"", name, "\" }\n");
}

HostileInput Floats(const std::string& name, const Ints& dims) {
  return {name, DType::kFloat, dims};
}
HostileInput Sizes(const std::string& name, const Ints& values) {
  return {name, DType::kInt64, {static_cast<int64_t>(values.size())}, values};
}

constexpr int64_t kBillion = int64_t{1} << 30;

// x expanded to `dims`, and its sum: nothing large is asked for.
std::string Expanded(const Ints& dims, const std::string& then) {
  return absl::StrCat(Input("x"), Constant("shape", dims),
                      Node("Expand", {"x", "shape"}, {"e"}, "expand"), then);
}

void AddProducts(std::vector<HostileGraph>* all) {
  const std::string inputs = Input("a") + Input("b");
  const std::vector<HostileInput> pairs = {Floats("a", {65536, 1, 1, 1}),
                                           Floats("b", {1, 65536, 1, 1})};
  all->push_back(
      {"two to the 32 products of one number",
       absl::StrCat(inputs, Node("MatMul", {"a", "b"}, {"y"}, "pairs"),
                    Output("y")),
       pairs, StatusCode::kResourceExhausted, "node \"pairs\" (MatMul)"});
  all->push_back(
      {"the same, added up",
       absl::StrCat(inputs, Node("MatMul", {"a", "b"}, {"p"}, "pairs"),
                    Node("ReduceSum", {"p"}, {"y"}), Output("y")),
       pairs, StatusCode::kResourceExhausted, "node \"pairs\" (MatMul)"});
  all->push_back(
      {"as many as a server may have",
       absl::StrCat(inputs, Node("MatMul", {"a", "b"}, {"p"}, "pairs"),
                    Node("ReduceSum", {"p"}, {"y"}), Output("y")),
       {Floats("a", {1024, 1, 1, 1}), Floats("b", {1, 1024, 1, 1})},
       StatusCode::kOk});
  // Each product fits; together they would run for hours.
  std::string tower = Expanded({20'000, 20'000}, "");
  std::string at = "e";
  for (int i = 0; i < 14; ++i) {
    const std::string to = absl::StrCat("p", i);
    absl::StrAppend(&tower, Node("MatMul", {at, "e"}, {to}));
    at = to;
  }
  all->push_back(
      {"a tower of products",
       absl::StrCat(tower, Node("ReduceSum", {at}, {"y"}), Output("y")),
       {Floats("x", {1, 1})},
       StatusCode::kResourceExhausted,
       "(MatMul)"});
}

void AddWindows(std::vector<HostileGraph>* all) {
  const auto pool = [&](const std::string& name, const std::string& op,
                        const std::string& attributes, const Ints& dims,
                        StatusCode code, const std::string& names) {
    std::vector<std::string> outputs = {"y"};
    std::string wanted = Output("y");
    if (op == "MaxPool") {
      outputs.push_back("i");
      wanted += Output("i");
    }
    all->push_back(
        {name,
         absl::StrCat(Input("x"), Node(op, {"x"}, outputs, "pool", attributes),
                      wanted),
         {Floats("x", dims)},
         code,
         names});
  };
  const std::string huge = Attribute("kernel_shape", Ints{kBillion, kBillion}) +
                           Attribute("pads", Ints(4, kBillion / 2));
  for (const char* op : {"AveragePool", "MaxPool"}) {
    pool(absl::StrCat(op, " of a window of 2^60"), op, huge, {1, 1, 1, 1},
         StatusCode::kOk, "");
    pool(absl::StrCat(op, " beside 2^30 of padding"), op,
         Attribute("kernel_shape", Ints{1}) +
             Attribute("pads", Ints{kBillion, kBillion}),
         {1, 1, 1}, StatusCode::kResourceExhausted, "node \"pool\"");
    pool(absl::StrCat(op, " in 2^60 of padding"), op,
         Attribute("kernel_shape", Ints{1, 1}) +
             Attribute("pads", Ints(4, kBillion)),
         {1, 1, 1, 1}, StatusCode::kInvalidArgument, "node \"pool\"");
    pool(absl::StrCat(op, " of windows that hold 2^30 positions each"), op,
         Attribute("kernel_shape", Ints{kBillion}) +
             Attribute("pads", Ints{kBillion - 1, kBillion - 1}),
         {1, 1, 1}, StatusCode::kResourceExhausted, "node \"pool\"");
    pool(absl::StrCat(op, " of far apart taps"), op,
         Attribute("kernel_shape", Ints{kBillion}) +
             Attribute("dilations", Ints{kBillion}) +
             Text("auto_pad", "SAME_UPPER"),
         {1, 1, 7}, StatusCode::kOk, "");
  }
  const auto conv = [&](const std::string& name, const std::string& attributes,
                        const Ints& w, StatusCode code) {
    all->push_back(
        {name,
         absl::StrCat(Input("x"), Input("w"),
                      Node("Conv", {"x", "w"}, {"y"}, "conv", attributes),
                      Output("y")),
         {Floats("x", {1, 1, 1, 1}), Floats("w", w)},
         code,
         "node \"conv\" (Conv)",
         /*cpu_only=*/true});
  };
  conv("Conv of steps of 2^30 in 2^30 of padding",
       Attribute("pads", Ints{kBillion, 0, 0, 0}) +
           Attribute("strides", Ints{kBillion, 1}),
       {1, 1, 1, 1}, StatusCode::kOk);
  conv("Conv of taps 2^30 apart",
       Attribute("dilations", Ints{kBillion, kBillion}) +
           Text("auto_pad", "SAME_LOWER"),
       {1, 1, 5, 5}, StatusCode::kOk);
  conv("Conv beside 2^30 of padding",
       Attribute("pads", Ints{kBillion, 0, 0, 0}), {1, 1, 1, 1},
       StatusCode::kResourceExhausted);
}

// To generate a library's code for each would take a minute.
void AddFolded(std::vector<HostileGraph>* all) {
  std::string folded = absl::StrCat(Constant("row", {1, 1, 1, 512}),
                                    Constant("taps", {1, 1, 1, 3}),
                                    Node("ConstantOfShape", {"row"}, {"c0"}),
                                    Node("ConstantOfShape", {"taps"}, {"w"}));
  const std::string attributes =
      Attribute("pads", Ints{0, 8, 0, 8}) + Attribute("dilations", Ints{1, 8});
  constexpr int kNodes = 6'000;
  for (int i = 0; i < kNodes; ++i) {
    absl::StrAppend(&folded, Node("Conv", {absl::StrCat("c", i), "w"},
                                  {absl::StrCat("c", i + 1)}, "", attributes));
  }
  all->push_back({"6,000 convolutions of constants",
                  absl::StrCat(folded, Output(absl::StrCat("c", kNodes))),
                  {},
                  StatusCode::kOk});
}

void AddShapes(std::vector<HostileGraph>* all) {
  const std::string sum = Node("ReduceSum", {"e"}, {"y"}) + Output("y");
  all->push_back({"Expand to 64 GiB, added up",
                  Expanded({1 << 17, 1 << 17}, sum),
                  {Floats("x", {1})},
                  StatusCode::kResourceExhausted,
                  "node \"expand\" (Expand)",
                  /*cpu_only=*/false,
                  "(ReduceSum)"});
  all->push_back({"Expand to 2^80",
                  Expanded({1 << 20, 1 << 20, 1 << 20, 1 << 20}, sum),
                  {Floats("x", {1})},
                  StatusCode::kInvalidArgument,
                  "node \"expand\" (Expand)"});
  all->push_back(
      {"Pad by 2^35",
       absl::StrCat(Input("x"), Constant("pads", {0, int64_t{1} << 35}),
                    Node("Pad", {"x", "pads"}, {"y"}, "pad"), Output("y")),
       {Floats("x", {1})},
       StatusCode::kResourceExhausted,
       "node \"pad\" (Pad)"});
  all->push_back(
      {"Pad by 2^62 on both sides",
       absl::StrCat(Input("x"),
                    Constant("pads", {int64_t{1} << 62, int64_t{1} << 62}),
                    Node("Pad", {"x", "pads"}, {"y"}, "pad"), Output("y")),
       {Floats("x", {1})},
       StatusCode::kInvalidArgument,
       "node \"pad\" (Pad)"});
  all->push_back(
      {"a shape out of an input",
       absl::StrCat(Input("s"), Node("ConstantOfShape", {"s"}, {"e"}, "fill"),
                    sum),
       {Sizes("s", {1 << 16, 1 << 16})},
       StatusCode::kResourceExhausted,
       "node \"fill\" (ConstantOfShape)"});
  all->push_back(
      {"a shape that takes 8 GiB to work out",
       absl::StrCat(Input("s"), Node("weir.RandomUniform", {"s"}, {"r"}),
                    Node("Shape", {"r"}, {"n"}),
                    Node("ConstantOfShape", {"n"}, {"e"}, "fill"), sum),
       {Sizes("s", {int64_t{1} << 31})},
       StatusCode::kResourceExhausted,
       ""});
  std::string doubled = Input("x");
  std::string at = "x";
  for (int i = 0; i < 60; ++i) {
    const std::string to = absl::StrCat("c", i);
    absl::StrAppend(&doubled,
                    Node("Concat", {at, at}, {to}, absl::StrCat("join", i),
                         Attribute("axis", int64_t{0})));
    at = to;
  }
  all->push_back(
      {"doubled 60 times",
       absl::StrCat(doubled, Node("ReduceSum", {at}, {"y"}), Output("y")),
       {Floats("x", {1})},
       StatusCode::kInvalidArgument,
       "(Concat)",
       /*cpu_only=*/false,
       /*names_on_gpu=*/"",
       /*may_be_too_long=*/true});
  std::string grown = Input("x") + Constant("column", {-1, 1});
  at = "x";
  for (int i = 0; i < 36; ++i) {
    const std::string column = absl::StrCat("b", i), to = absl::StrCat("g", i);
    absl::StrAppend(&grown, Node("Reshape", {at, "column"}, {column}),
                    Node("Add", {column, "two"}, {to}, absl::StrCat("add", i)));
    at = to;
  }
  all->push_back({"broadcasts that double 36 times",
                  absl::StrCat(grown, Input("two"),
                               Node("ReduceSum", {at}, {"y"}), Output("y")),
                  {Floats("x", {1}), Floats("two", {2})},
                  StatusCode::kResourceExhausted,
                  "(Add)",
                  /*cpu_only=*/false,
                  "(ReduceSum)"});
  all->push_back(
      {"an outer sum",
       absl::StrCat(Input("x"), Input("z"),
                    Node("Add", {"x", "z"}, {"y"}, "outer"), Output("y")),
       {Floats("x", {100'000, 1}), Floats("z", {100'000})},
       StatusCode::kResourceExhausted,
       "node \"outer\" (Add)"});
  all->push_back({"2^31 random numbers",
                  absl::StrCat(Node("weir.RandomUniform", {}, {"y"}, "dice",
                                    Attribute("shape", Ints{1 << 16, 1 << 16})),
                               Output("y")),
                  {},
                  StatusCode::kResourceExhausted,
                  "node \"dice\" (weir.RandomUniform)"});
  all->push_back(
      {"Slice by the least step there is",
       absl::StrCat(Input("x"),
                    Constant("low", {std::numeric_limits<int64_t>::min()}),
                    Constant("high", {std::numeric_limits<int64_t>::max()}),
                    Constant("axis", {0}),
                    Node("Slice", {"x", "high", "low", "axis", "low"}, {"y"}),
                    Output("y")),
       {Floats("x", {5})},
       StatusCode::kOk});
  all->push_back({"an axis list of 100,000 entries",
                  absl::StrCat(Input("x"),
                               Node("ReduceSum", {"x"}, {"y"}, "sum",
                                    Attribute("axes", Ints(100'000, 0))),
                               Output("y")),
                  {Floats("x", {5})},
                  StatusCode::kInvalidArgument,
                  "node \"sum\" (ReduceSum)"});
  all->push_back(
      {"the least of 100,000 inputs",
       absl::StrCat(
           Input("x"),
           Node("Min", std::vector<std::string>(100'000, "x"), {"y"}, "least"),
           Output("y")),
       {Floats("x", {5})},
       StatusCode::kOk,
       "node \"least\" (Min",
       /*cpu_only=*/true});
}

void AddPictures(std::vector<HostileGraph>* all) {
  const auto resize = [&](const std::string& name, float side,
                          const std::string& before, StatusCode code) {
    all->push_back({name,
                    absl::StrCat(before,
                                 "nodes { name: \"resize\" domain: "
                                 "\"weir\" op: \"Resize\" inputs: \"e\" "
                                 "outputs: \"y\" attributes { name: "
                                 "\"resize_x\" f: ",
                                 side, " } attributes { name: \"resize_y\" f: ",
                                 side, " } }\n", Output("y")),
                    {Floats("x", {1, 1, 1})},
                    code,
                    "node \"resize\" (weir.Resize)"});
  };
  resize("a picture of 65,536 x 65,536", 65536, Expanded({1, 1, 1}, ""),
         StatusCode::kResourceExhausted);
  resize("a picture of a billion rows", 1, Expanded({kBillion / 2, 1, 1}, ""),
         StatusCode::kInvalidArgument);
}

}  // namespace

std::string HostileInput::Bytes() const {
  const size_t size = static_cast<size_t>(ByteSize(dtype, dims).value());
  if (values.empty()) return std::string(size, '\0');
  return std::string(reinterpret_cast<const char*>(values.data()), size);
}

std::vector<HostileGraph> HostileGraphs() {
  std::vector<HostileGraph> all;
  AddProducts(&all);
  AddWindows(&all);
  AddFolded(&all);
  AddShapes(&all);
  AddPictures(&all);
  return all;
}

}  // namespace weir::testing
