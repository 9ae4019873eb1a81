// The hostile graphs in process, on every device.
#include "tests/hostile/hostile_graphs.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <memory>
#include <string>

#include "kernels/backend/devices.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "kernels/eval/engine.h"
#include "kernels/eval/eval_context.h"
#include "proto/weir/v1/graph.pb.h"
#include "server/models/definition_import.h"
#include "tests/eval/work_waiter.h"

// Freed memory that AddressSanitizer keeps aside is none that graphs hold.
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() {
  return "quarantine_size_mb=8";
}

namespace weir::testing {
namespace {

using ::testing::HasSubstr;

constexpr EvaluationLimits kLimits = {.output_bytes = kHostileOutputBytes,
                                      .scratch_bytes = kHostileScratchBytes};

int64_t PeakBytes() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} << 10;
}

// Of this process, whatever else the machine does.
int64_t CpuSeconds() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec;
}

class HostileGraphsTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    registry_ = MakeOpRegistry();
    auto device = MakeDevice(GetParam(), {.cpu_threads = 2}, *registry_);
    if (Reason(device.status()) == "NO_CUDA_DEVICE") {
      GTEST_SKIP() << device.status();
    }
    ASSERT_TRUE(device.ok()) << device.status();
    auto engine = Engine::Create(*std::move(device), registry_.get());
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
  }

  absl::Status Evaluate(const HostileGraph& hostile) {
    v1::GraphDefinition definition;
    if (!google::protobuf::TextFormat::ParseFromString(hostile.definition,
                                                       &definition)) {
      return absl::InternalError("no graph: " + hostile.definition);
    }
    std::vector<GivenInput> given;
    for (const HostileInput& input : hostile.inputs) {
      given.push_back(
          {input.name, input.dtype, static_cast<int>(input.dims.size())});
    }
    WEIR_ASSIGN_OR_RETURN(Graph graph, ImportDefinition(definition, given));
    ProgramOptions options;
    options.evaluation = kLimits;
    WEIR_ASSIGN_OR_RETURN(auto program,
                          Program::Compile(std::move(graph), engine_->device(),
                                           *registry_, options));
    auto context =
        EvalContext::Create(engine_.get(), {.mode = EvalMode::kSyncFull});
    WEIR_ASSIGN_OR_RETURN(Activation activation,
                          context->Enter(NewHandlerId()));
    Work work;
    work.request.program = program;
    std::vector<std::string> bytes;
    for (const HostileInput& input : hostile.inputs) {
      bytes.push_back(input.Bytes());
    }
    for (size_t i = 0; i < bytes.size(); ++i) {
      InputSource source;
      source.dtype = hostile.inputs[i].dtype;
      source.dims.assign(hostile.inputs[i].dims.begin(),
                         hostile.inputs[i].dims.end());
      source.pieces.push_back(bytes[i]);
      work.request.inputs.push_back(std::move(source));
    }
    WorkWaiter waiter;
    activation.Submit(&work, &waiter);
    return waiter.WaitDone(work);
  }

  std::unique_ptr<OpRegistry> registry_;
  std::unique_ptr<Engine> engine_;
};

TEST_P(HostileGraphsTest, AreRefusedOrAnsweredAtOnce) {
  const bool on_cuda = GetParam() != "cpu";
  const int64_t before = PeakBytes();
  for (const HostileGraph& hostile : HostileGraphs()) {
    SCOPED_TRACE(hostile.name);
    const int64_t start = CpuSeconds();
    const absl::Status status = Evaluate(hostile);
    // Each takes milliseconds; hours without a bound.
    EXPECT_LT(CpuSeconds() - start, 20);
    if (on_cuda && hostile.cpu_only &&
        status.code() == absl::StatusCode::kUnimplemented) {
      EXPECT_THAT(std::string(status.message()), HasSubstr(hostile.names));
      continue;
    }
    if (!hostile.may_be_too_long || !absl::IsResourceExhausted(status)) {
      EXPECT_EQ(status.code(), hostile.code) << status;
    }
    if (hostile.code == absl::StatusCode::kOk) continue;
    const bool other = on_cuda && !hostile.names_on_gpu.empty();
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(other ? hostile.names_on_gpu : hostile.names));
    if (absl::IsResourceExhausted(status)) {
      EXPECT_EQ(Reason(status), "EVALUATION_TOO_LARGE") << status;
    }
  }
  // Neither plans nor results grew: the largest answer has 16 MiB between.
  EXPECT_LT(PeakBytes() - before, int64_t{400} << 20);
}

INSTANTIATE_TEST_SUITE_P(Devices, HostileGraphsTest,
                         ::testing::Values("cpu", "cuda:0"),
                         [](const auto& info) {
                           return info.param == "cpu" ? std::string("cpu")
                                                      : std::string("cuda");
                         });

}  // namespace
}  // namespace weir::testing
