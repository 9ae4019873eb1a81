// What only the CUDA backend promises: faults that kernels report, faults that
// lose the device, and streams that are never the default ones. Skipped without
// a GPU.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/backend/devices.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "kernels/ops/registry.h"
#include "tests/device/test_task.h"

namespace weir {
namespace {

constexpr size_t kBytes = 16;

// A device with the test operators. Made anew where a test loses it.
class Backend {
 public:
  Backend() {
    RegistryOptions options;
    options.test_operators = true;
    registry_ = MakeOpRegistry(options);
    device_ = MakeDevice("cuda:0", DeviceOptions(), *registry_);
  }
  const absl::Status& status() const { return device_.status(); }
  Device& device() { return **device_; }

  // weir.Fault on four floats.
  std::unique_ptr<const Kernel> FaultKernel(const std::string& mode) {
    NodeInfo node;
    node.name = "fault";
    node.domain = "weir";
    node.op = "Fault";
    node.opset = 1;
    node.attributes.Set("mode", mode);
    node.input_types = {DType::kFloat};
    auto kernel = registry_->CreateKernel(node, device());
    if (!kernel.ok()) ADD_FAILURE() << kernel.status();
    return *std::move(kernel);
  }

 private:
  std::unique_ptr<OpRegistry> registry_;
  absl::StatusOr<std::unique_ptr<Device>> device_ = absl::UnknownError("");
};

TensorMeta Floats() { return {DType::kFloat, {4}, 4, kBytes}; }

std::unique_ptr<const KernelPlan> PlanOf(const Kernel& kernel) {
  const TensorMeta meta[] = {Floats()};
  const std::vector<int64_t> none[1];
  auto plan = kernel.Plan({meta, meta, none});
  if (!plan.ok()) ADD_FAILURE() << plan.status();
  return *std::move(plan);
}

// Runs `plan` on `stream` and waits.
Completion RunPlan(Device& device, Stream& stream, const KernelPlan& plan,
                   uint32_t node) {
  auto memory = device.Allocate(2 * 256);
  EXPECT_TRUE(memory.ok()) << memory.status();
  const void* inputs[] = {memory->data()};
  void* outputs[] = {static_cast<std::byte*>(memory->data()) + 256};
  TestTask task([&](Stream& s) {
    WEIR_RETURN_IF_ERROR(s.Fill(memory->data(), 0, memory->size()));
    const RunArgs args{.stream = s,
                       .team = nullptr,
                       .inputs = inputs,
                       .outputs = outputs,
                       .scratch = nullptr,
                       .random = {},
                       .node_index = node};
    return plan.Run(args);
  });
  stream.Enqueue(&task);
  return task.Wait();
}

class CudaStreamTest : public testing::Test {
 protected:
  void SetUp() override {
    if (Reason(backend_.status()) == "NO_CUDA_DEVICE") {
      GTEST_SKIP() << backend_.status().message();
    }
    ASSERT_TRUE(backend_.status().ok()) << backend_.status();
  }
  Backend backend_;
};

TEST_F(CudaStreamTest, IsNeverADefaultStream) {
  for (int i = 0; i < 8; ++i) {
    auto stream = backend_.device().CreateStream(0);
    ASSERT_TRUE(stream.ok()) << stream.status();
    EXPECT_GT((*stream)->id(), 2u);
    EXPECT_NE((*stream)->native_handle(), nullptr);
  }
}

// Every slot of the ring is used by failing and by sound works, more than once.
TEST_F(CudaStreamTest, AReportedFaultBelongsToItsWork) {
  auto stream = *backend_.device().CreateStream(0);
  auto injected = backend_.FaultKernel("report");
  auto index = backend_.FaultKernel("index");
  auto injected_plan = PlanOf(*injected);
  auto index_plan = PlanOf(*index);
  for (uint32_t i = 0; i < 3 * Stream::kMaxUnfinished; ++i) {
    if (i % 3 == 0) {
      TestTask sound;
      stream->Enqueue(&sound);
      EXPECT_TRUE(sound.Wait().status.ok());
      continue;
    }
    const bool is_index = i % 3 == 1;
    const Completion done = RunPlan(backend_.device(), *stream,
                                    is_index ? *index_plan : *injected_plan, i);
    EXPECT_EQ(done.fault,
              is_index ? FaultCode::kIndexOutOfRange : FaultCode::kInjected);
    EXPECT_EQ(done.fault_node, i);
    EXPECT_EQ(done.status.code(), FaultStatus(done.fault).code());
  }
  EXPECT_FALSE(backend_.device().health().poisoned());
  EXPECT_TRUE(stream->Check().ok());
}

TEST_F(CudaStreamTest, ADeviceWithoutThatNumberIsAnError) {
  RegistryOptions options;
  auto registry = MakeOpRegistry(options);
  auto device = MakeDevice("cuda:999", DeviceOptions(), *registry);
  EXPECT_EQ(device.status().code(), absl::StatusCode::kInvalidArgument)
      << device.status();
}

// Runs in a process of its own, which the fault then ends: nothing inside it
// can mend the device.
void LoseDevice(const std::string& mode) {
  Backend backend;
  if (!backend.status().ok()) std::_Exit(2);
  auto stream = *backend.device().CreateStream(0);
  auto kernel = backend.FaultKernel(mode);
  auto plan = PlanOf(*kernel);
  int watched = 0;
  const auto watch = backend.device().health().OnPoisoned(
      [&](const absl::Status&) { ++watched; });
  const Completion done = RunPlan(backend.device(), *stream, *plan, 0);
  if (done.status.code() != absl::StatusCode::kUnavailable) std::_Exit(3);
  if (!backend.device().health().poisoned() || watched != 1) std::_Exit(4);
  TestTask later;
  stream->Enqueue(&later);
  if (later.Wait().status.code() != absl::StatusCode::kUnavailable) {
    std::_Exit(5);
  }
  if (backend.device().CreateStream(0).ok()) std::_Exit(6);
  if (backend.device().Allocate(1).ok()) std::_Exit(7);
  std::_Exit(0);
}

class CudaFaultDeathTest : public CudaStreamTest {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    CudaStreamTest::SetUp();
  }
};

TEST_F(CudaFaultDeathTest, AnIllegalAddressLosesTheDevice) {
  EXPECT_EXIT(LoseDevice("illegal_address"), testing::ExitedWithCode(0), "");
}

TEST_F(CudaFaultDeathTest, ATrapLosesTheDevice) {
  EXPECT_EXIT(LoseDevice("trap"), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace weir
