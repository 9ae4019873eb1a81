// The whole server against raw gRPC: ModelInfer of a 64-byte identity model on
// the CPU, beside a raw C++ gRPC echo of the same method, in one run. Then how
// long the server program takes to be ready, and what it holds when idle.
// Usage: server_bench [SECONDS_PER_CASE [ROUNDS]]
#include <onnx/onnx_pb.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "client/cpp/load.h"
#include "kernels/device/cpu/host_limits.h"
#include "proto/inference/grpc_service.pb.h"
#include "server/server.h"
#include "tests/bench/raw_echo_server.h"

namespace weir {
namespace {

constexpr int64_t kElements = 16;  // float: 64 bytes

// A repository with the model "identity": float [n] -> float [n].
std::string WriteRepository() {
  const std::filesystem::path root =
      std::filesystem::temp_directory_path() /
      ("weir-server-bench-" + std::to_string(getpid()));
  std::filesystem::create_directories(root / "identity" / "1");
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
  graph->mutable_input(0)->set_name("x");
  graph->mutable_output(0)->set_name("y");
  onnx::NodeProto* node = graph->add_node();
  node->set_op_type("Identity");
  node->add_input("x");
  node->add_output("y");
  std::ofstream file(root / "identity" / "1" / "model.onnx", std::ios::binary);
  model.SerializeToOstream(&file);
  return root;
}

std::string Request() {
  inference::ModelInferRequest request;
  request.set_model_name("identity");
  auto* input = request.add_inputs();
  input->set_name("x");
  input->set_datatype("FP32");
  input->add_shape(kElements);
  request.add_raw_input_contents(std::string(kElements * sizeof(float), '\1'));
  return request.SerializeAsString();
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Contender {
  const char* name;
  std::string address;
  std::vector<double> per_second, p50, p99;
};

void Compare(std::vector<Contender> contenders, int callers, int threads,
             double seconds, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    for (Contender& contender : contenders) {
      client::LoadOptions load;
      load.address = contender.address;
      load.method = kRawEchoMethod;
      load.request = Request();
      load.callers = callers;
      load.threads = threads;
      load.seconds = seconds;
      const client::LoadResult result = client::RunLoad(load);
      if (result.error_count() > 0) {
        std::fprintf(stderr, "%s: %s\n", contender.name,
                     result.first_error.c_str());
        std::exit(1);
      }
      contender.per_second.push_back(result.PerSecond());
      contender.p50.push_back(result.Quantile(0.5));
      contender.p99.push_back(result.Quantile(0.99));
    }
  }
  const Contender& raw = contenders[0];
  std::printf("%d callers\n", callers);
  for (const Contender& c : contenders) {
    std::printf(
        "  %-14s %8.0f/s  ratio %.2f   p50 %7.0f us (%+.0f)   p99 %7.0f us\n",
        c.name, Median(c.per_second),
        Median(c.per_second) / Median(raw.per_second), Median(c.p50),
        Median(c.p50) - Median(raw.p50), Median(c.p99));
  }
}

// Starts the program, waits for its ready line, reads its memory.
void MeasureStart(const std::string& program) {
  const auto start = std::chrono::steady_clock::now();
  int out[2];
  if (pipe(out) != 0) return;
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(out[1], STDOUT_FILENO);
    execl(program.c_str(), program.c_str(), "--device=cpu",
          "--grpc=127.0.0.1:0", "--http=127.0.0.1:0", "--drain-delay=0",
          nullptr);
    _exit(127);
  }
  close(out[1]);
  char byte = 0;
  while (read(out[0], &byte, 1) == 1 && byte != '\n') {
  }
  const double ms = std::chrono::duration<double, std::milli>(
                        std::chrono::steady_clock::now() - start)
                        .count();
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  std::string line;
  double resident_mb = 0;
  while (std::getline(status, line)) {
    if (line.rfind("VmRSS:", 0) == 0) {
      resident_mb = std::strtod(line.c_str() + 6, nullptr) / 1024;
    }
  }
  std::printf("ready after %.0f ms, %.0f MiB resident when idle (%s)\n", ms,
              resident_mb, byte == '\n' ? "ready" : "NOT READY");
  kill(pid, SIGTERM);
}

int Main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 2;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 3;
  const std::string root = WriteRepository();
  const int threads = CpuQuota();

  ServerOptions options;
  options.grpc = {"127.0.0.1:0"};
  options.http.clear();
  options.device = "cpu";
  options.model_repository = root;
  options.drain_delay = absl::ZeroDuration();
  auto server = Server::Start(options);
  if (!server.ok()) {
    std::fprintf(stderr, "%s\n", server.status().ToString().c_str());
    return 1;
  }
  auto raw = RawEchoServer::Start(RawEchoKind::kAsync, threads);
  auto callback = RawEchoServer::Start(RawEchoKind::kCallback, threads);
  const std::vector<Contender> contenders = {
      {"raw async", raw->address(), {}, {}, {}},
      {"raw callback", callback->address(), {}, {}, {}},
      {"weir", (*server)->grpc_addresses()[0], {}, {}, {}}};
  Compare(contenders, 64, std::min(threads, 4), seconds, rounds);
  Compare(contenders, 1, 1, seconds, rounds);

  const std::filesystem::path self =
      std::filesystem::read_symlink("/proc/self/exe");
  MeasureStart(self.parent_path().parent_path() / "bin" / "weir-server");
  std::filesystem::remove_all(root);
  return 0;
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) { return weir::Main(argc, argv); }
