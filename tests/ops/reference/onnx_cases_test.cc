// Every operator case on every device, one test per operator and device, from
// the bytes of its model on, as a served one is read.
// WEIR_ONNX_CASES names another folder of cases.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/backend/devices.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "kernels/eval/engine.h"
#include "kernels/eval/eval_context.h"
#include "kernels/graph/program.h"
#include "kernels/ops/registry.h"
#include "server/models/onnx_import.h"
#include "tests/eval/work_waiter.h"
#include "tests/ops/reference/onnx_case.h"

namespace weir {
namespace {

std::string FromEnvironment(const char* name, const std::string& fallback) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : fallback;
}

std::filesystem::path CasesFolder() {
  return FromEnvironment(
      "WEIR_ONNX_CASES",
      FromEnvironment("WEIR_TEST_DATA", "tests") + "/ops/reference/cases");
}

std::vector<std::string> OperatorsWithCases() {
  std::vector<std::string> operators;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(CasesFolder(), error)) {
    operators.push_back(entry.path().stem().string());
  }
  std::sort(operators.begin(), operators.end());
  return operators;
}

// A device with its engine, made once for all operators.
struct Machine {
  std::unique_ptr<OpRegistry> registry;
  std::unique_ptr<Engine> engine;
  absl::Status status;
};

Machine MakeMachine(const std::string& which) {
  Machine machine;
  machine.registry = MakeOpRegistry();
  auto device = MakeDevice(which, {}, *machine.registry);
  machine.status = device.status();
  if (!device.ok()) return machine;
  auto engine = Engine::Create(*std::move(device), machine.registry.get());
  machine.status = engine.status();
  if (engine.ok()) machine.engine = *std::move(engine);
  return machine;
}

// By (device, operator).
class OnnxCasesTest
    : public testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  void SetUp() override {
    const std::string& device = std::get<0>(GetParam());
    auto found = machines_.find(device);
    if (found == machines_.end()) {
      found = machines_.emplace(device, MakeMachine(device)).first;
    }
    const Machine& machine = found->second;
    if (Reason(machine.status) == "NO_CUDA_DEVICE") {
      GTEST_SKIP() << machine.status;
    }
    ASSERT_TRUE(machine.status.ok()) << machine.status;
    engine_ = machine.engine.get();
  }

  static void TearDownTestSuite() { machines_.clear(); }

  absl::Status Run(const OnnxCase& one);

  static std::map<std::string, Machine> machines_;
  Engine* engine_ = nullptr;
};

std::map<std::string, Machine> OnnxCasesTest::machines_;

absl::Status OnnxCasesTest::Run(const OnnxCase& one) {
  WEIR_ASSIGN_OR_RETURN(Graph graph, ImportOnnx(one.model));
  WEIR_ASSIGN_OR_RETURN(auto program,
                        Program::Compile(std::move(graph), engine_->device(),
                                         engine_->registry()));
  auto context = EvalContext::Create(engine_, {.mode = EvalMode::kSyncFull});
  WEIR_ASSIGN_OR_RETURN(Activation activation, context->Enter(NewHandlerId()));
  Work work;
  work.request.program = program;
  for (const CaseTensor& input : one.inputs) {
    InputSource source;
    source.dtype = input.dtype;
    source.dims.assign(input.dims.begin(), input.dims.end());
    source.pieces.push_back(input.bytes);
    work.request.inputs.push_back(std::move(source));
  }
  WorkWaiter waiter;
  activation.Submit(&work, &waiter);
  WEIR_RETURN_IF_ERROR(waiter.WaitDone(work));
  for (size_t i = 0; i < one.outputs.size(); ++i) {
    const TensorMeta& meta = work.OutputMeta(i);
    const auto bytes = work.OutputBytes(i);
    CaseTensor actual;
    actual.dtype = meta.dtype;
    actual.dims.assign(meta.dims.begin(), meta.dims.end());
    actual.bytes.assign(reinterpret_cast<const char*>(bytes.data()),
                        bytes.size());
    WEIR_RETURN_IF_ERROR(
        CompareWithAnswer(one.outputs[i], actual, one.ulps, one.floor));
  }
  return absl::OkStatus();
}

TEST_P(OnnxCasesTest, MatchTheOnnxPackage) {
  const auto cases = ReadOnnxCases(
      (CasesFolder() / (std::get<1>(GetParam()) + ".pb")).string());
  ASSERT_TRUE(cases.ok()) << cases.status();
  ASSERT_FALSE(cases->empty());
  for (const OnnxCase& one : *cases) {
    const absl::Status status = Run(one);
    EXPECT_TRUE(status.ok()) << one.name << ": " << status;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Operators, OnnxCasesTest,
    testing::Combine(testing::Values("cpu", "cuda:0"),
                     testing::ValuesIn(OperatorsWithCases())),
    [](const auto& info) {
      const std::string device =
          std::get<0>(info.param) == "cpu" ? "cpu" : "cuda";
      return device + "_" + std::get<1>(info.param);
    });

TEST(OnnxCasesFolderTest, HasCases) {
  EXPECT_FALSE(OperatorsWithCases().empty())
      << "no cases in " << CasesFolder()
      << "; run by ctest, or set WEIR_TEST_DATA to tests/";
}

}  // namespace
}  // namespace weir
