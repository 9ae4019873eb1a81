#include "tests/bench/model_contenders.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/client.h"
#include "client/cpp/load.h"
#include "kernels/backend/devices.h"
#include "kernels/base/status_macros.h"
#include "kernels/eval/engine.h"
#include "kernels/eval/eval_context.h"
#include "kernels/ops/registry.h"
#include "server/models/onnx_import.h"
#include "tests/bench/piped_process.h"
#include "tests/eval/work_waiter.h"

namespace weir::bench {
namespace {

using Clock = std::chrono::steady_clock;

// -- In this process ----------------------------------------------------------

class InProcess final : public Contender {
 public:
  static absl::StatusOr<std::unique_ptr<Contender>> Make(
      const Settings& settings, const ModelFile& file) {
    auto made = std::unique_ptr<InProcess>(new InProcess);
    made->registry_ = MakeOpRegistry();
    WEIR_ASSIGN_OR_RETURN(
        auto device,
        MakeDevice(settings.device, {.cpu_threads = settings.threads},
                   *made->registry_));
    EngineOptions options;
    options.streams.reserved = 1;
    options.streams.max = 1;
    WEIR_ASSIGN_OR_RETURN(
        made->engine_,
        Engine::Create(std::move(device), made->registry_.get(), options));
    WEIR_ASSIGN_OR_RETURN(OnnxFile model,
                          ImportOnnxFile(absl::StrCat(settings.folder, "/",
                                                      file.stem(), ".onnx")));
    WEIR_ASSIGN_OR_RETURN(
        made->program_,
        Program::Compile(std::move(model.graph), made->engine_->device(),
                         *made->registry_));
    made->context_ =
        EvalContext::Create(made->engine_.get(), {.mode = EvalMode::kSyncFull});
    return made;
  }

  const std::string& name() const override { return name_; }

  absl::StatusOr<double> Check(int64_t batch, const ModelCase& of) override {
    cases_[batch] = &of;
    WEIR_RETURN_IF_ERROR(Choose(batch));
    WEIR_RETURN_IF_ERROR(Run());
    double worst = 0;
    for (size_t i = 0; i < program_->outputs().size(); ++i) {
      const CaseTensor* reference =
          of.FindReference(program_->outputs()[i].name);
      if (reference == nullptr) return absl::NotFoundError("an unknown output");
      const auto bytes = work_.OutputBytes(i);
      const TensorMeta& meta = work_.OutputMeta(i);
      worst = std::max(
          worst, RelativeError(*reference, meta.dtype, meta.dims,
                               {reinterpret_cast<const char*>(bytes.data()),
                                bytes.size()}));
    }
    return worst;
  }

  absl::StatusOr<std::vector<int64_t>> Time(int64_t batch,
                                            double seconds) override {
    WEIR_RETURN_IF_ERROR(Choose(batch));
    WEIR_RETURN_IF_ERROR(Run());
    std::vector<int64_t> times;
    auto before = Clock::now();
    const auto end = before + std::chrono::duration<double>(seconds);
    while (before < end || times.empty()) {
      WEIR_RETURN_IF_ERROR(Run());
      const auto after = Clock::now();
      times.push_back(
          std::chrono::duration_cast<std::chrono::nanoseconds>(after - before)
              .count());
      before = after;
    }
    return times;
  }

 private:
  InProcess() = default;

  absl::Status Choose(int64_t batch) {
    const ModelCase& chosen = *cases_.at(batch);
    work_.request.program = program_;
    work_.request.inputs.clear();
    for (const ValueDecl& input : program_->inputs()) {
      const CaseTensor* tensor = chosen.FindInput(input.name);
      if (tensor == nullptr) {
        return absl::NotFoundError("the case lacks " + input.name);
      }
      InputSource source;
      source.dtype = tensor->dtype;
      source.dims = tensor->dims;
      source.pieces = {std::string_view(tensor->bytes)};
      work_.request.inputs.push_back(std::move(source));
    }
    return absl::OkStatus();
  }

  absl::Status Run() {
    auto activation = context_->Enter(handler_);
    if (!activation.ok()) return activation.status();
    WorkWaiter waiter;
    activation->Submit(&work_, &waiter);
    return waiter.WaitDone(work_);
  }

  const std::string name_ = "weir in process";
  std::unique_ptr<OpRegistry> registry_;
  std::unique_ptr<Engine> engine_;
  std::shared_ptr<const Program> program_;
  std::shared_ptr<EvalContext> context_;
  const HandlerId handler_ = NewHandlerId();
  std::map<int64_t, const ModelCase*> cases_;
  Work work_;
};

// -- Over gRPC ----------------------------------------------------------------

class OverGrpc final : public Contender {
 public:
  ~OverGrpc() override {
    if (server_ != nullptr) {
      server_->Terminate();
      server_->Wait();
    }
    if (!repository_.empty()) std::filesystem::remove_all(repository_);
  }

  static absl::StatusOr<std::unique_ptr<Contender>> Make(
      const Settings& settings, const ModelFile& file) {
    auto made = std::unique_ptr<OverGrpc>(new OverGrpc);
    std::string folder =
        std::filesystem::temp_directory_path() / "weir-model-bench-XXXXXX";
    if (mkdtemp(folder.data()) == nullptr) {
      return absl::InternalError("cannot make " + folder);
    }
    made->repository_ = folder;
    const auto version = made->repository_ / kModel / "1";
    std::filesystem::create_directories(version);
    std::filesystem::create_symlink(
        std::filesystem::absolute(
            absl::StrCat(settings.folder, "/", file.stem(), ".onnx")),
        version / "model.onnx");
    made->server_ = std::make_unique<PipedProcess>(std::vector<std::string>{
        settings.server, "--grpc=127.0.0.1:0", "--http=off",
        "--device=" + settings.device, "--model-repository=" + folder,
        absl::StrCat("--cpu-threads=", settings.threads), "--drain-delay=0",
        "--max-connection-age=0", "--log-level=warning"});
    const std::string ready = made->server_->ReadLine();
    const std::string kKey = "grpc=";
    const size_t at = ready.find(kKey);
    if (at == std::string::npos) {
      return absl::UnavailableError(
          absl::StrCat(settings.server, " is not ready: ", ready));
    }
    const size_t begin = at + kKey.size();
    made->address_ = ready.substr(begin, ready.find(' ', begin) - begin);
    return made;
  }

  const std::string& name() const override { return name_; }

  absl::StatusOr<double> Check(int64_t batch, const ModelCase& of) override {
    inference::ModelInferRequest request;
    request.set_model_name(kModel);
    for (const CaseTensor& tensor : of.inputs) {
      auto* input = request.add_inputs();
      input->set_name(tensor.name);
      input->set_datatype(tensor.datatype);
      for (const int64_t size : tensor.dims) input->add_shape(size);
      request.add_raw_input_contents(tensor.bytes);
    }
    client::Client client(
        {.address = address_, .timeout = absl::Seconds(kTimeoutSeconds)});
    const auto before = Clock::now();
    WEIR_ASSIGN_OR_RETURN(const inference::ModelInferResponse reply,
                          client.ModelInfer(request));
    requests_[batch] = {
        request.SerializeAsString(),
        std::chrono::duration<double>(Clock::now() - before).count()};
    if (reply.outputs_size() != static_cast<int>(of.references.size())) {
      return std::numeric_limits<double>::infinity();
    }
    double worst = 0;
    for (int i = 0; i < reply.outputs_size(); ++i) {
      const auto& output = reply.outputs(i);
      const CaseTensor* reference = of.FindReference(output.name());
      if (reference == nullptr) return absl::NotFoundError("an unknown output");
      const DType dtype =
          output.datatype() == "FP16" ? DType::kFloat16 : DType::kFloat;
      worst = std::max(worst, RelativeError(*reference, dtype,
                                            Dims(output.shape().begin(),
                                                 output.shape().end()),
                                            reply.raw_output_contents(i)));
    }
    return worst;
  }

  absl::StatusOr<std::vector<int64_t>> Time(int64_t batch,
                                            double seconds) override {
    client::LoadOptions load;
    load.address = address_;
    load.method = "/inference.GRPCInferenceService/ModelInfer";
    const auto& [bytes, call_seconds] = requests_.at(batch);
    load.request = bytes;
    // Only calls that end in time count.
    load.seconds = std::max(seconds, 3 * call_seconds);
    load.timeout_seconds = kTimeoutSeconds;
    const client::LoadResult result = client::RunLoad(load);
    if (result.error_count() > 0 || result.calls == 0) {
      return absl::InternalError(result.first_error);
    }
    std::vector<int64_t> times;
    result.latencies.ForEach([&times](std::chrono::nanoseconds latency,
                                      int64_t count) {
      times.insert(times.end(), static_cast<size_t>(count), latency.count());
    });
    return times;
  }

 private:
  static constexpr char kModel[] = "model";
  static constexpr int kTimeoutSeconds = 120;

  struct Request {
    std::string bytes;
    double seconds;  // that a call took
  };

  OverGrpc() = default;

  const std::string name_ = "weir over gRPC";
  std::filesystem::path repository_;
  std::unique_ptr<PipedProcess> server_;
  std::string address_;
  std::map<int64_t, Request> requests_;
};

// -- In Python ----------------------------------------------------------------

class Rival final : public Contender {
 public:
  static absl::StatusOr<std::unique_ptr<Contender>> Make(
      const Settings& settings, const ModelFile& file,
      const std::string& kind) {
    auto made = std::unique_ptr<Rival>(new Rival);
    const bool cuda = settings.device != "cpu";
    made->process_ = std::make_unique<PipedProcess>(std::vector<std::string>{
        settings.python, settings.scripts + "/rivals.py", "--contender", kind,
        "--folder", settings.folder, "--model", file.model, "--precision",
        file.precision, "--device", cuda ? "cuda" : "cpu", "--threads",
        std::to_string(settings.threads)});
    WEIR_ASSIGN_OR_RETURN(const nlohmann::json first, made->Read());
    made->name_ = first.at("name");
    return made;
  }

  const std::string& name() const override { return name_; }

  absl::StatusOr<double> Check(int64_t batch, const ModelCase&) override {
    WEIR_ASSIGN_OR_RETURN(const nlohmann::json reply, Ask({{"batch", batch}}));
    return reply.at("error").get<double>();
  }

  absl::StatusOr<std::vector<int64_t>> Time(int64_t batch,
                                            double seconds) override {
    WEIR_ASSIGN_OR_RETURN(const nlohmann::json reply,
                          Ask({{"batch", batch}, {"seconds", seconds}}));
    return reply.at("ns").get<std::vector<int64_t>>();
  }

 private:
  Rival() = default;

  absl::StatusOr<nlohmann::json> Ask(const nlohmann::json& request) {
    process_->WriteLine(request.dump());
    return Read();
  }

  absl::StatusOr<nlohmann::json> Read() {
    const std::string line = process_->ReadLine();
    auto reply =
        nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!reply.is_object()) return absl::UnavailableError("it ended");
    if (reply.contains("failed")) {
      return absl::UnavailableError(reply["failed"].get<std::string>());
    }
    return reply;
  }

  std::string name_;
  std::unique_ptr<PipedProcess> process_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Contender>> MakeInProcess(
    const Settings& settings, const ModelFile& file) {
  return InProcess::Make(settings, file);
}

absl::StatusOr<std::unique_ptr<Contender>> MakeOverGrpc(
    const Settings& settings, const ModelFile& file) {
  return OverGrpc::Make(settings, file);
}

absl::StatusOr<std::unique_ptr<Contender>> MakeRival(const Settings& settings,
                                                     const ModelFile& file,
                                                     const std::string& kind) {
  return Rival::Make(settings, file, kind);
}

}  // namespace weir::bench
