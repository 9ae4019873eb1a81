// Eight contexts, each with 20 kernels that keep one block busy: how much of
// the GPU's concurrency is left. Must hold of long kernels: at most 1.15 times
// bare streams, and at most a sixth of one shared stream. Kernels as short as
// what a model's small layers take show what a launch costs, which long ones
// hide: at most 1.5 times bare streams.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "tests/bench/gpu_bare.h"
#include "tests/bench/gpu_engine.h"

namespace weir::bench {
namespace {

constexpr int kContexts = 8;
constexpr int kKernels = 20;
constexpr int64_t kLong = 500;  // microseconds
constexpr int64_t kShort = 10;
constexpr int kRounds = 25;

constexpr char kSpin[] = R"(
extern "C" __global__ void weir_kernel(unsigned long long nanoseconds) {
  unsigned long long start, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - start < nanoseconds);
}
)";

// Milliseconds until `run(i)` has returned in each of kContexts threads: the
// median of some rounds.
double Measure(const std::function<void(int)>& run) {
  std::vector<double> times;
  for (int round = 0; round <= kRounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    std::vector<std::thread> threads;
    for (int i = 0; i < kContexts; ++i) threads.emplace_back(run, i);
    for (std::thread& thread : threads) thread.join();
    if (round == 0) continue;  // warm-up
    times.push_back(std::chrono::duration<double, std::milli>(
                        std::chrono::steady_clock::now() - start)
                        .count());
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

double MeasureBare(int64_t microseconds) {
  CheckCuda(cudaSetDevice(0), "cudaSetDevice");
  auto bare = BareCuda::Create(kSpin);
  Check(bare.status());
  std::vector<cudaStream_t> streams(kContexts);
  for (cudaStream_t& stream : streams) {
    CheckCuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
              "cudaStreamCreateWithFlags");
  }
  return Measure([&](int i) {
    CheckCuda(cudaSetDevice(0), "cudaSetDevice");
    cudaStream_t stream = streams[static_cast<size_t>(i)];
    auto nanoseconds = static_cast<unsigned long long>(microseconds) * 1000;
    void* params[] = {&nanoseconds};
    for (int k = 0; k < kKernels; ++k) {
      Check(bare->Launch(stream, 1, 32, params));
    }
    CheckCuda(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  });
}

double MeasureWeir(size_t streams, int64_t microseconds) {
  GpuEngine gpu(streams);
  Attributes attributes;
  attributes.Set("microseconds", microseconds);
  const auto program = gpu.Chain("weir", "Spin", attributes, kKernels);
  std::vector<std::unique_ptr<Evaluation>> evaluations;
  for (int i = 0; i < kContexts; ++i) {
    evaluations.push_back(
        std::make_unique<Evaluation>(&gpu.engine(), program, 64));
  }
  return Measure([&](int i) { evaluations[static_cast<size_t>(i)]->Run(); });
}

int Main() {
  // Read once, when the driver starts; the backend sets the same.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);
  bool held = true;
  for (const int64_t microseconds : {kLong, kShort}) {
    const double pooled = MeasureWeir(kContexts, microseconds);
    const double bare = MeasureBare(microseconds);
    const double most = microseconds == kLong ? 1.15 : 1.5;
    std::printf("%d contexts x %d kernels of %d us        ms\n", kContexts,
                kKernels, static_cast<int>(microseconds));
    std::printf("bare CUDA, a stream for each thread   %8.3f\n", bare);
    std::printf("weir, %d streams                       %8.3f\n", kContexts,
                pooled);
    std::printf("pooled / bare: %.3f (must be at most %.2f)\n", pooled / bare,
                most);
    held = held && pooled <= most * bare;
    if (microseconds != kLong) continue;
    const double single = MeasureWeir(1, microseconds);
    std::printf("weir, 1 stream                        %8.3f\n", single);
    std::printf("one stream / pooled: %.2f (must be at least 6)\n",
                single / pooled);
    held = held && single >= 6 * pooled;
  }
  return held ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace
}  // namespace weir::bench

int main() { return weir::bench::Main(); }
