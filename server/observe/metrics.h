// What the server counts, and how it is read: in Prometheus' text format.
// Recording is thread-safe, lock-free and shared with no other thread (each
// thread has a shard of its own); gauges are asked for when somebody reads.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/base/clock.h"
#include "kernels/base/mutex.h"

namespace weir {

// The methods that are counted apart.
enum class RpcMethod : uint8_t {
  kEvaluate,
  kModelInfer,
  kCatalog,
  kKserveOther,
};
inline constexpr int kRpcMethods = 4;

class Metrics {
 public:
  // Upper bounds of the latency histogram, in seconds.
  static constexpr std::array<double, 16> kBuckets = {
      50e-6,   100e-6,  200e-6,  400e-6, 800e-6, 1.6e-3, 3.2e-3, 6.4e-3,
      12.8e-3, 25.6e-3, 51.2e-3, 0.1,    0.25,   0.5,    1.0,    5.0};

  struct Gauge {
    std::string name;  // "weir_stream_pool_lanes"
    std::string help;
    // One of each per sample, read together.
    struct Sample {
      std::vector<std::pair<std::string, std::string>> labels;
      double value = 0;
    };
    std::function<std::vector<Sample>()> read;
    bool counter = false;  // only grows
  };

  Metrics();
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // One answered call.
  void Record(RpcMethod method, absl::StatusCode code, Nanos duration);

  // `gauge.read` runs on the thread that reads, until Clear.
  void AddGauge(Gauge gauge);
  void ClearGauges();

  // Prometheus text format 0.0.4.
  std::string Text() const;

 private:
  static constexpr int kShards = 64;
  static constexpr int kCodes = 17;

  struct alignas(64) Shard {
    std::array<std::array<std::atomic<uint64_t>, kCodes>, kRpcMethods> calls{};
    std::array<std::array<std::atomic<uint64_t>, kBuckets.size() + 1>,
               kRpcMethods>
        buckets{};
    std::array<std::atomic<uint64_t>, kRpcMethods> nanos{};
  };

  Shard& MyShard();

  std::unique_ptr<std::array<Shard, kShards>> shards_;
  mutable Mutex mu_;
  std::vector<Gauge> gauges_ WEIR_GUARDED_BY(mu_);
};

}  // namespace weir
