// The whole server against raw gRPC: ModelInfer of an identity model by
// weir-server, beside raw C++ gRPC echoes of the same method, each a process of
// its own, in one run. Then how long the server takes to be ready, and what it
// holds when idle. See --help.
#include <onnx/onnx_pb.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "kernels/device/cpu/host_limits.h"
#include "proto/inference/grpc_service.pb.h"
#include "server/rpc/default_io_threads.h"
#include "tests/bench/contest.h"
#include "tests/bench/raw_echo_server.h"
#include "tests/bench/server_process.h"
#include "tests/models/temp_folder.h"

namespace weir::bench {
namespace {

constexpr int64_t kSmall = 16;       // floats: 64 bytes
constexpr int64_t kLarge = 150'528;  // floats: a picture, 602 KB

constexpr double kMostReadyMs = 500;
constexpr double kMostResidentMb = 100;

// The model "identity": float [n] -> float [n].
std::string Identity() {
  onnx::ModelProto model;
  model.set_ir_version(8);
  model.add_opset_import()->set_version(17);
  onnx::GraphProto* graph = model.mutable_graph();
  graph->set_name("identity");
  for (onnx::ValueInfoProto* value :
       {graph->add_input(), graph->add_output()}) {
    auto* tensor = value->mutable_type()->mutable_tensor_type();
    tensor->set_elem_type(onnx::TensorProto::FLOAT);
    tensor->mutable_shape()->add_dim()->set_dim_param("n");
  }
  graph->mutable_input(0)->set_name("in");
  graph->mutable_output(0)->set_name("out");
  onnx::NodeProto* node = graph->add_node();
  node->set_op_type("Identity");
  node->add_input("in");
  node->add_output("out");
  return model.SerializeAsString();
}

std::string Bytes(int64_t elements) {
  return std::string(static_cast<size_t>(elements) * sizeof(float), '\1');
}

std::string Request(int64_t elements) {
  inference::ModelInferRequest request;
  request.set_model_name("identity");
  auto* input = request.add_inputs();
  input->set_name("in");
  input->set_datatype("FP32");
  input->add_shape(elements);
  request.add_raw_input_contents(Bytes(elements));
  return request.SerializeAsString();
}

// A reply has the tensor; that of those who look at no byte is the request.
bool IsRight(const std::string& reply, int64_t elements) {
  if (reply == Request(elements)) return true;
  inference::ModelInferResponse response;
  return response.ParseFromString(reply) &&
         response.raw_output_contents_size() == 1 &&
         response.raw_output_contents(0) == Bytes(elements);
}

class WholeServer final : public Contender {
 public:
  explicit WholeServer(std::unique_ptr<ServerProcess> process)
      : process_(std::move(process)) {}
  ~WholeServer() override { process_->Terminate(); }
  std::string address() const override { return process_->address(); }
  pid_t pid() const override { return process_->pid(); }

 private:
  const std::unique_ptr<ServerProcess> process_;
};

std::string NameOn(const std::string& device) {
  return absl::StrCat("weir ", device);
}

Entrant WeirOn(const std::string& device, const std::string& repository) {
  return {NameOn(device), [device, repository]() -> ContenderOr {
            WEIR_ASSIGN_OR_RETURN(
                auto process,
                ServerProcess::Start(
                    {absl::StrCat("--device=", device),
                     absl::StrCat("--model-repository=", repository),
                     "--strict-readiness"}));
            return std::make_unique<WholeServer>(std::move(process));
          }};
}

LocalServerOr StartRival(const std::string& name) {
  return StartRawEcho(name, DefaultIoThreads(CpuQuota()));
}

struct Case {
  const char* name;
  int64_t elements;
  int callers;
  MustHold on_cpu, on_gpu;  // without the name
};

// With as many CPUs as a GPU's machine has, or with two.
std::vector<Case> Cases(bool many_cpus) {
  return {{.name = "many",
           .elements = kSmall,
           .callers = many_cpus ? 128 : 64,
           .on_cpu = {.name = "", .least_ratio = many_cpus ? 1.2 : 1.1},
           .on_gpu = {.name = "", .least_ratio = 1.05}},
          {.name = "one",
           .elements = kSmall,
           .callers = 1,
           .on_cpu = {.name = "", .most_more_p50_us = 10},
           .on_gpu = {}},
          {.name = "large",
           .elements = kLarge,
           .callers = 16,
           .on_cpu = {.name = "", .least_ratio = 0.95},
           .on_gpu = {.name = "", .least_ratio = 0.9}}};
}

bool RunCase(const Case& one, const std::vector<std::string>& devices,
             Contest contest) {
  contest.request = Request(one.elements);
  contest.is_right = [&one](const std::string& reply) {
    return IsRight(reply, one.elements);
  };
  contest.callers = one.callers;
  std::vector<MustHold> bounds;
  for (const std::string& device : devices) {
    bounds.push_back(absl::StartsWith(device, "cuda") ? one.on_gpu
                                                      : one.on_cpu);
    bounds.back().name = NameOn(device);
  }
  return Hold(contest, bounds);
}

// An empty server on the CPU.
bool MeasureStart() {
  const auto begin = std::chrono::steady_clock::now();
  const auto server = ServerProcess::Start({"--device=cpu"});
  if (!server.ok()) {
    std::fprintf(stderr, "%s\n", server.status().ToString().c_str());
    return false;
  }
  const double ms = std::chrono::duration<double, std::milli>(
                        std::chrono::steady_clock::now() - begin)
                        .count();
  const double mb =
      static_cast<double>((*server)->memory().resident_bytes) / 1e6;
  const bool holds = ms <= kMostReadyMs && mb <= kMostResidentMb;
  std::printf(
      "ready after %.0f ms, %.0f MB resident when idle\n"
      "  %s at most %.0f ms and %.0f MB\n",
      ms, mb, holds ? "holds:" : "DOES NOT HOLD:", kMostReadyMs,
      kMostResidentMb);
  (*server)->Terminate();
  return holds;
}

int Main(int argc, char** argv) {
  if (const auto served = ServeIfAsked(argc, argv, StartRival)) return *served;
  CLI::App app(
      "Loads weir-server and raw gRPC echoes of ModelInfer in turn, each a\n"
      "process on one half of the CPUs, from the other half: 64 bytes with\n"
      "many callers (64, or 128 where there are 16 CPUs) and with one, 602 KB\n"
      "with 16. \"raw echo\", the rival, has a completion queue for each\n"
      "thread, parses the request and builds the reply; the other two look at\n"
      "no byte. Then the time that an empty server takes to be ready, and its\n"
      "memory.\n\n"
      "Exit codes: 0; 1: something that must hold does not, or a server\n"
      "failed or answered wrongly.");
  std::vector<std::string> devices;
  std::vector<std::string> only;
  Contest contest;
  contest.method = kRawEchoMethod;
  app.add_option("--device", devices, "cpu, cuda or cuda:N; or several")
      ->delimiter(',')
      ->default_val("cpu");
  app.add_option("--only", only, "of many, one, large and start; or several")
      ->delimiter(',')
      ->check(CLI::IsMember({"many", "one", "large", "start"}));
  app.add_option("--seconds", contest.seconds, "of a server in a round")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--rounds", contest.rounds, "of which the median counts")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_flag("--shared-cpus", contest.shared_cpus,
               "servers and callers on all CPUs");
  CLI11_PARSE(app, argc, argv);

  const std::filesystem::path self =
      std::filesystem::read_symlink("/proc/self/exe");
  setenv("WEIR_BIN_DIR", (self.parent_path().parent_path() / "bin").c_str(),
         /*overwrite=*/0);
  const testing::TempFolder repository;
  repository.Write("identity/1/model.onnx", Identity());
  for (const char* name : {kRawEcho, kRawAsyncBytes, kRawCallbackBytes}) {
    contest.entrants.push_back(SelfServed(name));
  }
  for (const std::string& device : devices) {
    contest.entrants.push_back(WeirOn(device, repository.path().string()));
  }
  const auto is_asked = [&only](const char* name) {
    return only.empty() ||
           std::find(only.begin(), only.end(), name) != only.end();
  };
  bool held = true;
  for (const Case& one : Cases(CpuQuota() >= 16)) {
    if (is_asked(one.name)) held &= RunCase(one, devices, contest);
  }
  if (is_asked("start")) held &= MeasureStart();
  return held ? 0 : 1;
}

}  // namespace
}  // namespace weir::bench

int main(int argc, char** argv) { return weir::bench::Main(argc, argv); }
