// The cost of one small evaluation above what CUDA itself takes: 4 KB in, one
// kernel, 4 KB out, seen on the host. Must hold: at most 25 us more.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#include "tests/bench/gpu_bare.h"
#include "tests/bench/gpu_engine.h"

namespace weir::bench {
namespace {

constexpr size_t kBytes = 4096;
constexpr int kWarmUp = 200;
constexpr int kRounds = 5000;

constexpr char kRelu[] = R"(
extern "C" __global__ void weir_kernel(const float* in, float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = in[i] < 0 ? 0 : in[i];
}
)";

struct Times {
  double p50, p99;  // microseconds
};

Times Measure(const std::function<void()>& round) {
  for (int i = 0; i < kWarmUp; ++i) round();
  std::vector<double> times;
  for (int i = 0; i < kRounds; ++i) {
    const auto start = std::chrono::steady_clock::now();
    round();
    times.push_back(std::chrono::duration<double, std::micro>(
                        std::chrono::steady_clock::now() - start)
                        .count());
  }
  std::sort(times.begin(), times.end());
  return {times[times.size() / 2], times[times.size() * 99 / 100]};
}

Times MeasureBare() {
  CheckCuda(cudaSetDevice(0), "cudaSetDevice");
  auto bare = BareCuda::Create(kRelu);
  Check(bare.status());
  cudaStream_t stream = nullptr;
  CheckCuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
            "cudaStreamCreateWithFlags");
  void *host_in, *host_out, *in, *out;
  CheckCuda(cudaMallocHost(&host_in, kBytes), "cudaMallocHost");
  CheckCuda(cudaMallocHost(&host_out, kBytes), "cudaMallocHost");
  CheckCuda(cudaMalloc(&in, kBytes), "cudaMalloc");
  CheckCuda(cudaMalloc(&out, kBytes), "cudaMalloc");
  std::memset(host_in, 0, kBytes);
  int n = static_cast<int>(kBytes / sizeof(float));
  void* params[] = {&in, &out, &n};
  return Measure([&] {
    CheckCuda(
        cudaMemcpyAsync(in, host_in, kBytes, cudaMemcpyHostToDevice, stream),
        "cudaMemcpyAsync");
    Check(bare->Launch(stream, 4, 256, params));
    CheckCuda(
        cudaMemcpyAsync(host_out, out, kBytes, cudaMemcpyDeviceToHost, stream),
        "cudaMemcpyAsync");
    CheckCuda(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  });
}

int Main() {
  GpuEngine gpu(1);
  const Times bare = MeasureBare();
  Evaluation evaluation(&gpu.engine(), gpu.Chain("", "Relu", {}, 1), kBytes);
  const Times ours = Measure([&] { evaluation.Run(); });
  std::printf("4 KB in, one kernel, 4 KB out     p50 us   p99 us\n");
  std::printf("bare CUDA, stream synchronize   %8.1f %8.1f\n", bare.p50,
              bare.p99);
  std::printf("weir, in process, SYNC_FULL     %8.1f %8.1f\n", ours.p50,
              ours.p99);
  std::printf("difference of p50: %.1f us (must be at most 25)\n",
              ours.p50 - bare.p50);
  return ours.p50 - bare.p50 <= 25 ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace
}  // namespace weir::bench

int main() { return weir::bench::Main(); }
