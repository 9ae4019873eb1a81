#include "kernels/eval/work_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/base/error_info.h"
#include "tests/device/fault_injecting_device.h"
#include "tests/eval/eval_fixture.h"

namespace weir {
namespace {

// Of a device that copies what it reads, and where taking memory waits.
class WorkMemoryTest : public ::testing::Test {
 protected:
  static constexpr size_t kElements = 2000;
  static constexpr size_t kBytes = kElements * sizeof(float);

  WorkMemoryTest() : registry_(MakeOpRegistry()) {
    auto device = std::make_unique<FaultInjectingDevice>(
        MakeCpuDevice({.cpu_threads = 1}));
    device_ = device.get();
    device_->set_allocation_waits();
    device_->set_takes_copies();
    EngineOptions options;
    options.streams.max = 1;
    options.pinned_bytes = size_t{1} << 20;
    options.tensor_bytes = size_t{64} << 10;
    auto engine = Engine::Create(std::move(device), registry_.get(), options);
    EXPECT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
    auto program =
        Program::Compile(MakeGraph("Neg", 1), engine_->device(), *registry_);
    EXPECT_TRUE(program.ok()) << program.status();
    request_.program = *std::move(program);
    request_.inputs = {Floats(values_)};
    HostTensor shape;
    shape.dtype = DType::kFloat;
    shape.dims = request_.inputs[0].dims;
    auto plan = request_.program->MakePlan({shape});
    EXPECT_TRUE(plan.ok()) << plan.status();
    plan_ = *std::move(plan);
    auto lease = engine_->streams().TryAcquire();
    EXPECT_TRUE(lease.ok()) << lease.status();
    lease_ = *std::move(lease);
  }

  ~WorkMemoryTest() override { lease_.Reset(); }

  void SetPlan() { memory_.SetPlan(plan_.get(), device_->host_addressable()); }
  absl::StatusOr<bool> TakeAtHand() {
    return memory_.TakeAtHand(*engine_, lane());
  }
  absl::Status Reserve() { return memory_.Reserve(*engine_, lane()); }
  // All that the run needs, as the stages do it.
  void TakeAll() {
    ASSERT_EQ(Reserve(), absl::OkStatus());
    const absl::StatusOr<bool> there = TakeAtHand();
    ASSERT_TRUE(there.ok() && *there) << there.status();
  }
  // And then what the launch begins with.
  void CopyIn() {
    memory_.StageInputs();
    memory_.Assign(lane());
    ASSERT_EQ(memory_.CopyIn(lane().stream()), absl::OkStatus());
  }
  Lane& lane() { return *lease_.lane(); }
  size_t pinned() const { return engine_->pinned().stats().leased_bytes; }
  uint64_t allocations() const {
    return device_->calls(DeviceCall::kAllocate) +
           device_->calls(DeviceCall::kAllocatePinned);
  }
  // What the stream is given of the input.
  float FirstInput() {
    const auto* at = static_cast<const float*>(memory_.inputs()[0]);
    return *at;
  }

  std::unique_ptr<OpRegistry> registry_;
  FaultInjectingDevice* device_ = nullptr;
  std::unique_ptr<Engine> engine_;
  std::vector<float> values_ = std::vector<float>(kElements, 3);
  std::shared_ptr<const Plan> plan_;
  StreamLease lease_;
  WorkRequest request_;
  RunResult result_;
  SyncReport report_;
  WorkMemory memory_{&request_, &result_, &report_};
};

TEST_F(WorkMemoryTest, WhatHasToBeMadeIsMadeByWhoMayWait) {
  request_.outputs = {OutputWish::kInline};
  SetPlan();
  const uint64_t before = allocations();
  absl::StatusOr<bool> there = TakeAtHand();
  ASSERT_TRUE(there.ok()) << there.status();
  EXPECT_FALSE(*there);
  EXPECT_EQ(allocations(), before) << "it may not wait";
  ASSERT_TRUE(Reserve().ok());
  EXPECT_GT(allocations(), before);
  const uint64_t made = allocations();
  there = TakeAtHand();
  ASSERT_TRUE(there.ok()) << there.status();
  EXPECT_TRUE(*there);
  EXPECT_EQ(allocations(), made) << "it is there";
}

TEST_F(WorkMemoryTest, AllOfItGoesBack) {
  request_.outputs = {OutputWish::kInline};
  SetPlan();
  ASSERT_TRUE(Reserve().ok());
  EXPECT_GE(pinned(), 2 * kBytes) << "the input's copy and the result";
  memory_.ReleaseInputs();
  EXPECT_GE(pinned(), kBytes) << "the result stays";
  EXPECT_LT(pinned(), 2 * kBytes);
  result_.Reset();
  memory_.Reset();
  EXPECT_EQ(pinned(), 0u);
}

TEST_F(WorkMemoryTest, InputsAreCopiedOnceAndCounted) {
  request_.outputs = {OutputWish::kInline};
  SetPlan();
  TakeAll();
  EXPECT_FALSE(memory_.StagesMuch());
  memory_.StageInputs();
  EXPECT_EQ(report_.bytes_in, kBytes);
  std::fill(values_.begin(), values_.end(), 7);
  memory_.StageInputs();
  EXPECT_EQ(report_.bytes_in, kBytes);
  memory_.Assign(lane());
  ASSERT_TRUE(memory_.CopyIn(lane().stream()).ok());
  EXPECT_EQ(FirstInput(), 3) << "as it was when it was copied";
}

// The caller changes its bytes before there is a plan.
TEST_F(WorkMemoryTest, OwnedInputsAreAsTheyWere) {
  request_.outputs = {OutputWish::kInline};
  ASSERT_TRUE(memory_.OwnInputs(engine_->pinned()).ok());
  std::fill(values_.begin(), values_.end(), 7);
  SetPlan();
  TakeAll();
  CopyIn();
  EXPECT_EQ(FirstInput(), 3);
}

// Or when there is one, and no memory at hand for where it has to be.
TEST_F(WorkMemoryTest, KeptInputsAreAsTheyWere) {
  request_.outputs = {OutputWish::kInline};
  SetPlan();
  const uint64_t before = allocations();
  ASSERT_TRUE(memory_.KeepInputs(engine_->pinned()).ok());
  EXPECT_EQ(allocations(), before);
  std::fill(values_.begin(), values_.end(), 7);
  TakeAll();
  CopyIn();
  EXPECT_EQ(FirstInput(), 3);
}

TEST_F(WorkMemoryTest, AResultThatIsKeptLiesInATensor) {
  request_.outputs = {OutputWish::kKeep};
  SetPlan();
  ASSERT_TRUE(Reserve().ok());
  ASSERT_EQ(result_.kept.size(), 1u);
  EXPECT_TRUE(result_.kept[0].valid());
  EXPECT_LT(pinned(), 2 * kBytes) << "nothing is read on the host";
}

TEST_F(WorkMemoryTest, WhatIsRefusedSaysWhichMemoryIsShort) {
  request_.outputs = {OutputWish::kInline};
  SetPlan();
  device_->Fail(DeviceCall::kAllocatePinned,
                absl::ResourceExhaustedError("none"), 1, 100);
  EXPECT_EQ(Reason(Reserve()), "HOST_MEMORY_EXHAUSTED");
  EXPECT_EQ(pinned(), 0u);
}

TEST_F(WorkMemoryTest, AnInputInPiecesIsWhole) {
  request_.outputs = {OutputWish::kInline};
  const std::vector<float> rest(kElements / 2, 5);
  const std::string_view first = request_.inputs[0].pieces[0];
  request_.inputs[0].pieces = {
      first.substr(0, kBytes / 2),
      std::string_view(reinterpret_cast<const char*>(rest.data()), kBytes / 2)};
  SetPlan();
  TakeAll();
  CopyIn();
  EXPECT_EQ(FirstInput(), 3);
  EXPECT_EQ(static_cast<const float*>(memory_.inputs()[0])[kElements - 1], 5);
}

TEST_F(WorkMemoryTest, EachTextIsCopied) {
  const StringRef texts[] = {{"first", 5}, {"", 0}, {"second", 6}};
  InputSource source;
  source.dtype = DType::kString;
  source.dims = {3};
  source.pieces = {
      std::string_view(reinterpret_cast<const char*>(texts), sizeof(texts))};
  request_.inputs = {source};
  ASSERT_TRUE(memory_.OwnInputs(engine_->pinned()).ok());
  const auto* copies =
      reinterpret_cast<const StringRef*>(request_.inputs[0].pieces[0].data());
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_NE(copies[i].data, texts[i].data);
    EXPECT_EQ(std::string(copies[i].data, copies[i].size),
              std::string(texts[i].data, texts[i].size));
  }
}

// What the host reads lies behind what the device does, one after the other.
TEST_F(WorkMemoryTest, InputsThatTheHostReadsLieBesideEachOther) {
  Graph graph;
  graph.opsets = {{"", 17}};
  graph.inputs = {{"x", DType::kFloat, SymbolicDims{Dim()}},
                  {"s", DType::kInt64, SymbolicDims{Dim(2)}},
                  {"t", DType::kInt64, SymbolicDims{Dim(2)}}};
  for (const auto& [from, shape, to] :
       {std::array{"x", "s", "a"}, std::array{"a", "t", "y"}}) {
    GraphNode node;
    node.op = "Reshape";
    node.inputs = {from, shape};
    node.outputs = {to};
    graph.nodes.push_back(std::move(node));
  }
  graph.outputs = {"y"};
  auto program =
      Program::Compile(std::move(graph), engine_->device(), *registry_);
  ASSERT_TRUE(program.ok()) << program.status();
  request_.program = *std::move(program);
  const int64_t s[] = {2, kElements / 2}, t[] = {4, kElements / 4};
  const auto shape_of = [](const int64_t* dims) {
    InputSource source;
    source.dtype = DType::kInt64;
    source.dims = {2};
    source.pieces = {std::string_view(reinterpret_cast<const char*>(dims),
                                      2 * sizeof(int64_t))};
    return source;
  };
  request_.inputs = {Floats(values_), shape_of(s), shape_of(t)};
  std::vector<HostTensor> inputs;
  for (const InputSource& source : request_.inputs) {
    inputs.push_back({.dtype = source.dtype,
                      .dims = source.dims,
                      .data = source.pieces[0].data()});
  }
  auto plan = request_.program->MakePlan(inputs);
  ASSERT_TRUE(plan.ok()) << plan.status();
  plan_ = *std::move(plan);
  request_.outputs = {OutputWish::kInline};
  SetPlan();
  TakeAll();
  CopyIn();
  EXPECT_EQ(std::memcmp(memory_.inputs()[1], s, sizeof(s)), 0);
  EXPECT_EQ(std::memcmp(memory_.inputs()[2], t, sizeof(t)), 0);
}

}  // namespace
}  // namespace weir
