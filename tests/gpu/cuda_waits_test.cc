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

// Of one lane 64 pictures are in flight at most, of all together 256.
TEST_F(CudaWaitsTest, PicturesOfManyLanesWaitForOneAnother) {
  constexpr int64_t kLanes = 6, kPictures = 96, kHeight = 8, kWidth = 16;
  constexpr size_t kBytes = kHeight * kWidth * 3;
  const std::vector<uint8_t> pixels = image::SmoothPicture(kHeight, kWidth, 3);
  const std::vector<uint16_t> samples(pixels.begin(), pixels.end());
  const image::Bytes png = image::EncodePng(samples, kHeight, kWidth);
  const image::Bytes jpeg = image::EncodeJpeg(pixels, kHeight, kWidth, 3);

  NodeInfo node;
  node.name = "decode";
  node.domain = "weir";
  node.op = "DecodeImage";
  node.opset = 1;
  node.input_types = {DType::kString};
  const auto kernel = registry_->CreateKernel(node, *device_);
  ASSERT_TRUE(kernel.ok()) << kernel.status();
  const TensorMeta in = {
      DType::kString, {kPictures}, kPictures, kPictures * sizeof(StringRef)};
  const TensorMeta out = {DType::kUint8,
                          {kPictures, kHeight, kWidth, 3},
                          kPictures * static_cast<int64_t>(kBytes),
                          kPictures * kBytes};
  const std::vector<std::vector<int64_t>> ints = {{kHeight, kWidth, 0}};
  const auto plan = (*kernel)->Plan({{&in, 1}, {&out, 1}, ints});
  ASSERT_TRUE(plan.ok()) << plan.status();

  for (const bool is_jpeg : {false, true}) {
    SCOPED_TRACE(is_jpeg ? "JPEG" : "PNG");
    const image::Bytes& file = is_jpeg ? jpeg : png;
    const std::vector<StringRef> files(
        kPictures, {reinterpret_cast<const char*>(file.data()), file.size()});
    struct Lane {
      std::unique_ptr<Stream> stream;
      std::unique_ptr<DeviceGate> gate;
      DeviceMemory pixels, scratch;
      PinnedMemory result;
      std::atomic<int> asked = 0;
      std::unique_ptr<TestTask> task;
      std::thread launcher;
    };
    std::array<Lane, kLanes> lanes;
    for (Lane& lane : lanes) {
      lane.stream = *device_->CreateStream(0);
      lane.gate = MakeGate(*device_);
      lane.pixels = *device_->Allocate(out.bytes);
      lane.scratch = *device_->Allocate((*plan)->scratch_bytes() + 256);
      lane.result = *device_->AllocatePinned(out.bytes);
      lane.task = std::make_unique<TestTask>([&](Stream& s) -> absl::Status {
        WEIR_RETURN_IF_ERROR(lane.gate->Hold(s));
        const auto asks = [&lane] {
          ++lane.asked;
          return absl::OkStatus();
        };
        const absl::FunctionRef<absl::Status()> go_on = asks;
        const void* const input = files.data();
        void* const output = lane.pixels.data();
        WEIR_RETURN_IF_ERROR((*plan)->Run({.stream = s,
                                           .inputs = {&input, 1},
                                           .outputs = {&output, 1},
                                           .scratch = lane.scratch.data(),
                                           .random = {},
                                           .go_on = &go_on}));
        return s.CopyToHost(lane.result.data(), output, out.bytes);
      });
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
    RecordProperty(is_jpeg ? "jpeg_lanes_waited" : "png_lanes_waited",
                   all_wait ? "all" : "some");
    for (Lane& lane : lanes) lane.gate->Open();
    for (Lane& lane : lanes) {
      lane.launcher.join();
      lane.task->Wait();
    }
    for (Lane& lane : lanes) {
      const absl::Status status = lane.task->Wait().status;
      if (absl::IsUnimplemented(status)) GTEST_SKIP() << status.message();
      ASSERT_TRUE(status.ok()) << status;
      const auto* got = reinterpret_cast<const uint8_t*>(lane.result.data());
      for (size_t i = 0; i < out.bytes; ++i) {
        const int off = int{got[i]} - int{pixels[i % kBytes]};
        ASSERT_LE(std::abs(off), is_jpeg ? 16 : 0) << "byte " << i;
      }
    }
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
  if (absl::IsUnimplemented(kernel.status())) GTEST_SKIP() << kernel.status();
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
