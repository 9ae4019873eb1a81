// A server whose device cannot read text has the CPU beside it: what goes
// there, what does not, and who tells. The device is the one under test if that
// is a GPU, else one that plays a GPU.
#include <gmock/gmock.h>

#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "kernels/ops/registry.h"
#include "server/device_list.h"
#include "tests/device/fault_injecting_device.h"
#include "tests/graph/plan_runner.h"
#include "tests/server/model_folder.h"
#include "tests/server/server_fixture.h"

namespace weir::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Group = inference::ModelInstanceGroup;

constexpr char kGpu[] = "cuda:0";

// Copies numbers, and refuses text as the kernels of a GPU do.
absl::StatusOr<std::unique_ptr<const Kernel>> MakeCopy(const NodeInfo& node,
                                                       Device&) {
  if (node.input_types[0] == DType::kString) {
    return absl::UnimplementedError("no text on this device");
  }
  return MakeKernel([](const PlanArgs& args) -> absl::StatusOr<RunFunction> {
    return RunFunction([bytes = args.inputs[0].bytes](const RunArgs& run) {
      std::memcpy(run.outputs[0], run.inputs[0], bytes);
      return absl::OkStatus();
    });
  });
}

absl::StatusOr<std::unique_ptr<Device>> MakeFarDevice(std::string_view,
                                                      const DeviceOptions&,
                                                      OpRegistry& registry) {
  WEIR_RETURN_IF_ERROR(
      registry.RegisterKernel(DeviceKind::kCuda, "", "Identity", MakeCopy));
  // Its streams say whose they are.
  return std::make_unique<FaultInjectingDevice>(std::make_unique<FarDevice>());
}

class TextTest : public ::testing::Test {
 protected:
  TextTest() {
    models_.Write("floats", IdentityModel(onnx::TensorProto::FLOAT));
    models_.Write("here", IdentityModel(onnx::TensorProto::FLOAT));
    models_.WriteConfig("here", "instance_group { kind: KIND_CPU }");
    models_.Write("strings", IdentityModel(onnx::TensorProto::STRING));
    models_.WriteConfig("strings", "instance_group { kind: KIND_GPU }");
    server_ = std::make_unique<TestServer>([this](ServerOptions& options) {
      options.model_repository = models_.path();
      if (TestDevice() == "cpu") options.make_device = MakeFarDevice;
    });
    v1::ListDevicesResponse devices;
    grpc::ClientContext context;
    SetPatience(&context);
    EXPECT_TRUE(server_->catalog().ListDevices(&context, {}, &devices).ok());
    for (const v1::Device& device : devices.devices()) {
      names_.push_back(device.name());
      (device.name() == kGpu ? gpu_ : cpu_) = device.uuid();
      EXPECT_EQ(device.is_default(), device.name() == kGpu);
      EXPECT_EQ(device.failure(), "");
    }
  }

  // y = x, and with numbers m = n.
  static v1::EvaluateRequest TextRequest(bool with_numbers) {
    v1::EvaluateRequest request = Program(with_numbers ? R"(
            inputs { name: "x" }
            inputs { name: "n" }
            nodes { op: "Identity" inputs: "x" outputs: "y" }
            nodes { op: "Identity" inputs: "n" outputs: "m" }
            outputs: "y"
            outputs: "m")"
                                                       : R"(
            inputs { name: "x" }
            nodes { op: "Identity" inputs: "x" outputs: "y" }
            outputs: "y")");
    AddInput(&request, "x", v1::DATA_TYPE_STRING, {2},
             BytesElements({"one", "two"}));
    if (with_numbers) {
      AddInput(&request, "n", v1::DATA_TYPE_FLOAT, {2}, Bytes<float>({1, 2}));
    }
    return Telling(std::move(request));
  }

  static v1::EvaluateRequest Telling(v1::EvaluateRequest request) {
    request.set_report_settings(true);
    request.set_report(v1::REPORT_LEVEL_FULL);
    return request;
  }
  // Where it ran, as the reply tells twice.
  static std::string DeviceOf(const EvaluateAnswer& answer) {
    EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
    const v1::EvaluateResponse& response = answer.response;
    EXPECT_EQ(response.report().details().stream().device_uuid(),
              response.settings().device_uuid());
    return response.settings().device_uuid();
  }

  inference::ModelConfig ConfigOf(const std::string& model) {
    inference::ModelConfigRequest request;
    inference::ModelConfigResponse response;
    request.set_name(model);
    grpc::ClientContext context;
    SetPatience(&context);
    EXPECT_TRUE(
        server_->kserve().ModelConfig(&context, request, &response).ok());
    return response.config();
  }

  static inference::ModelInferRequest Request(const std::string& model) {
    inference::ModelInferRequest request;
    request.set_model_name(model);
    if (model == "strings") {
      AddInput(&request, "x", "BYTES", {2}, BytesElements({"one", "two"}));
    } else {
      AddInput(&request, "x", "FP32", {2}, Bytes<float>({1, 2}));
    }
    (*request.mutable_parameters())["weir_sync_report"].set_string_param(
        "full");
    return request;
  }

  // The device of a KServe reply's report.
  std::string Infer(const std::string& model) {
    const inference::ModelInferRequest request = Request(model);
    const InferAnswer answer = testing::Infer(*server_, request);
    EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
    EXPECT_THAT(answer.response.raw_output_contents(),
                ElementsAre(request.raw_input_contents(0)));
    const auto report = nlohmann::json::parse(
        answer.response.parameters().at("weir_sync_report").string_param());
    return report.at("details").at("stream").at("device_uuid");
  }

  double Leases(const std::string& device) const {
    return server_->Metric("weir_stream_pool_leases_total{device=\"" + device +
                           "\"}");
  }

  ModelFolder models_;
  std::unique_ptr<TestServer> server_;
  std::vector<std::string> names_;
  std::string gpu_, cpu_;
};

TEST_F(TextTest, TheCpuStandsBesideTheGpu) {
  EXPECT_THAT(names_, ElementsAre("cpu", kGpu));
  EXPECT_NE(gpu_, cpu_);
  EXPECT_EQ(server_->server().device_names(), kGpu);
}

TEST_F(TextTest, ProgramsWithTextRunOnTheCpu) {
  EvaluateAnswer answer = Evaluate(*server_, TextRequest(false));
  EXPECT_EQ(DeviceOf(answer), cpu_);
  EXPECT_EQ(answer.response.outputs(0).value().raw(),
            BytesElements({"one", "two"}));
  EXPECT_EQ(Leases("cpu"), 1);
  EXPECT_EQ(Leases(kGpu), 0);
  // Numbers go along.
  answer = Evaluate(*server_, TextRequest(true));
  EXPECT_EQ(DeviceOf(answer), cpu_);
  EXPECT_EQ(Values<float>(answer.response.outputs(1).value().raw()),
            std::vector<float>({1, 2}));
  // Without text nothing leaves the GPU.
  v1::EvaluateRequest numbers = Telling(IdentityRequest());
  EXPECT_EQ(DeviceOf(Evaluate(*server_, numbers)), gpu_);
  EXPECT_EQ(Leases("cpu"), 2);
  EXPECT_EQ(Leases(kGpu), 1);
}

// It runs little.
TEST_F(TextTest, TheCpuBesideItHasAQuarterOfEveryBudget) {
  TestServer server([](ServerOptions& options) {
    options.host_bytes = size_t{64} << 20;
    options.tensor_bytes = size_t{32} << 20;
    options.arena_bytes = size_t{128} << 20;
    if (TestDevice() == "cpu") options.make_device = MakeFarDevice;
  });
  for (const char* pool : {"host", "tensor", "arena", "program"}) {
    const auto budget = [&](const char* device) {
      return server.Metric(absl::StrCat("weir_memory_budget_bytes{device=\"",
                                        device, "\",pool=\"", pool, "\"}"));
    };
    EXPECT_GT(budget("cpu"), 0) << pool;
    EXPECT_EQ(budget("cpu"), budget(kGpu) / 4) << pool;
  }
}

// Then there is no other CPU, and its budgets are whole.
TEST_F(TextTest, ACpuThatIsNamedRunsTheText) {
  for (const char* list : {"cuda:0,cpu", "cpu,cuda:0"}) {
    SCOPED_TRACE(list);
    TestServer server([&](ServerOptions& options) {
      const bool pretended = TestDevice() == "cpu";
      options.devices = *ParseDeviceList(list);
      options.host_bytes = size_t{64} << 20;
      options.make_device = [pretended](std::string_view which,
                                        const DeviceOptions& made,
                                        OpRegistry& registry) {
        return pretended && which == kGpu ? MakeFarDevice(which, made, registry)
                                          : MakeDevice(which, made, registry);
      };
    });
    EXPECT_EQ(server.server().device_names(), list);
    v1::ListDevicesResponse devices;
    grpc::ClientContext context;
    SetPatience(&context);
    ASSERT_TRUE(server.catalog().ListDevices(&context, {}, &devices).ok());
    EXPECT_EQ(devices.devices_size(), 2);
    EXPECT_EQ(server.Metric("weir_memory_budget_bytes{device=\"cpu\","
                            "pool=\"host\"}"),
              64 << 20);
    EXPECT_EQ(DeviceOf(Evaluate(server, TextRequest(true))), cpu_);
    v1::EvaluateRequest numbers = Telling(IdentityRequest());
    numbers.set_device(kGpu);
    EXPECT_EQ(DeviceOf(Evaluate(server, numbers)), gpu_);
    v1::EvaluateRequest text = TextRequest(false);
    text.set_device(kGpu);
    EXPECT_TRUE(Refused(Evaluate(server, text).status,
                        grpc::StatusCode::UNIMPLEMENTED, "runs on cpu"));
  }
}

// It stays where the message was, however long it is.
TEST_F(TextTest, TextWhoseElementsNothingReadsMovesNothing) {
  v1::EvaluateRequest request = Program(R"(
      inputs { name: "n" }
      inputs { name: "unread" }
      inputs { name: "counted" }
      nodes { op: "Identity" inputs: "n" outputs: "m" }
      nodes { op: "Shape" inputs: "counted" outputs: "count" }
      outputs: "m"
      outputs: "count")");
  AddInput(&request, "n", v1::DATA_TYPE_FLOAT, {2}, Bytes<float>({1, 2}));
  const std::string text = BytesElements({std::string(1 << 20, 'x')});
  AddInput(&request, "unread", v1::DATA_TYPE_STRING, {1}, text);
  AddInput(&request, "counted", v1::DATA_TYPE_STRING, {1}, text);
  request = Telling(std::move(request));
  for (int i = 0; i < 3; ++i) {
    const EvaluateAnswer answer = Evaluate(*server_, request);
    EXPECT_EQ(DeviceOf(answer), gpu_);
    EXPECT_EQ(Values<float>(answer.response.outputs(0).value().raw()),
              std::vector<float>({1, 2}));
    EXPECT_EQ(Values<int64_t>(answer.response.outputs(1).value().raw()),
              std::vector<int64_t>({1}));
  }
}

TEST_F(TextTest, TextOfAnAttributeRunsOnTheCpu) {
  for (const char* attribute :
       {R"(name: "value_string" s: "hi")",
        R"(name: "value_strings" strings { values: "hi" })"}) {
    SCOPED_TRACE(attribute);
    const EvaluateAnswer answer =
        Evaluate(*server_, Telling(Program(absl::StrCat(
                               R"(nodes { op: "Constant" outputs: "y"
                                          attributes { )",
                               attribute, R"( } } outputs: "y")"))));
    EXPECT_EQ(DeviceOf(answer), cpu_);
    EXPECT_EQ(answer.response.outputs(0).value().raw(), BytesElements({"hi"}));
  }
}

TEST_F(TextTest, ADeviceMayBeNamed) {
  v1::EvaluateRequest numbers = Telling(IdentityRequest());
  for (const std::string& name : {std::string("cpu"), cpu_}) {
    numbers.set_device(name);
    EXPECT_EQ(DeviceOf(Evaluate(*server_, numbers)), cpu_) << name;
  }
  for (const std::string& name : {std::string(kGpu), gpu_}) {
    numbers.set_device(name);
    EXPECT_EQ(DeviceOf(Evaluate(*server_, numbers)), gpu_) << name;
  }
  numbers.set_device("cuda:7");
  EXPECT_TRUE(Refused(Evaluate(*server_, numbers).status,
                      grpc::StatusCode::NOT_FOUND,
                      "this server has cuda:0 and cpu"));
  // Nothing asked for is passed over.
  v1::EvaluateRequest text = TextRequest(false);
  text.set_device(kGpu);
  const grpc::Status status = Evaluate(*server_, text).status;
  EXPECT_TRUE(Refused(status, grpc::StatusCode::UNIMPLEMENTED,
                      "this runs on cpu and not on \"cuda:0\""));
  EXPECT_EQ(Field(FromGrpcStatus(status)), "device");
  text.set_device("cpu");
  EXPECT_EQ(DeviceOf(Evaluate(*server_, text)), cpu_);
}

TEST_F(TextTest, ExplainTellsWhere) {
  v1::ExplainRequest request;
  *request.mutable_graph() = TextRequest(false).graph();
  auto* spec = request.add_inputs();
  spec->set_name("x");
  spec->mutable_spec()->set_dtype(v1::DATA_TYPE_STRING);
  spec->mutable_spec()->add_shape(2);
  v1::ExplainResponse response;
  grpc::ClientContext context;
  SetPatience(&context);
  const grpc::Status status =
      server_->catalog().Explain(&context, request, &response);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(response.device_uuid(), cpu_);
}

TEST_F(TextTest, ModelsRunWhereTheyCanOrAreWanted) {
  EXPECT_EQ(Infer("floats"), gpu_);
  EXPECT_EQ(Infer("here"), cpu_);
  // It cannot be where its configuration wants it: it is served, and says so.
  EXPECT_EQ(Infer("strings"), cpu_);
  EXPECT_EQ(ConfigOf("floats").instance_group(0).kind(), Group::KIND_GPU);
  EXPECT_EQ(ConfigOf("here").instance_group(0).kind(), Group::KIND_CPU);
  EXPECT_EQ(ConfigOf("strings").instance_group(0).kind(), Group::KIND_CPU);
  EXPECT_EQ(Leases("cpu"), 2);
  EXPECT_EQ(Leases(kGpu), 1);
}

TEST_F(TextTest, TheCatalogTellsWhereModelsAre) {
  v1::ListModelsResponse models;
  grpc::ClientContext context;
  SetPatience(&context);
  ASSERT_TRUE(server_->catalog().ListModels(&context, {}, &models).ok());
  ASSERT_EQ(models.models_size(), 3);
  for (const v1::Model& model : models.models()) {
    EXPECT_EQ(model.versions(0).device_uuid(),
              model.name() == "floats" ? gpu_ : cpu_)
        << model.name();
  }
  inference::ModelStatisticsResponse statistics;
  grpc::ClientContext statistics_context;
  SetPatience(&statistics_context);
  ASSERT_TRUE(server_->kserve()
                  .ModelStatistics(&statistics_context, {}, &statistics)
                  .ok());
  for (const auto& model : statistics.model_stats()) {
    EXPECT_EQ(model.memory_usage(0).type(),
              model.name() == "floats" ? "GPU" : "CPU")
        << model.name();
  }
}

// A model is where its repository has it.
TEST_F(TextTest, AModelIsNotMovedByARequest) {
  v1::EvaluateRequest request;
  request.mutable_graph()->mutable_model()->set_name("here");
  AddInput(&request, "x", v1::DATA_TYPE_FLOAT, {2}, Bytes<float>({1, 2}));
  request = Telling(std::move(request));
  EXPECT_EQ(DeviceOf(Evaluate(*server_, request)), cpu_);
  request.set_device(kGpu);
  EXPECT_TRUE(Refused(Evaluate(*server_, request).status,
                      grpc::StatusCode::UNIMPLEMENTED, "runs on cpu"));
}

}  // namespace
}  // namespace weir::testing
