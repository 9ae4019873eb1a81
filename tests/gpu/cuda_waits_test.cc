// Launches that wait for a GPU: for room in its queue, and for decoders and
// staging that pictures of other works still use. Streams are held by gates.
// And launches that may not wait, of which many run at once. Skipped without a
// GPU.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <latch>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/backend/devices.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/thread_role.h"
#include "kernels/ops/registry.h"
#include "tests/base/eventually.h"
#include "tests/conformance/gate.h"
#include "tests/device/test_task.h"
#include "tests/ops/image/test_images.h"

namespace weir {
namespace {

using testing::Eventually;

class CudaWaitsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    registry_ = MakeOpRegistry();
    auto device = MakeDevice("cuda:0", DeviceOptions(), *registry_);
    if (Reason(device.status()) == "NO_CUDA_DEVICE") {
      GTEST_SKIP() << device.status().message();
    }
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
  }

  static absl::Status RunOn(Stream& stream, TestTask::LaunchFunction launch) {
    TestTask task(std::move(launch));
    stream.Enqueue(&task);
    return task.Wait().status;
  }

  std::unique_ptr<OpRegistry> registry_;
  std::unique_ptr<Device> device_;
};

// The device does nothing of what it was given, and the launch of more waits.
TEST_F(CudaWaitsTest, ADeviceThatGivesALaunchNoRoomStalls) {
  auto stream = *device_->CreateStream(0);
  auto gate = MakeGate(*device_);
  auto memory = *device_->Allocate(64);
  std::atomic<bool> given_up = false;
  const auto go_on = [&given_up] {
    return given_up ? absl::CancelledError("it left") : absl::OkStatus();
  };
  TestTask large([&](Stream& s) -> absl::Status {
    WEIR_RETURN_IF_ERROR(gate->Hold(s));
    for (;;) {
      WEIR_RETURN_IF_ERROR(s.Fill(memory.data(), 1, 64));
      WEIR_RETURN_IF_ERROR(s.WaitForRoom(go_on));
    }
  });
  std::thread launcher([&] { stream->Enqueue(&large); });
  EXPECT_TRUE(Eventually([&] { return !device_->health().stall().ok(); },
                         std::chrono::seconds(10)));
  EXPECT_EQ(Reason(device_->health().stall()), "DEVICE_STALLED");
  EXPECT_FALSE(large.finished());
  // Its caller need not wait for the device to move.
  given_up = true;
  launcher.join();
  gate->Open();
  EXPECT_EQ(large.Wait().status, absl::CancelledError("it left"));
  EXPECT_TRUE(Eventually([&] { return device_->health().stall().ok(); },
                         std::chrono::seconds(10)));
  EXPECT_GE(large.Wait().started_at, large.Wait().enqueued_at);
  EXPECT_LT(large.Wait().started_at, large.Wait().launched_at);
  EXPECT_FALSE(device_->health().poisoned());
}

// Pictures that a lane decodes, of either kind.
class CudaPicturesTest : public CudaWaitsTest {
 protected:
  static constexpr int64_t kHeight = 8, kWidth = 16;
  static constexpr size_t kBytes = kHeight * kWidth * 3;

  struct Lane {
    std::unique_ptr<Stream> stream;
    std::unique_ptr<DeviceGate> gate;
    DeviceMemory pixels, scratch;
    PinnedMemory result;
    std::atomic<int> asked = 0;
    std::unique_ptr<TestTask> task;
    std::thread launcher;
  };

  void SetUp() override {
    CudaWaitsTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    pixels_ = image::SmoothPicture(kHeight, kWidth, 3);
    NodeInfo node;
    node.name = "decode";
    node.domain = "weir";
    node.op = "DecodeImage";
    node.opset = 1;
    node.input_types = {DType::kString};
    auto kernel = registry_->CreateKernel(node, *device_);
    ASSERT_TRUE(kernel.ok()) << kernel.status();
    kernel_ = *std::move(kernel);
  }

  // `lane` decodes as many at once, if told to behind its gate.
  void Prepare(Lane& lane, int64_t pictures, bool is_jpeg, bool held) {
    const TensorMeta in = {DType::kString,
                           {pictures},
                           pictures,
                           static_cast<size_t>(pictures) * sizeof(StringRef)};
    const TensorMeta out = {DType::kUint8,
                            {pictures, kHeight, kWidth, 3},
                            pictures * static_cast<int64_t>(kBytes),
                            static_cast<size_t>(pictures) * kBytes};
    const std::vector<std::vector<int64_t>> ints = {{kHeight, kWidth, 0}};
    auto plan = kernel_->Plan({{&in, 1}, {&out, 1}, ints});
    ASSERT_TRUE(plan.ok()) << plan.status();
    plan_ = *std::move(plan);
    if (is_jpeg) {
      file_ = image::EncodeJpeg(pixels_, kHeight, kWidth, 3);
    } else {
      file_ = image::EncodePng(
          std::vector<uint16_t>(pixels_.begin(), pixels_.end()), kHeight,
          kWidth);
    }
    files_.assign(static_cast<size_t>(pictures),
                  {reinterpret_cast<const char*>(file_.data()), file_.size()});
    lane.stream = *device_->CreateStream(0);
    lane.gate = MakeGate(*device_);
    lane.pixels = *device_->Allocate(out.bytes);
    lane.scratch = *device_->Allocate(plan_->scratch_bytes() + 256);
    lane.result = *device_->AllocatePinned(out.bytes);
    lane.task = std::make_unique<TestTask>(
        [this, &lane, held, bytes = out.bytes](Stream& s) -> absl::Status {
          if (held) WEIR_RETURN_IF_ERROR(lane.gate->Hold(s));
          const auto asks = [&lane] {
            ++lane.asked;
            return absl::OkStatus();
          };
          const absl::FunctionRef<absl::Status()> go_on = asks;
          const void* const input = files_.data();
          void* const output = lane.pixels.data();
          WEIR_RETURN_IF_ERROR(plan_->Run({.stream = s,
                                           .inputs = {&input, 1},
                                           .outputs = {&output, 1},
                                           .scratch = lane.scratch.data(),
                                           .random = {},
                                           .go_on = &go_on}));
          return s.CopyToHost(lane.result.data(), output, bytes);
        });
  }

  // Of one lane 64 pictures are in flight at most, of all together 256.
  void ExpectLanesWaitForOneAnother(bool is_jpeg) {
    constexpr int64_t kLanes = 6, kPictures = 96;
    constexpr int kMostInFlight = 256;
    std::array<Lane, kLanes> lanes;
    for (Lane& lane : lanes) {
      ASSERT_NO_FATAL_FAILURE(Prepare(lane, kPictures, is_jpeg, true));
    }
    for (Lane& lane : lanes) {
      lane.launcher =
          std::thread([&lane] { lane.stream->Enqueue(lane.task.get()); });
    }
    // A driver that waits for streams when it gives memory holds them up
    // sooner.
    const bool all_wait = Eventually(
        [&] {
          for (const Lane& lane : lanes) {
            if (lane.asked == 0) return false;
          }
          return true;
        },
        std::chrono::seconds(10));
    RecordProperty("lanes_waited", all_wait ? "all" : "some");
    for (Lane& lane : lanes) lane.gate->Open();
    for (Lane& lane : lanes) {
      lane.launcher.join();
      lane.task->Wait();
    }
    for (Lane& lane : lanes) {
      const absl::Status status = lane.task->Wait().status;
      if (is_jpeg && absl::IsUnimplemented(status)) {
        GTEST_SKIP() << "no nvJPEG: " << status.message();
      }
      ASSERT_TRUE(status.ok()) << status;
      const auto* got = reinterpret_cast<const uint8_t*>(lane.result.data());
      for (size_t i = 0; i < kPictures * kBytes; ++i) {
        const int off = int{got[i]} - int{pixels_[i % kBytes]};
        ASSERT_LE(std::abs(off), is_jpeg ? 16 : 0) << "byte " << i;
      }
    }
    // What was made for them is still there: all 6 * 64, had none waited for
    // another's.
    const int kept = TrimAll();
    RecordProperty("kept", kept);
    EXPECT_GT(kept, 0);
    EXPECT_LE(kept, kMostInFlight);
  }

  // How many pieces of idle memory the device gave back.
  int TrimAll() {
    int trimmed = 0;
    while (device_->TrimOne(kNoDeadline)) ++trimmed;
    return trimmed;
  }

  std::vector<uint8_t> pixels_;
  std::unique_ptr<const Kernel> kernel_;
  std::unique_ptr<const KernelPlan> plan_;
  image::Bytes file_;
  std::vector<StringRef> files_;
};

TEST_F(CudaPicturesTest, PngPicturesOfManyLanesWaitForOneAnother) {
  ExpectLanesWaitForOneAnother(/*is_jpeg=*/false);
}

TEST_F(CudaPicturesTest, JpegPicturesOfManyLanesWaitForOneAnother) {
  ExpectLanesWaitForOneAnother(/*is_jpeg=*/true);
}

// Pinned staging, and a decoder with its buffers.
TEST_F(CudaPicturesTest, WhatAPictureTookIsGivenBackOnce) {
  for (const bool is_jpeg : {false, true}) {
    SCOPED_TRACE(is_jpeg ? "JPEG" : "PNG");
    Lane lane;
    ASSERT_NO_FATAL_FAILURE(Prepare(lane, 1, is_jpeg, false));
    EXPECT_FALSE(device_->TrimOne(kNoDeadline));
    lane.stream->Enqueue(lane.task.get());
    const absl::Status status = lane.task->Wait().status;
    if (is_jpeg && absl::IsUnimplemented(status)) {
      GTEST_SKIP() << "no nvJPEG: " << status.message();
    }
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_TRUE(device_->TrimOne(kNoDeadline));
    EXPECT_FALSE(device_->TrimOne(kNoDeadline));
  }
}

// What cuDNN needs for each launch is there by then, for streams that were made
// before it was opened and after.
TEST_F(CudaWaitsTest, ConvolutionsOfManyStreamsAreLaunchedWithoutAWait) {
  constexpr int kLanes = 8, kRounds = 50;
  struct Lane {
    std::unique_ptr<Stream> stream;
    DeviceMemory in, weights, result, scratch;
    std::thread launcher;
  };
  std::array<Lane, kLanes> lanes;
  for (size_t i = 0; i < kLanes / 2; ++i) {
    lanes[i].stream = *device_->CreateStream(0);
  }
  NodeInfo node;
  node.name = "conv";
  node.op = "Conv";
  node.opset = 11;
  node.input_types = {DType::kFloat, DType::kFloat};
  const auto kernel = registry_->CreateKernel(node, *device_);
  if (absl::IsUnimplemented(kernel.status())) {
    GTEST_SKIP() << "no cuDNN: " << kernel.status().message();
  }
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  for (size_t i = kLanes / 2; i < kLanes; ++i) {
    lanes[i].stream = *device_->CreateStream(0);
  }
  const auto dense = [](Dims dims) {
    int64_t count = 1;
    for (const int64_t dim : dims) count *= dim;
    return TensorMeta{DType::kFloat, std::move(dims), count,
                      static_cast<size_t>(count) * sizeof(float)};
  };
  const std::array<TensorMeta, 2> in = {dense({1, 16, 32, 32}),
                                        dense({16, 16, 3, 3})};
  const TensorMeta out = dense({1, 16, 30, 30});
  const std::vector<std::vector<int64_t>> ints(2);
  const auto plan = (*kernel)->Plan({in, {&out, 1}, ints});
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (Lane& lane : lanes) {
    lane.in = *device_->Allocate(in[0].bytes);
    lane.weights = *device_->Allocate(in[1].bytes);
    lane.result = *device_->Allocate(out.bytes);
    lane.scratch = *device_->Allocate((*plan)->scratch_bytes() + 256);
    ASSERT_TRUE(RunOn(*lane.stream, [&lane, &in](Stream& s) -> absl::Status {
                  WEIR_RETURN_IF_ERROR(s.Fill(lane.in.data(), 0, in[0].bytes));
                  return s.Fill(lane.weights.data(), 0, in[1].bytes);
                }).ok());
  }
  const auto convolve = [&plan](Lane& lane) {
    return RunOn(*lane.stream, [&plan, &lane](Stream& s) {
      const std::array<const void*, 2> inputs = {lane.in.data(),
                                                 lane.weights.data()};
      void* const output = lane.result.data();
      return (*plan)->Run({.stream = s,
                           .inputs = inputs,
                           .outputs = {&output, 1},
                           .scratch = lane.scratch.data(),
                           .random = {}});
    });
  };
  // The first one loads the library's code, for which it may wait.
  ASSERT_TRUE(convolve(lanes[0]).ok());

  const MisplacedWaits before = CountMisplacedWaits();
  std::latch start(kLanes);
  for (Lane& lane : lanes) {
    lane.launcher = std::thread([&] {
      const ScopedThreadRole role(ThreadRole::kIo);
      start.arrive_and_wait();
      for (int i = 0; i < kRounds; ++i) {
        const absl::Status status = convolve(lane);
        EXPECT_TRUE(status.ok()) << status;
      }
    });
  }
  for (Lane& lane : lanes) lane.launcher.join();
  const MisplacedWaits after = CountMisplacedWaits();
  EXPECT_EQ(after.count, before.count) << after.first;
}

}  // namespace
}  // namespace weir
