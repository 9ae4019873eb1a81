// An event that somebody else records, on a stream that is not weir's, is a
// point like any other: a stream of weir's waits for it, its place there backs
// a caller's value, and whoever comes after that value waits on the device.
#include <dlfcn.h>

#include <memory>
#include <vector>

#include "tests/base/event.h"
#include "tests/device/test_task.h"
#include "tests/eval/eval_fixture.h"

namespace weir {
namespace {

// The few functions of the driver that a program beside weir would call. Its
// handles are those of the CUDA runtime.
class Driver {
 public:
  using Handle = void*;

  Driver() : library_(dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL)) {}
  ~Driver() {
    if (library_ != nullptr) dlclose(library_);
  }
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  template <typename... Args>
  void Call(const char* name, Args... args) {
    ASSERT_NE(library_, nullptr) << dlerror();
    auto* function = reinterpret_cast<int (*)(Args...)>(dlsym(library_, name));
    ASSERT_NE(function, nullptr) << dlerror();
    ASSERT_EQ(function(args...), 0) << name;
  }

 private:
  void* const library_;
};

class ForeignEvent : public EvalTest {
 protected:
  void SetUp() override {
    EvalTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    driver_ = std::make_unique<Driver>();
    // The device's primary context, which weir uses.
    driver_->Call("cuDevicePrimaryCtxRetain", &context_, 0);
    driver_->Call("cuCtxSetCurrent", context_);
    driver_->Call("cuStreamCreate", &foreign_, 1u);  // non-blocking
    driver_->Call("cuEventCreate", &event_, 2u);     // without time stamps
  }

  void TearDown() override {
    gate_.Set();
    if (event_ != nullptr) {
      driver_->Call("cuEventDestroy_v2", event_);
      driver_->Call("cuStreamDestroy_v2", foreign_);
    }
    EvalTest::TearDown();
    engine_.reset();
    if (context_ != nullptr) driver_->Call("cuDevicePrimaryCtxRelease_v2", 0);
  }

  void RecordEventAfterGate() {
    driver_->Call(
        "cuLaunchHostFunc", foreign_,
        +[](void* at) { static_cast<Event*>(at)->Wait(); },
        static_cast<void*>(&gate_));
    driver_->Call("cuEventRecord", event_, foreign_);
  }

  std::vector<float> ReadBack(Activation& activation, const WatchedWork& kept) {
    WatchedWork reader;
    reader.request().program = Compile("Identity", 1);
    reader.request().inputs.resize(1);
    reader.request().inputs[0].producer = kept.work;
    activation.Submit(reader.work.get(), &reader.waiter);
    EXPECT_TRUE(reader.Done().ok()) << reader.work->status();
    return Result(*reader.work);
  }

  Event gate_;  // what the foreign stream waits for
  std::unique_ptr<Driver> driver_;
  Driver::Handle context_ = nullptr;
  Driver::Handle foreign_ = nullptr;
  Driver::Handle event_ = nullptr;
};
INSTANTIATE_TEST_SUITE_P(Devices, ForeignEvent, ::testing::Values("cuda:0"),
                         [](const auto&) { return "cuda"; });

TEST_P(ForeignEvent, IsWaitedForOnTheDevice) {
  auto entry = engine_->device().CreateStream(0);
  ASSERT_TRUE(entry.ok()) << entry.status();
  auto foreign = std::make_shared<Timeline>("foreign");
  TestTask wait(
      [&](Stream& stream) {
        driver_->Call("cuStreamWaitEvent", stream.native_handle(), event_, 0u);
        return absl::OkStatus();
      },
      [&](const Completion& completion) {
        EXPECT_TRUE(foreign->Advance(1, completion.outcome).ok());
      });
  const std::vector<float> values = {1, 2, 3};
  WatchedWork work;
  work.request().program = Compile("Neg", 1);
  work.request().inputs = {Floats(values)};
  work.request().outputs = {OutputWish::kKeep};
  work.request().mode = EvalMode::kEager;
  work.request().after = {Point{foreign, 1}};

  // What the driver does once for a program waits for whatever runs.
  Activation activation = Enter(NewContext());
  WatchedWork before;
  before.request().program = work.request().program;
  before.request().inputs = work.request().inputs;
  before.request().outputs = work.request().outputs;
  activation.Submit(before.work.get(), &before.waiter);
  ASSERT_TRUE(before.Done().ok()) << before.work->status();
  RecordEventAfterGate();
  const uint64_t place = (*entry)->Enqueue(&wait, Stream::Inline::kNever);
  foreign->Back(1, Point{(*entry)->timeline(), place});
  activation.Submit(work.work.get(), &work.waiter);
  // It is launched, though the event is not there.
  EXPECT_TRUE(work.Returned().ok()) << work.work->status();
  EXPECT_FALSE(wait.finished());
  EXPECT_FALSE(work.work->done());
  EXPECT_EQ(foreign->value(), 0u);

  gate_.Set();
  EXPECT_TRUE(wait.Wait().status.ok());
  ASSERT_TRUE(work.Done().ok()) << work.work->status();
  EXPECT_EQ(ReadBack(activation, work), (std::vector<float>{-1, -2, -3}));
  const SyncReport& report = work.work->report();
  ASSERT_EQ(report.waits.size(), 1u);
  EXPECT_EQ(report.waits[0].kind, InsertedWait::Kind::kDevice);
  EXPECT_EQ(foreign->value(), 1u);
}

}  // namespace
}  // namespace weir
