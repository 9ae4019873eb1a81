// Launches that wait for a GPU: for room in its queue, and for decoders and
// staging that pictures of other works still use. Streams are held by gates.
// Skipped without a GPU.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "kernels/backend/devices.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
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

}  // namespace
}  // namespace weir
