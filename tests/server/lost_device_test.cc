// What a start says of GPUs that another process has lost: the driver is a
// pretended one, which the loader finds first.
#include <gmock/gmock.h>
#include <signal.h>

#include <string>

#include "tests/server/child_process.h"

namespace weir::testing {
namespace {

using ::testing::HasSubstr;

constexpr int kDeviceLostCode = 3;

// Of a start on a machine whose driver answers so.
class Start {
 public:
  Start(const std::string& device, int answer, int gpus, int count_answer = 0)
      : process_({"/usr/bin/env",
                  "LD_LIBRARY_PATH=" + Folder(BuiltProgram("weir-server")) +
                      "/../test-bin/pretended",
                  "PRETENDED_CUINIT=" + std::to_string(answer),
                  "PRETENDED_GPUS=" + std::to_string(gpus),
                  "PRETENDED_COUNT=" + std::to_string(count_answer),
                  BuiltProgram("weir-server"), "--device=" + device,
                  "--grpc=127.0.0.1:0", "--http=off"}) {
    // The end at once if it serves, which it says first.
    if (!process_.ReadLine().empty()) process_.Signal(SIGKILL);
    code_ = process_.Wait();
  }

  int code() const { return code_; }
  const std::string& error() const { return process_.err(); }

 private:
  static std::string Folder(const std::string& file) {
    return file.substr(0, file.rfind('/'));
  }

  ChildProcess process_;
  int code_ = -1;
};

// What cuInit says after losses: CUDA_ERROR_NOT_INITIALIZED,
// DEVICE_UNAVAILABLE, ECC_UNCORRECTABLE, SYSTEM_NOT_READY, UNKNOWN.
TEST(LostDeviceTest, ADriverThatDoesNotStartEndsItWithThree) {
  for (const int answer : {3, 46, 214, 802, 999}) {
    // Nor does the CPU take over from a GPU that is there.
    for (const char* device : {"cuda", "auto", "cuda:1"}) {
      const Start start(device, answer, 1);
      EXPECT_EQ(start.code(), kDeviceLostCode) << device << " " << answer;
      EXPECT_THAT(start.error(),
                  HasSubstr("does not start: error " + std::to_string(answer)));
    }
  }
}

// CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, as after an update without a restart, and
// CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE: the GPU is well.
TEST(LostDeviceTest, ADriverThatDoesNotFitIsNoLoss) {
  for (const int answer : {803, 804}) {
    for (const char* device : {"cuda", "auto", "cuda:1"}) {
      const Start start(device, answer, 1);
      EXPECT_EQ(start.code(), 1) << device << " " << answer;
      EXPECT_THAT(start.error(),
                  HasSubstr("does not start: error " + std::to_string(answer)));
      EXPECT_THAT(start.error(),
                  HasSubstr(answer == 803 ? "restart the machine"
                                          : "compatibility package"));
    }
  }
}

// As where a GPU leaves once the driver has started.
TEST(LostDeviceTest, ADriverThatStartsAndFindsNothingEndsItWithThree) {
  for (const int answer : {3, 100, 101, 802}) {
    for (const char* device : {"cuda", "auto"}) {
      const Start start(device, 0, 1, answer);
      EXPECT_EQ(start.code(), kDeviceLostCode) << device << " " << answer;
      EXPECT_THAT(start.error(),
                  HasSubstr("(" + std::to_string(answer) + "): "));
    }
  }
}

TEST(LostDeviceTest, OneGpuFewerThanItAsksForEndsItWithThree) {
  const Start start("cuda:1", 0, 1);
  EXPECT_EQ(start.code(), kDeviceLostCode);
  EXPECT_THAT(start.error(),
              HasSubstr("there is no cuda:1: this machine has 1 GPU\n"));
}

TEST(LostDeviceTest, ADriverWithoutGpusEndsItWithThree) {
  for (const int answer : {0, 100}) {  // 100 is CUDA_ERROR_NO_DEVICE
    const Start start("cuda", answer, 0);
    EXPECT_EQ(start.code(), kDeviceLostCode) << answer;
    EXPECT_THAT(start.error(), HasSubstr("finds no GPU")) << answer;
  }
}

}  // namespace
}  // namespace weir::testing
