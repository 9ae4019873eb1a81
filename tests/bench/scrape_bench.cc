// How long /metrics takes of a server with 500 models, all with series of their
// own and Triton's names, while callers send 10,000 requests a second; and how
// large it is. Each model was asked for on each of a few connections before, so
// that the threads have counts of all. A real weir-server, on all CPUs beside
// its callers. Fails above the limits, and where the callers do not come to
// their rate, as nothing is known then. Usage:
//   scrape_bench [RATE [MODELS]]     (default: 10000 500)
#include <arpa/inet.h>
#include <grpcpp/grpcpp.h>
#include <netinet/in.h>
#include <onnx/onnx_pb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cpp/load.h"
#include "proto/inference/grpc_service.grpc.pb.h"
#include "tests/bench/server_process.h"
#include "tests/models/onnx_model.h"

namespace weir::bench {
namespace {

constexpr double kMostMs = 100;
constexpr size_t kMostBytes = size_t{2} << 20;
constexpr int kScrapes = 50;
constexpr auto kPause = std::chrono::milliseconds(100);
constexpr int kConnections = 8;
constexpr double kLeastOfRate = 0.95;

std::string ModelName(int i) { return absl::StrCat("a-team-s-model-", i); }

onnx::ModelProto Identity() {
  onnx::ModelProto model = testing::EmptyModel();
  testing::AddValue(model.mutable_graph()->add_input(), "x",
                    onnx::TensorProto::FLOAT, {"N"});
  testing::AddValue(model.mutable_graph()->add_output(), "y",
                    onnx::TensorProto::FLOAT, {"N"});
  testing::AddNode(&model, "Identity", {"x"}, {"y"});
  return model;
}

inference::ModelInferRequest Request(int model) {
  inference::ModelInferRequest request;
  request.set_model_name(ModelName(model));
  auto* input = request.add_inputs();
  input->set_name("x");
  input->set_datatype("FP32");
  input->add_shape(16);
  request.add_raw_input_contents(std::string(16 * sizeof(float), '\1'));
  return request;
}

bool AskAll(const std::string& address, int models) {
  for (int c = 0; c < kConnections; ++c) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    const auto stub =
        inference::GRPCInferenceService::NewStub(grpc::CreateCustomChannel(
            address, grpc::InsecureChannelCredentials(), arguments));
    for (int i = 0; i < models; ++i) {
      grpc::ClientContext context;
      inference::ModelInferResponse response;
      const grpc::Status status =
          stub->ModelInfer(&context, Request(i), &response);
      if (status.ok()) continue;
      std::fprintf(stderr, "%s\n", status.error_message().c_str());
      return false;
    }
  }
  return true;
}

// The answer to a GET of /metrics with its head; empty if there is none.
std::string Scrape(const std::string& address) {
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  const size_t colon = address.rfind(':');
  to.sin_port =
      htons(static_cast<uint16_t>(std::atoi(address.c_str() + colon + 1)));
  inet_pton(AF_INET, address.substr(0, colon).c_str(), &to.sin_addr);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const std::string request =
      "GET /metrics HTTP/1.1\r\nHost: weir\r\nConnection: close\r\n\r\n";
  std::string answer;
  if (connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0 &&
      write(fd, request.data(), request.size()) ==
          static_cast<ssize_t>(request.size())) {
    std::vector<char> piece(size_t{1} << 16);
    for (ssize_t n; (n = read(fd, piece.data(), piece.size())) > 0;) {
      answer.append(piece.data(), static_cast<size_t>(n));
    }
  }
  close(fd);
  return answer.rfind("HTTP/1.1 200", 0) == 0 ? answer : "";
}

bool Tell(bool holds, const std::string& what) {
  std::printf("  %s %s\n", holds ? "holds:" : "DOES NOT HOLD:", what.c_str());
  return holds;
}

int Main(int argc, char** argv) {
  const double rate = argc > 1 ? std::atof(argv[1]) : 10'000;
  const int models = argc > 2 ? std::atoi(argv[2]) : 500;
  const testing::TempFolder repository;
  repository.Write(ModelName(0) + "/1/model.onnx",
                   Identity().SerializeAsString());
  for (int i = 1; i < models; ++i) {
    std::filesystem::create_directory_symlink(repository.path() / ModelName(0),
                                              repository.path() / ModelName(i));
  }
  auto server = ServerProcess::Start(
      {"--device=cpu", "--http=127.0.0.1:0", "--strict-readiness",
       "--triton-metrics", absl::StrCat("--metrics-models=", models),
       absl::StrCat("--model-repository=", repository.path().string())});
  if (!server.ok()) {
    std::fprintf(stderr, "%s\n", server.status().ToString().c_str());
    return 1;
  }
  if (!AskAll((*server)->address(), models)) return 1;

  client::LoadOptions load;
  load.address = (*server)->address();
  load.method = "/inference.GRPCInferenceService/ModelInfer";
  load.request = Request(models / 2).SerializeAsString();
  load.callers = 1000;
  load.rate = rate;
  load.seconds = std::chrono::duration<double>(kPause * kScrapes).count();
  client::LoadResult loaded;
  std::thread callers([&] { loaded = client::RunLoad(load); });
  std::this_thread::sleep_for(
      std::chrono::duration<double>(load.warmup_seconds));
  std::vector<double> ms;
  size_t bytes = 0;
  for (int i = 0; i < kScrapes; ++i) {
    const auto begin = Clock::now();
    bytes = std::max(bytes, Scrape((*server)->http_address()).size());
    ms.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin)
                     .count());
    std::this_thread::sleep_until(begin + kPause);
  }
  callers.join();
  (*server)->Terminate();
  std::sort(ms.begin(), ms.end());
  std::printf(
      "%d models, %.0f requests/s (p50 %.0f us, p99 %.0f us): a scrape of %zu "
      "bytes takes %.1f ms (median of %d; the longest %.1f)\n",
      models, loaded.PerSecond(), loaded.Quantile(0.5), loaded.Quantile(0.99),
      bytes, ms[ms.size() / 2], kScrapes, ms.back());
  bool ok = Tell(loaded.PerSecond() >= kLeastOfRate * rate,
                 absl::StrCat("callers came to their ", rate, " requests/s"));
  ok &= Tell(ms.back() <= kMostMs, absl::StrCat("at most ", kMostMs, " ms"));
  ok &= Tell(bytes > 0 && bytes <= kMostBytes,
             absl::StrCat("at most ", kMostBytes, " bytes"));
  return ok ? 0 : 1;
}

}  // namespace
}  // namespace weir::bench

int main(int argc, char** argv) { return weir::bench::Main(argc, argv); }
