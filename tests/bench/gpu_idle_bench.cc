// What a server's process holds that does nothing: with one small model that
// needs no library of NVIDIA's beside the driver, and with one of matrix
// products. Fails above the limit. Skipped without a GPU. Usage:
//   gpu_idle_bench [DEVICE [MAX_MIB]]     (default: cuda:0 450)
#include <onnx/onnx_pb.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/bench/server_process.h"
#include "tests/models/temp_folder.h"

namespace weir::bench {
namespace {

constexpr auto kSettle = std::chrono::seconds(5);
constexpr int64_t kWidth = 64;

void AddValue(onnx::ValueInfoProto* value, const char* name) {
  value->set_name(name);
  auto* type = value->mutable_type()->mutable_tensor_type();
  type->set_elem_type(onnx::TensorProto::FLOAT);
  type->mutable_shape()->add_dim()->set_dim_value(kWidth);
  type->mutable_shape()->add_dim()->set_dim_value(kWidth);
}

// out = op(in, weights), all [64, 64].
onnx::ModelProto Model(const char* op) {
  onnx::ModelProto model;
  model.set_ir_version(8);
  model.add_opset_import()->set_version(17);
  onnx::GraphProto* graph = model.mutable_graph();
  graph->set_name("small");
  AddValue(graph->add_input(), "in");
  AddValue(graph->add_output(), "out");
  onnx::TensorProto* w = graph->add_initializer();
  w->set_name("weights");
  w->set_data_type(onnx::TensorProto::FLOAT);
  w->add_dims(kWidth);
  w->add_dims(kWidth);
  for (int64_t i = 0; i < kWidth * kWidth; ++i) w->add_float_data(0.5f);
  onnx::NodeProto* node = graph->add_node();
  node->set_op_type(op);
  node->add_input("in");
  node->add_input("weights");
  node->add_output("out");
  return model;
}

bool RunIdle(const std::string& device, const std::string& repository,
             const char* what, int64_t max_mib) {
  auto server = ServerProcess::Start(
      {absl::StrCat("--device=", device),
       absl::StrCat("--model-repository=", repository), "--strict-readiness"});
  if (!server.ok()) {
    std::fprintf(stderr, "%s\n", server.status().ToString().c_str());
    return false;
  }
  std::this_thread::sleep_for(kSettle);
  const ServerProcess::Memory memory = (*server)->memory();
  const auto mib = [](int64_t bytes) { return bytes >> 20; };
  const bool ok = mib(memory.resident_bytes) <= max_mib;
  std::printf("%-8s %-28s resident %4lld MiB, anonymous %4lld MiB%s\n",
              (*server)->device().c_str(), what,
              static_cast<long long>(mib(memory.resident_bytes)),
              static_cast<long long>(mib(memory.anonymous_bytes)),
              ok ? "" : "  TOO MUCH");
  std::fflush(stdout);
  (*server)->Terminate();
  return ok;
}

int Main(int argc, char** argv) {
  const std::string device = argc > 1 ? argv[1] : "cuda:0";
  if (SkippedForLackOf(device)) return 0;
  const int64_t max_mib = argc > 2 ? std::atoll(argv[2]) : 450;
  bool ok = true;
  for (const auto& [op, what] :
       {std::pair{"Min", "an elementwise model"},
        std::pair{"MatMul", "a model of matrix products"}}) {
    const testing::TempFolder repository;
    repository.Write("small/1/model.onnx", Model(op).SerializeAsString());
    ok &= RunIdle(device, repository.path().string(), what, max_mib);
  }
  return ok ? 0 : 1;
}

}  // namespace
}  // namespace weir::bench

int main(int argc, char** argv) { return weir::bench::Main(argc, argv); }
