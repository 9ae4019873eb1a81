// Compiles every kind of generated kernel with NVRTC, which needs no GPU: for
// each operator and element type that its definition allows, a plan is made by
// a device that only compiles.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <regex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/backend/devices.h"
#include "kernels/device/cuda/cuda_device.h"
#include "kernels/graph/graph.h"
#include "kernels/graph/program.h"
#include "kernels/ops/cuda/elementwise.h"
#include "kernels/ops/cuda/node_kernel.h"
#include "kernels/ops/cuda/register.h"
#include "kernels/ops/fused_elementwise.h"
#include "kernels/ops/registry.h"

namespace weir {
namespace {

namespace fs = std::filesystem;

constexpr int kCapability = 90;
constexpr size_t kLeastImage = 1024;  // of a kernel, in bytes

TensorMeta Meta(DType dtype, Dims dims) {
  TensorMeta meta;
  meta.dtype = dtype;
  meta.elements = NumElements(dims).value();
  meta.bytes = static_cast<size_t>(meta.elements) * SizeOf(dtype);
  meta.dims = std::move(dims);
  return meta;
}

std::vector<DType> Types(TypeSet set) {
  std::vector<DType> types;
  for (int i = 0; i <= 16; ++i) {
    const DType dtype = static_cast<DType>(i);
    if (set.Has(dtype) && kFixedTypes.Has(dtype)) types.push_back(dtype);
  }
  return types;
}

using List = std::vector<int64_t>;

struct Case {
  NodeInfo node;
  std::vector<TensorMeta> inputs;
  std::vector<TensorMeta> outputs;
  std::vector<std::vector<int64_t>> host_ints;
};

class GeneratedKernels : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "weir-XXXXXX").string();
    compiled_.cache_dir = mkdtemp(name.data());
    auto device = CudaDevice::CreateCompiler(kCapability, compiled_);
    if (absl::IsFailedPrecondition(device.status())) {
      GTEST_SKIP() << device.status().message();
    }
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
    RegistryOptions options;
    options.test_operators = true;
    registry_ = MakeOpRegistry(options);
    ASSERT_TRUE(RegisterCudaKernels(*registry_).ok());
  }

  void TearDown() override { fs::remove_all(compiled_.cache_dir); }

  void Plan(Case test) {
    SCOPED_TRACE(absl::StrCat(
        test.node.domain, ".", test.node.op, " of ",
        std::string(DTypeName(test.inputs.empty() ? DType::kInvalid
                                                  : test.inputs[0].dtype))));
    for (const TensorMeta& in : test.inputs) {
      test.node.input_types.push_back(in.dtype);
    }
    test.node.num_outputs = static_cast<int>(test.outputs.size());
    if (test.node.opset == 0) test.node.opset = 21;
    auto kernel = registry_->CreateKernel(test.node, *device_);
    ASSERT_TRUE(kernel.ok()) << kernel.status();
    test.host_ints.resize(test.inputs.size());
    const PlanArgs args = {test.inputs, test.outputs, test.host_ints};
    const auto plan = (*kernel)->Plan(args);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_LE((*plan)->scratch_bytes(), MostScratch(test.node, args))
        << "an evaluation's size would be told too small";
    ExpectHoldsItsModules(test.node, args);
  }

  // A plan for a device that has loaded nothing before counts all that it
  // loads.
  void ExpectHoldsItsModules(const NodeInfo& node, const PlanArgs& args) const {
    const auto device = CudaDevice::CreateCompiler(kCapability, compiled_);
    ASSERT_TRUE(device.ok()) << device.status();
    const auto kernel = registry_->CreateKernel(node, **device);
    ASSERT_TRUE(kernel.ok()) << kernel.status();
    const auto plan = (*kernel)->Plan(args);
    ASSERT_TRUE(plan.ok()) << plan.status();
    std::set<const void*> modules;
    size_t bytes = 0;
    for (const SharedHold& hold : (*plan)->shared_holds()) {
      EXPECT_GT(hold.bytes, CudaFunction::kDriverBytes + kLeastImage);
      modules.insert(hold.object);
      bytes += hold.bytes;
    }
    EXPECT_EQ(modules.size(), (*device)->kernels().stats().kernels);
    EXPECT_GE((*plan)->held_bytes(), bytes);
  }

  // What is known of it before the plan is made.
  size_t MostScratch(const NodeInfo& node, const PlanArgs& args) const {
    const auto scratch = registry_->Traits(device_->info(), node).scratch_bytes;
    const OpDef& def = *registry_->FindInternal(node.domain, node.op);
    return static_cast<size_t>(
        scratch == nullptr
            ? def.cost(node, device_->info().pace, args).scratch_bytes
            : scratch(node, args));
  }

  static NodeInfo Node(std::string op, std::string domain = "") {
    NodeInfo node;
    node.name = "n";
    node.op = std::move(op);
    node.domain = std::move(domain);
    return node;
  }

  // Of a small convolution with these attributes, which need not fit its
  // output.
  absl::Status PlanConv(
      const std::vector<std::pair<std::string, List>>& attributes) {
    NodeInfo node = Node("Conv");
    for (const auto& [name, values] : attributes) {
      node.attributes.Set(name, values);
    }
    node.input_types = {DType::kFloat, DType::kFloat};
    node.num_outputs = 1;
    node.opset = 21;
    const auto kernel = registry_->CreateKernel(node, *device_);
    if (!kernel.ok()) return kernel.status();
    const std::vector<TensorMeta> inputs = {Meta(DType::kFloat, {1, 2, 8, 8}),
                                            Meta(DType::kFloat, {2, 2, 3, 3})};
    const std::vector<TensorMeta> outputs = {Meta(DType::kFloat, {1, 2, 6, 6})};
    const std::vector<List> host_ints(2);
    return (*kernel)->Plan({inputs, outputs, host_ints}).status();
  }

  DeviceOptions compiled_;  // with a folder for what was compiled
  std::unique_ptr<CudaDevice> device_;
  std::unique_ptr<OpRegistry> registry_;
};

// The root of the source tree.
std::string Tree() {
  const char* tests = std::getenv("WEIR_TEST_DATA");
  return absl::StrCat(tests == nullptr ? "tests" : tests, "/..");
}

TEST_F(GeneratedKernels, EveryOperatorHasAKernel) {
  for (const OpDef* def : registry_->List()) {
    EXPECT_TRUE(registry_->HasKernel(DeviceKind::kCuda, def->domain, def->name))
        << def->domain << "." << def->name;
  }
}

TEST_F(GeneratedKernels, ChainsOfElementwiseNodes) {
  const ChainLink chain[] = {{"Div(x0, x1)", {0, 1}},
                             {"Erf(x0)", {ChainLink::kBefore}},
                             {"Mul(x0, x1)", {0, ChainLink::kBefore}}};
  for (const DType dtype : {DType::kFloat16, DType::kBfloat16}) {
    Case test;
    test.node = Node("FusedElementwise", "weir");
    test.node.attributes.Set("code", ChainCode(chain));
    test.node.attributes.Set("operands", int64_t{5});
    test.inputs = {Meta(dtype, {3, 8}), Meta(dtype, {8})};
    test.outputs = {Meta(dtype, {3, 8})};
    Plan(test);
  }
}

TEST_F(GeneratedKernels, AKernelWithoutAnOperatorIsAnError) {
  const auto compiler = [](const NodeInfo&,
                           CudaDevice*) -> absl::StatusOr<PlanFunction> {
    return absl::UnimplementedError("");
  };
  const absl::Status misspelt =
      cuda::RegisterNode(*registry_, "", "Reszie", compiler);
  EXPECT_EQ(misspelt.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(misspelt.message().find("Reszie"), absl::string_view::npos);
  EXPECT_EQ(cuda::RegisterNode(*registry_, "weir", "Resize", compiler).code(),
            absl::StatusCode::kAlreadyExists);
}

// bfloat16 is part of every device that is accepted.
TEST_F(GeneratedKernels, NoGpuWithoutBfloat16) {
  const absl::Status old =
      CudaDevice::CreateCompiler(75, DeviceOptions()).status();
  EXPECT_EQ(old.code(), absl::StatusCode::kFailedPrecondition) << old;
  for (const char* part : {"compute capability 7.5", "8.0 or newer"}) {
    EXPECT_NE(old.message().find(part), absl::string_view::npos) << old;
  }
  EXPECT_TRUE(CudaDevice::CreateCompiler(80, DeviceOptions()).ok());
}

// Each row of docs/operators.md has its check here, and each check its row.
TEST_F(GeneratedKernels, WhatTheDocsSayIsRefused) {
  using Check = std::function<absl::Status()>;
  const auto create = [this](NodeInfo node, std::vector<DType> types) {
    node.input_types = std::move(types);
    node.opset = 21;
    return registry_->CreateKernel(node, *device_).status();
  };
  const std::map<std::string, Check> checks = {
      {"strings", [&] { return create(Node("Identity"), {DType::kString}); }},
      {"`DecodeImage` of an input that another node or an output reads too: "
       "give the bytes as two inputs",
       [&] {
         Graph graph;
         graph.opsets = {{"", 21}, {"weir", 1}};
         graph.inputs = {{"file", DType::kUint8, SymbolicDims{Dim::Symbol(0)}}};
         graph.symbols = {"N"};
         GraphNode picture;
         picture.domain = "weir";
         picture.op = "DecodeImage";
         picture.inputs = {"file"};
         picture.outputs = {"picture"};
         graph.nodes = {picture};
         graph.outputs = {"picture", "file"};
         return Program::Compile(std::move(graph), *device_, *registry_)
             .status();
       }},
      {"Min or Max of more than 128 inputs",
       [&] {
         EXPECT_TRUE(
             create(Node("Max"), std::vector<DType>(128, DType::kFloat)).ok());
         return create(Node("Max"), std::vector<DType>(129, DType::kFloat));
       }},
      {"Conv with a tensor of 2^31 elements or more, or with a window or a "
       "padded side that long",
       [&] {
         return PlanConv({{"pads", List{0, 1 << 30, 0, 1 << 30}}});
       }},  // and cudnn_test
      {"Conv or MatMul of shapes for which the library has no code, or none "
       "that answers the same each time",
       nullptr},  // the library's to say
  };
  std::ifstream file(Tree() + "/docs/operators.md");
  std::set<std::string> documented;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (line == "| `UNIMPLEMENTED` on CUDA alone |") {
      inside = true;
    } else if (line.rfind("| ", 0) != 0 && line != "|---|") {
      inside = false;
    } else if (inside && line != "|---|") {
      documented.insert(line.substr(2, line.size() - 4));
    }
  }
  std::set<std::string> checked;
  for (const auto& [row, check] : checks) {
    checked.insert(row);
    if (check == nullptr) continue;
    EXPECT_EQ(check().code(), absl::StatusCode::kUnimplemented) << row;
  }
  EXPECT_EQ(documented, checked);
}

// cuDNN takes windows and padded sides in int, and weir windows and paddings of
// which it is not the sum: one more is refused by us.
TEST_F(GeneratedKernels, ConvolutionsBeyondIntAreRefused) {
  constexpr int64_t kMost = int64_t{1} << 30;  // of an attribute
  const auto refused = [&](const char* attribute, const List& values) {
    const absl::Status status = PlanConv({{attribute, values}});
    const std::string message(status.message());
    const size_t at = message.find("; cuDNN takes 2^31 - 1");
    if (at == std::string::npos) return std::string();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
    return message.substr(0, at);
  };
  // Three taps reach over twice their distance, and one.
  EXPECT_EQ(refused("dilations", {1, kMost - 1}), "");
  EXPECT_EQ(refused("dilations", {1, kMost}), "a window of 2147483649");
  EXPECT_EQ(refused("dilations", {kMost, 1}), "a window of 2147483649");
  EXPECT_EQ(refused("strides", {kMost, kMost}), "");
  // Beside a side of 8.
  EXPECT_EQ(refused("pads", {0, kMost, 0, kMost - 9}), "");
  EXPECT_EQ(refused("pads", {0, kMost, 0, kMost - 8}),
            "a padded side of 2147483648");
  EXPECT_EQ(refused("pads", {kMost - 8, 0, kMost, 0}),
            "a padded side of 2147483648");
}

// The other way round: the code refuses nothing that the docs do not say. A new
// refusal in a kernel's code needs its row there, or a reason here why it is
// none of CUDA's alone.
TEST(RefusalsDocTest, ListsWhatTheSourcesRefuse) {
  // By how their messages begin.
  const std::map<std::string, std::string> known = {
      {"strings on a CUDA device", "| strings |"},
      {"more than ", "| Min or Max of more than 128 inputs |"},
      {" of ",
       "| Conv with a tensor of 2^31 elements or more, or with a "
       "window or a padded side that long |"},
      {"a tensor of shape [",
       "| Conv with a tensor of 2^31 elements or more, or with a window or a "
       "padded side that long |"},
      {"cuDNN has no deterministic engine for this convolution",
       "| Conv or MatMul of shapes for which the library has no code, or none "
       "that answers the same each time |"},
      {"cuBLASLt has no product of ",
       "| Conv or MatMul of shapes for which the library has no code, or none "
       "that answers the same each time |"},
      {"needs cuDNN 9: ", "| cuDNN | Conv | Conv is `UNIMPLEMENTED` |"},
      {"needs nvJPEG 13: ",
       "| nvJPEG | DecodeImage | DecodeImage is `UNIMPLEMENTED` |"},
      {"this build has no nvJPEG",
       "| nvJPEG | DecodeImage | DecodeImage is `UNIMPLEMENTED` |"},
      {"a kind of JPEG that nvJPEG lacks",
       "kinds of JPEG that nvJPEG lacks, by the CPU's decoder"},
      {"a sampling of JPEG that nvJPEG lacks",
       "components that are sampled as in none"},
      // Refused on the CPU too.
      {"Conv of integers on a CUDA device", ""},
      // No node's: a device that is none of the backend's, or only compiles; an
      // answer of a library on its way to one of those above.
      {" is not made by the CUDA backend", ""},
      {"a compiler runs no matrix products", ""},
      {"", ""},
  };
  std::ifstream file(Tree() + "/docs/operators.md");
  const std::string docs((std::istreambuf_iterator<char>(file)),
                         std::istreambuf_iterator<char>());
  const std::regex refusal(R"((UnimplementedError\(|kUnimplemented)([^;]*);)");
  const std::regex literal("\"([^\"]*)\"");
  std::set<std::string> found;
  for (const char* folder : {"/kernels/ops/cuda", "/kernels/device/cuda"}) {
    for (const auto& entry : fs::directory_iterator(Tree() + folder)) {
      std::ifstream source(entry.path());
      const std::string text((std::istreambuf_iterator<char>(source)),
                             std::istreambuf_iterator<char>());
      for (std::sregex_iterator it(text.begin(), text.end(), refusal), end;
           it != end; ++it) {
        const std::string arguments = (*it)[2];
        std::smatch begins;
        std::string message;
        if (std::regex_search(arguments, begins, literal)) message = begins[1];
        found.insert(message);
        EXPECT_TRUE(known.contains(message))
            << entry.path() << " refuses \"" << message << "\"";
      }
    }
  }
  for (const auto& [message, said] : known) {
    EXPECT_TRUE(found.contains(message)) << message;
    EXPECT_NE(docs.find(said), std::string::npos) << said;
  }
}

// Nor is there a type that the CPU takes and CUDA does not, but for text.
TEST_F(GeneratedKernels, TakeWhatTheCpuTakes) {
  const auto cpu = MakeCpuDevice({});
  std::set<std::string> taken;
  for (const OpDef* def : registry_->List()) {
    NodeInfo node = Node(std::string(def->name), std::string(def->domain));
    node.opset = 21;
    node.num_outputs = 1;
    if (def->name == "Cast") node.attributes.Set("to", int64_t{1});
    if (def->name == "Concat") node.attributes.Set("axis", int64_t{0});
    if (def->name == "MaxPool" || def->name == "AveragePool") {
      node.attributes.Set("kernel_shape", List{2, 2});
    }
    // Pictures are decoded by a library that needs a driver.
    if (def->inputs.empty() || def->name == "DecodeImage") continue;
    // Of one group at a time all types, of the others their first.
    for (size_t varied = 0; varied < def->inputs.size(); ++varied) {
      for (int type = 1; type <= 16; ++type) {
        const auto dtype = static_cast<DType>(type);
        if (!def->inputs[varied].types.Has(dtype)) continue;
        node.input_types.clear();
        bool text = false;
        for (size_t i = 0; i < def->inputs.size(); ++i) {
          const InputDef& input = def->inputs[i];
          const bool same =
              i == varied ||
              (input.group >= 0 && input.group == def->inputs[varied].group);
          node.input_types.push_back(same ? dtype : Types(input.types)[0]);
          text |= node.input_types.back() == DType::kString;
        }
        if (!registry_->CreateKernel(node, *cpu).ok()) continue;
        const absl::Status status =
            registry_->CreateKernel(node, *device_).status();
        EXPECT_TRUE(status.ok() || (text && absl::IsUnimplemented(status)))
            << status;
        taken.insert(node.op);
      }
    }
  }
  for (const OpDef* def : registry_->List()) {
    if (def->inputs.empty() || def->name == "DecodeImage") continue;
    EXPECT_TRUE(taken.contains(std::string(def->name))) << def->name;
  }
}

// Every scalar expression with every type of its first input; inputs of other
// groups take each of their types in turn.
TEST_F(GeneratedKernels, ElementwiseOperatorsOfEveryType) {
  const std::set<std::string> bool_results = {"Equal", "Less", "Greater",
                                              "Not",   "And",  "Or"};
  for (const OpDef* def : registry_->List()) {
    if (def->expression == nullptr || def->name == "Cast") continue;
    for (DType first : Types(def->inputs[0].types)) {
      Case test;
      test.node = Node(std::string(def->name), std::string(def->domain));
      DType data = first;
      for (size_t i = 0; i < def->inputs.size(); ++i) {
        const InputDef& input = def->inputs[i];
        DType dtype = first;
        if (input.group != def->inputs[0].group || input.group < 0) {
          const std::vector<DType> types = Types(input.types);
          if (i > 0) dtype = types[static_cast<size_t>(first) % types.size()];
        }
        if (def->name == "Where" && i > 0) dtype = DType::kFloat16;
        if (def->name == "Where") data = DType::kFloat16;
        test.inputs.push_back(
            Meta(dtype, i % 2 == 0 ? Dims{4, 6, 8} : Dims{6, 1}));
      }
      const DType result =
          bool_results.count(std::string(def->name)) > 0 ? DType::kBool : data;
      test.outputs = {Meta(result, {4, 6, 8})};
      Plan(test);
    }
  }
}

TEST_F(GeneratedKernels, CastBetweenAllTypes) {
  for (DType from : Types(kFixedTypes)) {
    for (DType to : Types(kFixedTypes)) {
      Case test;
      test.node = Node("Cast");
      test.node.attributes.Set("to", static_cast<int64_t>(to));
      test.inputs = {Meta(from, {64})};
      test.outputs = {Meta(to, {64})};
      Plan(test);
    }
  }
}

TEST_F(GeneratedKernels, ReductionsOfEveryType) {
  for (const char* op : {"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin"}) {
    for (DType dtype : Types(registry_->Find("", op)->inputs[0].types)) {
      for (int64_t axis : {0, 1}) {
        Case test;
        test.node = Node(op);
        test.inputs = {Meta(dtype, {512, 100000}), Meta(DType::kInt64, {1})};
        test.host_ints = {{}, {axis}};
        test.outputs = {
            Meta(dtype, axis == 0 ? Dims{1, 100000} : Dims{512, 1})};
        Plan(test);
      }
      Case all;
      all.node = Node(op);
      all.inputs = {Meta(dtype, {1 << 24})};
      all.outputs = {Meta(dtype, {1})};
      Plan(all);
    }
  }
  for (DType dtype : Types(registry_->Find("", "ArgMax")->inputs[0].types)) {
    for (int64_t last : {0, 1}) {
      Case test;
      test.node = Node("ArgMax");
      test.node.attributes.Set("select_last_index", last);
      test.inputs = {Meta(dtype, {1 << 20, 2})};
      test.outputs = {Meta(DType::kInt64, {1, 2})};
      Plan(test);
    }
  }
}

TEST_F(GeneratedKernels, NormalizationAndPooling) {
  for (DType dtype : Types(kFloatTypes)) {
    Case softmax;
    softmax.node = Node("Softmax");
    softmax.inputs = {Meta(dtype, {3, 5})};
    softmax.outputs = {Meta(dtype, {3, 5})};
    Plan(softmax);

    Case layer;
    layer.node = Node("LayerNormalization");
    layer.inputs = {Meta(dtype, {3, 8}), Meta(dtype, {8}), Meta(dtype, {8})};
    layer.outputs = {Meta(dtype, {3, 8})};
    Plan(layer);
    layer.inputs[1] = Meta(dtype, {1});
    Plan(layer);

    Case batch;
    batch.node = Node("BatchNormalization");
    batch.inputs = {Meta(dtype, {2, 3, 4, 4}), Meta(DType::kFloat, {3}),
                    Meta(DType::kFloat, {3}), Meta(DType::kFloat, {3}),
                    Meta(DType::kFloat, {3})};
    batch.outputs = {Meta(dtype, {2, 3, 4, 4})};
    Plan(batch);

    for (const char* op : {"MaxPool", "AveragePool"}) {
      Case pool;
      pool.node = Node(op);
      pool.node.attributes.Set("kernel_shape", std::vector<int64_t>{2, 2});
      pool.inputs = {Meta(dtype, {1, 1, 4, 4})};
      pool.outputs = {Meta(dtype, {1, 1, 3, 3})};
      Plan(pool);
    }
    Case global;
    global.node = Node("GlobalAveragePool");
    global.inputs = {Meta(dtype, {1, 2, 4, 4})};
    global.outputs = {Meta(dtype, {1, 2, 1, 1})};
    Plan(global);
  }
}

TEST_F(GeneratedKernels, DataMovementOfEverySize) {
  for (DType dtype :
       {DType::kInt8, DType::kFloat16, DType::kFloat, DType::kDouble}) {
    Case transpose;
    transpose.node = Node("Transpose");
    transpose.inputs = {Meta(dtype, {64, 96})};
    transpose.outputs = {Meta(dtype, {96, 64})};
    Plan(transpose);

    Case permute;
    permute.node = Node("Transpose");
    permute.node.attributes.Set("perm", std::vector<int64_t>{2, 1, 0});
    permute.inputs = {Meta(dtype, {3, 4, 5})};
    permute.outputs = {Meta(dtype, {5, 4, 3})};
    Plan(permute);

    Case concat;
    concat.node = Node("Concat");
    concat.node.attributes.Set("axis", int64_t{1});
    concat.inputs = {Meta(dtype, {2, 3}), Meta(dtype, {2, 4})};
    concat.outputs = {Meta(dtype, {2, 7})};
    Plan(concat);

    Case pad;
    pad.node = Node("Pad");
    pad.inputs = {Meta(dtype, {2, 3}), Meta(DType::kInt64, {4})};
    pad.host_ints = {{}, {1, 1, 0, 0}};
    pad.outputs = {Meta(dtype, {3, 4})};
    Plan(pad);

    for (DType index : {DType::kInt32, DType::kInt64}) {
      Case gather;
      gather.node = Node("Gather");
      gather.inputs = {Meta(dtype, {5, 3}), Meta(index, {2})};
      gather.outputs = {Meta(dtype, {2, 3})};
      Plan(gather);
    }
  }
}

// Kernels that move elements are made for a width, not for a type: what they
// do not know they cannot convert.
TEST_F(GeneratedKernels, WhatMovesDependsOnTheWidthAlone) {
  const auto plan = [this](DType dtype) {
    const TensorMeta x = Meta(dtype, {4, 6, 8});
    const auto one = [&](NodeInfo node, std::vector<TensorMeta> inputs,
                         Dims out,
                         std::vector<std::vector<int64_t>> host_ints = {}) {
      Case test;
      test.node = std::move(node);
      test.inputs = std::move(inputs);
      test.outputs = {Meta(dtype, std::move(out))};
      test.host_ints = std::move(host_ints);
      Plan(test);
    };
    const TensorMeta list = Meta(DType::kInt64, {1});
    one(Node("Identity"), {x}, x.dims);
    // Of bools the condition is a word as well: another text.
    if (dtype != DType::kBool) {
      one(Node("Where"), {Meta(DType::kBool, {6, 1}), x, Meta(dtype, {})},
          x.dims);
    }
    NodeInfo cast = Node("Cast");
    cast.attributes.Set("to", static_cast<int64_t>(dtype));
    one(cast, {x}, x.dims);
    one(Node("Transpose"), {x}, {8, 6, 4});
    one(Node("Transpose"), {Meta(dtype, {64, 64})}, {64, 64});
    one(Node("Slice"), {x, list, list}, {2, 6, 8}, {{}, {1}, {3}});
    one(Node("Expand"), {Meta(dtype, {6, 1}), Meta(DType::kInt64, {3})}, x.dims,
        {{}, {4, 6, 8}});
    NodeInfo concat = Node("Concat");
    concat.attributes.Set("axis", int64_t{0});
    one(concat, {x, x}, {8, 6, 8});
    one(Node("Split"), {x}, x.dims);
    one(Node("Pad"), {x, Meta(DType::kInt64, {6})}, {5, 6, 8},
        {{}, {1, 0, 0, 0, 0, 0}});
    one(Node("Gather"), {x, list}, {1, 6, 8});
    NodeInfo fill = Node("ConstantOfShape");
    const uint64_t pattern = 0x1234567812345678;
    const auto filling = std::make_shared<Constant>();
    filling->tensor = {dtype, {1}, &pattern};
    fill.attributes.Set("value", std::shared_ptr<const Constant>(filling));
    one(fill, {list}, {7}, {{7}});
    NodeInfo crop = Node("Crop", "weir");
    crop.attributes.Set("crop_w", 2.0f);
    one(crop, {x}, {4, 2, 8});
    one(Node("Flip", "weir"), {x}, x.dims);
    if (!kNumericTypes.Has(dtype)) return;
    one(Node("Clip"), {x}, x.dims);
    one(Node("Max"), {x}, x.dims);
    one(Node("Min"), {x}, x.dims);
  };
  const auto compiled = [this] {
    return device_->kernels().stats().misses_total +
           device_->kernels().stats().disk_hits_total;
  };
  for (DType dtype :
       {DType::kUint8, DType::kUint16, DType::kUint32, DType::kUint64}) {
    plan(dtype);
  }
  EXPECT_GT(compiled(), 0u);
  for (DType dtype : Types(kFixedTypes)) {
    SCOPED_TRACE(std::string(DTypeName(dtype)));
    const uint64_t before = compiled();
    plan(dtype);
    EXPECT_EQ(compiled(), before);
  }
}

TEST_F(GeneratedKernels, IntegerProducts) {
  for (DType dtype : Types(registry_->Find("", "MatMul")->inputs[0].types)) {
    if (IsFloating(dtype)) continue;
    Case test;
    test.node = Node("MatMul");
    test.inputs = {Meta(dtype, {3, 4}), Meta(dtype, {4, 5})};
    test.outputs = {Meta(dtype, {3, 5})};
    Plan(test);
    test.node = Node("Gemm");
    test.node.attributes.Set("alpha", 0.5f);
    test.node.attributes.Set("beta", -2.0f);
    test.inputs.push_back(Meta(dtype, {3, 1}));
    Plan(test);
  }
}

// Those of a convolution that are no library's.
TEST_F(GeneratedKernels, Convolutions) {
  for (DType dtype : Types(kFloatTypes)) {
    for (const char* activation : {"", "Relu", "Clip"}) {
      for (const Layout layout : {Layout::kRowMajor, Layout::kChannelsLast}) {
        Case conv;
        conv.node = Node("FusedConv", "weir");
        conv.node.attributes.Set("activation", std::string(activation));
        conv.inputs = {Meta(dtype, {1, 4, 8, 8}), Meta(dtype, {4, 1, 3, 3}),
                       Meta(dtype, {4}), Meta(dtype, {1, 4, 6, 6})};
        conv.outputs = {Meta(dtype, {1, 4, 6, 6})};
        conv.inputs[0].layout = conv.outputs[0].layout = layout;
        Case grouped = conv;
        grouped.node.attributes.Set("group", int64_t{4});
        Plan(grouped);
        conv.inputs[0] = Meta(dtype, {1, 0, 8, 8});
        conv.inputs[1] = Meta(dtype, {4, 0, 3, 3});
        Plan(conv);
      }
    }
  }
}

// What a caller may choose at will is an argument: a graph of many nodes does
// not compile as many kernels.
TEST_F(GeneratedKernels, AttributesThatAreNumbersCompileNothing) {
  const auto compiled = [this] {
    return device_->kernels().stats().misses_total +
           device_->kernels().stats().disk_hits_total;
  };
  uint64_t after_first = 0;
  for (int i = 0; i < 4; ++i) {
    const float value = 0.25f + static_cast<float>(i);
    Case batch;
    batch.node = Node("BatchNormalization");
    batch.node.attributes.Set("epsilon", value);
    batch.inputs.assign(5, Meta(DType::kFloat, {3}));
    batch.inputs[0] = Meta(DType::kFloat, {2, 3, 4, 4});
    batch.outputs = {Meta(DType::kFloat, {2, 3, 4, 4})};
    Plan(batch);

    Case gemm;
    gemm.node = Node("Gemm");
    gemm.node.attributes.Set("alpha", value);
    gemm.node.attributes.Set("beta", -value);
    gemm.inputs = {Meta(DType::kInt32, {3, 4}), Meta(DType::kInt32, {4, 5}),
                   Meta(DType::kInt32, {3, 1})};
    gemm.outputs = {Meta(DType::kInt32, {3, 5})};
    Plan(gemm);
    // Of nothing: the addend alone.
    gemm.inputs[0] = Meta(DType::kInt32, {3, 0});
    gemm.inputs[1] = Meta(DType::kInt32, {0, 5});
    Plan(gemm);

    const auto filling = std::make_shared<Constant>();
    filling->tensor = {DType::kFloat, {1}, &value};
    Case fill;
    fill.node = Node("ConstantOfShape");
    fill.node.attributes.Set("value", std::shared_ptr<const Constant>(filling));
    fill.inputs = {Meta(DType::kInt64, {1})};
    fill.host_ints = {{7}};
    fill.outputs = {Meta(DType::kFloat, {7})};
    Plan(fill);

    // One filter for each channel; then of no channel: the bias alone.
    Case conv;
    conv.node = Node("FusedConv", "weir");
    conv.node.attributes.Set("activation", std::string("Clip"));
    conv.node.attributes.Set("low", -value);
    conv.node.attributes.Set("high", value);
    conv.inputs = {Meta(DType::kFloat, {1, 4, 8, 8}),
                   Meta(DType::kFloat, {4, 1, 3, 3}), Meta(DType::kFloat, {4})};
    conv.outputs = {Meta(DType::kFloat, {1, 4, 6, 6})};
    Case grouped = conv;
    grouped.node.attributes.Set("group", int64_t{4});
    Plan(grouped);
    conv.inputs[0] = Meta(DType::kFloat, {1, 0, 8, 8});
    conv.inputs[1] = Meta(DType::kFloat, {4, 0, 3, 3});
    Plan(conv);
    if (i == 0) after_first = compiled();
  }
  EXPECT_GE(after_first, 6u);
  EXPECT_EQ(compiled(), after_first);
}

// Too many calls for the library, or too many matrices for one of them: one
// launch, and no table of them.
TEST_F(GeneratedKernels, ManySmallProducts) {
  for (DType dtype : Types(registry_->Find("", "MatMul")->inputs[0].types)) {
    Case test;
    test.node = Node("MatMul");
    test.inputs = {Meta(dtype, {1 << 16, 1, 1, 1}),
                   Meta(dtype, {1, 1 << 16, 1, 1})};
    test.outputs = {Meta(dtype, {1 << 16, 1 << 16, 1, 1})};
    Plan(test);
  }
}

TEST_F(GeneratedKernels, ProductsOfNothing) {
  for (DType dtype : Types(registry_->Find("", "Gemm")->inputs[0].types)) {
    Case test;
    test.node = Node("Gemm");
    test.node.attributes.Set("beta", -2.0f);
    test.inputs = {Meta(dtype, {3, 0}), Meta(dtype, {0, 5}), Meta(dtype, {5})};
    test.outputs = {Meta(dtype, {3, 5})};
    Plan(test);
  }
}

TEST_F(GeneratedKernels, Pictures) {
  for (DType dtype : {DType::kUint8, DType::kFloat}) {
    for (const char* type : {"linear", "nearest"}) {
      Case resize;
      resize.node = Node("Resize", "weir");
      resize.node.attributes.Set("resize_shorter", 256.0f);
      resize.node.attributes.Set("interp_type", std::string(type));
      resize.inputs = {Meta(dtype, {480, 640, 3})};
      resize.outputs = {Meta(dtype, {256, 341, 3})};
      Plan(resize);
    }
    for (DType to : {DType::kFloat, DType::kFloat16, DType::kBfloat16,
                     DType::kUint8, DType::kInt8}) {
      Case normalize;
      normalize.node = Node("Normalize", "weir");
      normalize.node.attributes.Set("dtype", static_cast<int64_t>(to));
      normalize.inputs = {Meta(dtype, {4, 4, 3})};
      normalize.outputs = {Meta(to, {4, 4, 3})};
      Plan(normalize);
    }
    Case flip;
    flip.node = Node("Flip", "weir");
    flip.inputs = {Meta(dtype, {4, 4, 3})};
    flip.outputs = {Meta(dtype, {4, 4, 3})};
    Plan(flip);
    Case crop;
    crop.node = Node("Crop", "weir");
    crop.node.attributes.Set("crop_w", 2.0f);
    crop.inputs = {Meta(dtype, {4, 4, 3})};
    crop.outputs = {Meta(dtype, {4, 2, 3})};
    Plan(crop);
  }
}

TEST_F(GeneratedKernels, RandomAndTestOperators) {
  for (DType dtype : Types(kFloatTypes)) {
    Case random;
    random.node = Node("RandomUniform", "weir");
    random.node.attributes.Set("shape", std::vector<int64_t>{4, 4});
    random.node.attributes.Set("dtype", static_cast<int64_t>(dtype));
    random.outputs = {Meta(dtype, {4, 4})};
    Plan(random);
  }
  for (const char* mode : {"report", "index", "illegal_address", "trap"}) {
    Case fault;
    fault.node = Node("Fault", "weir");
    fault.node.attributes.Set("mode", std::string(mode));
    fault.inputs = {Meta(DType::kFloat, {4})};
    fault.outputs = {Meta(DType::kFloat, {4})};
    Plan(fault);
  }
  Case spin;
  spin.node = Node("Spin", "weir");
  spin.inputs = {Meta(DType::kFloat, {4})};
  spin.outputs = {Meta(DType::kFloat, {4})};
  Plan(spin);
}

// The text of a kernel depends on what the shapes have in common, not on the
// shapes: a new shape must not compile.
TEST_F(GeneratedKernels, ANewShapeCompilesNothing) {
  const auto plan = [&](int64_t n) {
    Case test;
    test.node = Node("Add");
    test.inputs = {Meta(DType::kFloat, {n, 8}), Meta(DType::kFloat, {8})};
    test.outputs = {Meta(DType::kFloat, {n, 8})};
    Plan(test);
  };
  plan(2);
  const uint64_t compiled = device_->kernels().stats().misses_total;
  for (int64_t n = 3; n < 20; ++n) plan(n);
  EXPECT_EQ(device_->kernels().stats().misses_total, compiled);
}

// Layouts by hand: what is merged, and how many elements a thread takes.
TEST(ElementwiseLayout, MergesWhatLiesTogether) {
  cuda::ElementwiseSpec spec;
  spec.expression = "x0";
  spec.output = DType::kFloat;
  spec.dims = {2, 3, 4};
  spec.inputs = {{DType::kFloat, {12, 4, 1}, 0}, {DType::kFloat, {0, 0, 0}, 0}};
  cuda::ElementwiseLayout layout = cuda::LayOut(spec);
  EXPECT_EQ(layout.dims, (Dims{24}));
  EXPECT_EQ(layout.vector, 4);

  spec.inputs[1].strides = {0, 0, 1};  // a bias
  layout = cuda::LayOut(spec);
  EXPECT_EQ(layout.dims, (Dims{6, 4}));
  EXPECT_EQ(layout.strides[1], (Dims{0, 1}));
  EXPECT_EQ(layout.vector, 4);

  spec.inputs[1].strides = {1, 2, 6};  // transposed
  layout = cuda::LayOut(spec);
  EXPECT_EQ(layout.vector, 1);
  EXPECT_FALSE(layout.wide);

  spec.dims = {int64_t{1} << 33};
  spec.inputs = {{DType::kFloat, {1}, 0}};
  EXPECT_TRUE(cuda::LayOut(spec).wide);

  spec.dims = {};
  spec.inputs = {{DType::kFloat, {}, 0}};
  EXPECT_EQ(cuda::LayOut(spec).dims, (Dims{1}));
}

}  // namespace
}  // namespace weir
