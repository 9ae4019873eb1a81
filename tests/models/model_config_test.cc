#include "server/models/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "proto/inference/model_config.pb.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

DeviceInfo DeviceOf(DeviceKind kind) {
  DeviceInfo device;
  device.kind = kind;
  device.ordinal = kind == DeviceKind::kCpu ? 0 : 2;
  return device;
}

// As of a server with one device that runs the model.
absl::StatusOr<inference::ModelConfig> Read(
    std::string_view text, DeviceKind kind = DeviceKind::kCpu) {
  auto config = ReadModelConfig(text, "digits");
  if (!config.ok()) return config;
  const absl::Status possible =
      CheckInstances(*config, DeviceOf(kind), /*has_host=*/false);
  if (!possible.ok()) return possible;
  CompleteInstances(DeviceOf(kind), &*config);
  return config;
}

void ExpectError(const absl::Status& status, absl::StatusCode code,
                 std::vector<std::string> words) {
  EXPECT_EQ(status.code(), code) << status;
  for (const std::string& word : words) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(word));
  }
}

const std::vector<ValueDecl> kInputs = {
    {"x", DType::kFloat, SymbolicDims{Dim::Symbol(0), Dim(64)}}};
const std::vector<ValueDecl> kOutputs = {
    {"y", DType::kInt64, SymbolicDims{Dim::Symbol(0)}}};

absl::StatusOr<ModelInterface> Complete(std::string_view text) {
  auto config = Read(text);
  if (!config.ok()) return config.status();
  return CompleteModelConfig(kInputs, kOutputs, {}, &*config);
}

TEST(ModelConfigTest, ReadsTritonsText) {
  const auto config = Read(R"(
      name: "digits"
      platform: "onnxruntime_onnx"
      max_batch_size: 8
      input [ { name: "x" data_type: TYPE_FP32 dims: [ 64 ] } ]
      output [ { name: "y" data_type: TYPE_INT64 dims: [] } ]
      dynamic_batching { max_queue_delay_microseconds: 100 }
      version_policy: { specific { versions: [ 2, 1 ] } })");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->max_batch_size(), 8);
  EXPECT_EQ(config->platform(), "onnx_weir");
}

TEST(ModelConfigTest, NothingIsAConfiguration) {
  const auto config = Read("");
  ASSERT_TRUE(config.ok());
  EXPECT_EQ(config->name(), "digits");
  EXPECT_EQ(config->max_batch_size(), 0);
}

TEST(ModelConfigTest, SaysWhatItLeavesOut) {
  auto config = Read("");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->backend(), "weir");
  EXPECT_EQ(config->default_model_filename(), "model.onnx");
  EXPECT_EQ(config->version_policy().latest().num_versions(), 1u);
  ASSERT_EQ(config->instance_group_size(), 1);
  EXPECT_EQ(config->instance_group(0).name(), "digits_0");
  EXPECT_EQ(config->instance_group(0).count(), 1);
  EXPECT_EQ(config->instance_group(0).kind(),
            inference::ModelInstanceGroup::KIND_CPU);
  EXPECT_THAT(config->instance_group(0).gpus(), IsEmpty());
  EXPECT_THAT(FieldsWithoutEffect(*config, DeviceOf(DeviceKind::kCpu)),
              IsEmpty());

  config = Read("", DeviceKind::kCuda);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->instance_group(0).kind(),
            inference::ModelInstanceGroup::KIND_GPU);
  EXPECT_THAT(config->instance_group(0).gpus(), ElementsAre(2));

  // What it does say stays.
  config = Read(R"(
      default_model_filename: "net.onnx"
      version_policy { all {} }
      instance_group [ { name: "mine" count: 3 gpus: [ 2 ] }, {} ])",
                DeviceKind::kCuda);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->default_model_filename(), "net.onnx");
  EXPECT_TRUE(config->version_policy().has_all());
  ASSERT_EQ(config->instance_group_size(), 2);
  EXPECT_EQ(config->instance_group(0).name(), "mine");
  EXPECT_EQ(config->instance_group(0).count(), 3);
  EXPECT_THAT(config->instance_group(0).gpus(), ElementsAre(2));
  EXPECT_EQ(config->instance_group(1).name(), "digits_1");
  EXPECT_THAT(config->instance_group(1).gpus(), ElementsAre(2));
}

TEST(ModelConfigTest, SaysWhereTheTextIsWrong) {
  ExpectError(Read("name: \"digits\"\nmax_batch_sizes: 3").status(),
              absl::StatusCode::kInvalidArgument,
              {"line 2", "max_batch_sizes"});
  ExpectError(Read("{{{").status(), absl::StatusCode::kInvalidArgument,
              {"line 1"});
  ExpectError(Read("name: \"other\"").status(),
              absl::StatusCode::kInvalidArgument, {"other", "digits"});
  ExpectError(Read("max_batch_size: -1").status(),
              absl::StatusCode::kInvalidArgument, {"max_batch_size"});
  ExpectError(Read("default_model_filename: \"../x\"").status(),
              absl::StatusCode::kInvalidArgument, {"default_model_filename"});
}

TEST(ModelConfigTest, RefusesWhatWeirDoesNotDo) {
  ExpectError(Read("platform: \"tensorrt_plan\"").status(),
              absl::StatusCode::kUnimplemented,
              {"tensorrt_plan", "is not supported"});
  ExpectError(Read("backend: \"python\"").status(),
              absl::StatusCode::kUnimplemented, {"python"});
  ExpectError(Read("model_transaction_policy { decoupled: true }").status(),
              absl::StatusCode::kUnimplemented, {"decoupled", "not supported"});
  ExpectError(Read("response_cache { enable: true }").status(),
              absl::StatusCode::kUnimplemented,
              {"response_cache is not supported"});
  ExpectError(Read("input { name: \"x\" reshape { shape: [1] } }").status(),
              absl::StatusCode::kUnimplemented,
              {"\"x\"", "reshape", "is not supported"});
  ExpectError(Read("instance_group { kind: KIND_GPU }").status(),
              absl::StatusCode::kFailedPrecondition, {"GPU"});
  EXPECT_TRUE(
      Read("instance_group { kind: KIND_GPU }", DeviceKind::kCuda).ok());
  ExpectError(
      Read("instance_group { kind: KIND_CPU }", DeviceKind::kCuda).status(),
      absl::StatusCode::kFailedPrecondition, {"CPU"});
}

// A GPU with the CPU beside it.
TEST(ModelConfigTest, ChoosesBetweenGpuAndCpu) {
  const auto check = [](const char* text, bool wants_cpu) {
    const auto config = ReadModelConfig(text, "digits");
    ASSERT_TRUE(config.ok()) << config.status();
    EXPECT_TRUE(CheckInstances(*config, DeviceOf(DeviceKind::kCuda),
                               /*has_host=*/true)
                    .ok())
        << text;
    EXPECT_EQ(WantsCpu(*config), wants_cpu) << text;
  };
  check("", false);
  check("instance_group {}", false);
  check("instance_group { kind: KIND_MODEL }", false);
  check("instance_group { kind: KIND_GPU }", false);
  check("instance_group { kind: KIND_CPU }", true);
  check("instance_group [ { kind: KIND_CPU }, { kind: KIND_CPU count: 2 } ]",
        true);
  check("instance_group [ { kind: KIND_CPU }, { kind: KIND_GPU } ]", false);
}

TEST(ModelConfigTest, SaysWhichInstancesAreElsewhere) {
  auto config = *ReadModelConfig(
      "instance_group { kind: KIND_GPU gpus: [ 2 ] }", "digits");
  const DeviceInfo cpu = DeviceOf(DeviceKind::kCpu);
  const DeviceInfo gpu = DeviceOf(DeviceKind::kCuda);
  EXPECT_THAT(FieldsWithoutEffect(config, gpu), IsEmpty());
  // A model with text, say.
  EXPECT_THAT(FieldsWithoutEffect(config, cpu),
              ElementsAre("instance_group.kind KIND_GPU (it runs on cpu)"));
  CompleteInstances(cpu, &config);
  EXPECT_EQ(config.instance_group(0).kind(),
            inference::ModelInstanceGroup::KIND_CPU);
  EXPECT_THAT(config.instance_group(0).gpus(), IsEmpty());
  config = *ReadModelConfig(
      "instance_group [ { kind: KIND_CPU }, { kind: KIND_GPU } ]", "digits");
  EXPECT_THAT(FieldsWithoutEffect(config, gpu),
              ElementsAre("instance_group.kind KIND_CPU (it runs on cuda:2)"));
}

TEST(ModelConfigTest, RefusesInstancesThatThereAreNot) {
  constexpr auto kElsewhere = absl::StatusCode::kFailedPrecondition;
  ExpectError(
      Read("instance_group { gpus: [ 2, 5 ] }", DeviceKind::kCuda).status(),
      kElsewhere, {"gpus lists 5", "cuda:2"});
  ExpectError(Read("instance_group { gpus: 0 }").status(), kElsewhere,
              {"gpus lists 0", "are on cpu"});
  EXPECT_TRUE(Read("instance_group { gpus: 2 }", DeviceKind::kCuda).ok());
  ExpectError(Read("instance_group { kind: KIND_CPU gpus: 0 }").status(),
              absl::StatusCode::kInvalidArgument, {"gpus", "KIND_CPU"});
  ExpectError(Read("instance_group { count: -3 }").status(),
              absl::StatusCode::kInvalidArgument, {"instance_group", "-3"});
}

TEST(ModelConfigTest, SaysWhatHasNoEffect) {
  const auto ignored = [](const std::string& text) {
    const auto config = Read(text);
    EXPECT_TRUE(config.ok()) << config.status();
    return config.ok()
               ? FieldsWithoutEffect(*config, DeviceOf(DeviceKind::kCpu))
               : std::vector<std::string>();
  };
  const std::pair<const char*, const char*> cases[] = {
      {"instance_group { count: 4 }", "instance_group.count 4"},
      {"instance_group { kind: KIND_MODEL }", "instance_group.kind KIND_MODEL"},
      {"instance_group { profile: \"p\" }", "instance_group.profile"},
      {"instance_group { rate_limiter { priority: 2 } }",
       "instance_group.rate_limiter"},
      {"instance_group [ { passive: true }, { passive: true } ]",
       "instance_group.passive"},
      {"instance_group { host_policy: \"p\" }", "instance_group.host_policy"},
      {"input { name: \"x\" format: FORMAT_NCHW }", "input.format"},
      {"output { name: \"y\" label_filename: \"l.txt\" }",
       "output.label_filename"},
      {"optimization {}", "optimization"},
      {"optimization { graph { level: 1 } cuda { graphs: true } "
       "execution_accelerators { gpu_execution_accelerator { "
       "name: \"tensorrt\" parameters { key: \"a\" value: \"b\" } } } "
       "input_pinned_memory { enable: false } eager_batching: true }",
       "optimization"},
      {"runtime: \"libx.so\"", "runtime"},
      {"dynamic_batching {}", "dynamic_batching"}};
  for (const auto& [text, field] : cases) {
    EXPECT_THAT(ignored(text), ElementsAre(field)) << text;
  }
  EXPECT_THAT(ignored("instance_group { name: \"a\" count: 1 kind: KIND_CPU }"),
              IsEmpty());
}

TEST(ModelConfigTest, NamesWhatIsTritonsAlone) {
  for (const char* field : {"sequence_batching", "ensemble_scheduling",
                            "model_repository_agents"}) {
    ExpectError(Read(std::string(field) + " { anything: [ 1 ] }").status(),
                absl::StatusCode::kUnimplemented,
                {std::string(field) + " is not supported", "line 1"});
  }
  for (const char* text :
       {"instance_group { secondary_devices { kind: KIND_NVDLA } }",
        "input { name: \"x\" is_non_linear_format_io: true }",
        "output { name: \"y\" is_non_linear_format_io: true }"}) {
    ExpectError(Read(text).status(), absl::StatusCode::kUnimplemented,
                {" is not supported", "line 1"});
  }
  // The name alone says nothing: the model has no such field, with Triton
  // neither.
  ExpectError(Read("is_non_linear_format_io: true").status(),
              absl::StatusCode::kInvalidArgument, {"no field named"});
  ExpectError(Read("version_policy { specific { versions: [1, 0] } }").status(),
              absl::StatusCode::kInvalidArgument,
              {"version_policy", "version 0"});
  ExpectError(Read("version_policy { specific {} }").status(),
              absl::StatusCode::kInvalidArgument,
              {"version_policy", "no version"});
}

TEST(ModelConfigTest, ChoosesOutputs) {
  Graph graph;
  graph.outputs = {"a", "b", "c"};
  for (const std::string& name : graph.outputs) {
    graph.declared_outputs.push_back({name, DType::kFloat, std::nullopt});
  }
  Graph all = graph;
  ChooseOutputs(*Read(""), &all);
  EXPECT_THAT(all.outputs, ElementsAre("a", "b", "c"));
  ChooseOutputs(*Read("output [ { name: \"c\" }, { name: \"a\" } ]"), &graph);
  EXPECT_THAT(graph.outputs, ElementsAre("c", "a"));
  ASSERT_EQ(graph.declared_outputs.size(), 2u);
  EXPECT_EQ(graph.declared_outputs[0].name, "c");
}

// A look through all of them for each would take minutes.
TEST(ModelConfigTest, TakesManyTensors) {
  constexpr int kTensors = 100'000;
  Graph graph;
  std::vector<ValueDecl> decls;
  inference::ModelConfig config = *Read("");
  for (int i = kTensors; i-- > 0;) {
    decls.push_back({absl::StrCat("y", i), DType::kFloat, SymbolicDims{1}});
    graph.outputs.push_back(decls.back().name);
  }
  graph.declared_outputs = decls;
  for (int i = 0; i < kTensors; ++i) {
    auto& output = *config.add_output();
    output.set_name(absl::StrCat("y", i));
    output.set_data_type(inference::TYPE_FP32);
    output.add_dims(1);
  }
  ChooseOutputs(config, &graph);
  ASSERT_EQ(graph.outputs.size(), size_t{kTensors});
  EXPECT_EQ(graph.outputs.back(), decls.front().name);
  EXPECT_EQ(graph.declared_outputs.back().name, decls.front().name);
  const auto interface =
      CompleteModelConfig({}, graph.declared_outputs, {}, &config);
  ASSERT_TRUE(interface.ok()) << interface.status();
  EXPECT_EQ(interface->outputs.size(), size_t{kTensors});
}

TEST(ModelConfigTest, ChoosesVersions) {
  const std::vector<int64_t> existing = {1, 3, 10};
  const auto choose = [&](std::string_view text) {
    return ChooseVersions(*Read(text), existing);
  };
  EXPECT_THAT(choose(""), ElementsAre(10));
  EXPECT_THAT(choose("version_policy { latest { num_versions: 2 } }"),
              ElementsAre(3, 10));
  EXPECT_THAT(choose("version_policy { latest { num_versions: 9 } }"),
              ElementsAre(1, 3, 10));
  EXPECT_THAT(choose("version_policy { all {} }"), ElementsAre(1, 3, 10));
  EXPECT_THAT(choose("version_policy { specific { versions: [3, 2, 3] } }"),
              ElementsAre(2, 3));
}

TEST(ModelConfigTest, TakesTheModelsOwnShapes) {
  const auto interface = Complete("");
  ASSERT_TRUE(interface.ok()) << interface.status();
  EXPECT_EQ(interface->inputs[0].name, "x");
  EXPECT_EQ(DimsString(interface->inputs[0].shape), "[-1,64]");
  EXPECT_EQ(DimsString(interface->outputs[0].shape), "[-1]");
}

TEST(ModelConfigTest, DimsExcludeTheBatch) {
  const auto interface = Complete(R"(
      max_batch_size: 4
      input { name: "x" data_type: TYPE_FP32 dims: [ 64 ] }
      output { name: "y" data_type: TYPE_INT64 })");
  ASSERT_TRUE(interface.ok()) << interface.status();
  EXPECT_EQ(DimsString(interface->inputs[0].shape), "[-1,64]");
}

TEST(ModelConfigTest, CompletesTheConfiguration) {
  auto config = Read("max_batch_size: 4");
  ASSERT_TRUE(CompleteModelConfig(kInputs, kOutputs, {}, &*config).ok());
  ASSERT_EQ(config->input_size(), 1);
  EXPECT_EQ(config->input(0).data_type(), inference::TYPE_FP32);
  EXPECT_THAT(std::vector<int64_t>(config->input(0).dims().begin(),
                                   config->input(0).dims().end()),
              ElementsAre(64));
}

TEST(ModelConfigTest, MayNarrowWhatTheModelLeavesOpen) {
  const auto interface =
      Complete("input { name: \"x\" data_type: TYPE_FP32 dims: [ 3, 64 ] }");
  ASSERT_TRUE(interface.ok()) << interface.status();
  EXPECT_EQ(DimsString(interface->inputs[0].shape), "[3,64]");
}

TEST(ModelConfigTest, MustFitTheModel) {
  const auto bad = absl::StatusCode::kInvalidArgument;
  ExpectError(
      Complete("input { name: \"x\" data_type: TYPE_FP16 dims: [-1,64] }")
          .status(),
      bad, {"\"x\"", "TYPE_FP16", "TYPE_FP32"});
  ExpectError(Complete("input { name: \"x\" data_type: TYPE_FP32 dims: [64] }")
                  .status(),
              bad, {"\"x\"", "[64]", "[-1,64]"});
  ExpectError(
      Complete("input { name: \"x\" data_type: TYPE_FP32 dims: [-1,63] }")
          .status(),
      bad, {"\"x\"", "[-1,63]"});
  ExpectError(
      Complete("input { name: \"x\" data_type: TYPE_FP32 dims: [-5,64] }")
          .status(),
      bad, {"\"x\"", "-5"});
  ExpectError(Complete("input { name: \"z\" data_type: TYPE_FP32 }").status(),
              bad, {"\"x\"", "does not list"});
  ExpectError(Complete("output { name: \"z\" data_type: TYPE_FP32 }").status(),
              bad, {"\"z\"", "none of this name"});
  ExpectError(Complete("output { name: \"y\" data_type: TYPE_INT64 dims: [-1] }"
                       "output { name: \"y\" data_type: TYPE_FP32 }")
                  .status(),
              bad, {"\"y\"", "listed twice"});
}

TEST(ModelConfigTest, ABatchNeedsAnOpenFirstAxis) {
  auto config = *Read("max_batch_size: 2");
  const std::vector<ValueDecl> fixed = {
      {"x", DType::kFloat, SymbolicDims{Dim(1), Dim(64)}}};
  ExpectError(CompleteModelConfig(fixed, kOutputs, {}, &config).status(),
              absl::StatusCode::kInvalidArgument,
              {"\"x\"", "max_batch_size", "[1,64]"});
  config = *Read("max_batch_size: 2");
  const std::vector<ValueDecl> unknown = {{"y", DType::kFloat, std::nullopt}};
  ExpectError(CompleteModelConfig(kInputs, unknown, {}, &config).status(),
              absl::StatusCode::kInvalidArgument, {"\"y\"", "rank"});
}

// A file may say how many rows its example had where nothing else is known.
TEST(ModelConfigTest, ABatchOpensTheFirstAxisOfADeclarationAlone) {
  auto config = *Read("max_batch_size: 4");
  const std::vector<ValueDecl> unknown = {{"y", DType::kFloat, std::nullopt}};
  const std::vector<ValueDecl> declared = {
      {"y", DType::kFloat, SymbolicDims{Dim(1), Dim(3)}}};
  auto interface = CompleteModelConfig(kInputs, unknown, declared, &config);
  ASSERT_TRUE(interface.ok()) << interface.status();
  EXPECT_EQ(DimsString(interface->outputs[0].shape), "[-1,3]");
  config = *Read("");
  interface = CompleteModelConfig(kInputs, unknown, declared, &config);
  ASSERT_TRUE(interface.ok()) << interface.status();
  EXPECT_EQ(DimsString(interface->outputs[0].shape), "[1,3]");
}

TEST(ModelConfigTest, TheFilesDeclarationsHelp) {
  auto config = *Read("");
  const std::vector<ValueDecl> unknown = {{"y", DType::kFloat, std::nullopt}};
  auto interface = CompleteModelConfig(kInputs, unknown, {}, &config);
  ASSERT_TRUE(interface.ok());
  EXPECT_EQ(DimsString(interface->outputs[0].shape), "[-1]");
  config = *Read("");
  const std::vector<ValueDecl> declared = {
      {"y", DType::kFloat, SymbolicDims{Dim(), Dim(10)}}};
  interface = CompleteModelConfig(kInputs, unknown, declared, &config);
  ASSERT_TRUE(interface.ok());
  EXPECT_EQ(DimsString(interface->outputs[0].shape), "[-1,10]");
}

// Nothing is known to compare them with: they are what clients are told.
TEST(ModelConfigTest, DimsServeWhereTheModelDeclaresNoRank) {
  const std::vector<ValueDecl> no_x = {{"x", DType::kFloat, std::nullopt}};
  const std::vector<ValueDecl> no_y = {{"y", DType::kFloat, std::nullopt}};
  const auto complete = [&](const std::string& text) {
    auto config = Read(text);
    EXPECT_TRUE(config.ok()) << config.status();
    return CompleteModelConfig(no_x, no_y, {}, &*config);
  };
  for (const auto& [dims, shape] :
       std::vector<std::pair<std::string, std::string>>{
           {"[]", "[]"},
           {"[-1]", "[-1]"},
           {"[-1,3]", "[-1,3]"},
           {"[-1,-1]", "[-1,-1]"},
           {"[1,2,3]", "[1,2,3]"}}) {
    const auto interface = complete(
        "input { name: \"x\" data_type: TYPE_FP32 dims: " + dims +
        " } output { name: \"y\" data_type: TYPE_FP32 dims: " + dims + " }");
    ASSERT_TRUE(interface.ok()) << interface.status();
    EXPECT_EQ(DimsString(interface->inputs[0].shape), shape);
    EXPECT_EQ(DimsString(interface->outputs[0].shape), shape);
  }
  const auto batched = complete(R"(
      max_batch_size: 2
      input { name: "x" data_type: TYPE_FP32 dims: [ 5 ] }
      output { name: "y" data_type: TYPE_FP32 dims: [ 6, -1 ] })");
  ASSERT_TRUE(batched.ok()) << batched.status();
  EXPECT_EQ(DimsString(batched->inputs[0].shape), "[-1,5]");
  EXPECT_EQ(DimsString(batched->outputs[0].shape), "[-1,6,-1]");
}

}  // namespace
}  // namespace weir
