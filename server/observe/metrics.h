// What the server counts, and how it is read: in Prometheus' text format. The
// table of all metrics is metrics.def. Recording is lock-free, allocates
// nothing and shares no cache line with other threads (each has a shard of its
// own); gauges are asked for when somebody reads. Thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/base/clock.h"
#include "kernels/base/mutex.h"
#include "kernels/base/per_thread.h"

namespace weir {

enum class Metric : uint8_t {
#define WEIR_METRIC(id, name, type, labels, help) id,
#define TRITON_METRIC WEIR_METRIC
#include "server/observe/metrics.def"
#undef TRITON_METRIC
#undef WEIR_METRIC
};

struct MetricDef {
  enum class Type : uint8_t { kCounter, kGauge, kHistogram };
  const char* name;
  Type type;
  const char* labels;  // separated by commas
  const char* help;
  bool triton;  // exists only with --triton-metrics
};

// By Metric.
absl::Span<const MetricDef> MetricDefs();

// "counter", "gauge", "histogram": as in the text format.
const char* MetricTypeName(MetricDef::Type type);

// How long the parts of one evaluation took; negative: it did not get there.
struct StageTimes {
  Nanos queue = -1;
  Nanos lane = -1;
  Nanos compute = -1;
};

// Whether a call that ends so has nobody who waits for its answer.
constexpr bool IsGivenUp(absl::StatusCode code) {
  return code == absl::StatusCode::kCancelled ||
         code == absl::StatusCode::kDeadlineExceeded;
}

class Metrics {
  struct Family;

 public:
  // Upper bounds of the histograms of times.
  static constexpr std::array<Nanos, 19> kTimeBounds = {
      10'000,        25'000,        50'000,        100'000,       250'000,
      500'000,       1'000'000,     2'500'000,     5'000'000,     10'000'000,
      25'000'000,    50'000'000,    100'000'000,   250'000'000,   500'000'000,
      1'000'000'000, 2'500'000'000, 5'000'000'000, 10'000'000'000};
  // Those of what nobody waited for: few, and each one of the above.
  static constexpr std::array<Nanos, 10> kGivenUpBounds = {
      10'000'000,  25'000'000,    50'000'000,    100'000'000,   250'000'000,
      500'000'000, 1'000'000'000, 2'500'000'000, 5'000'000'000, 10'000'000'000};
  static constexpr std::array<int64_t, 9> kBatchBounds = {1,  2,  4,   8,  16,
                                                          32, 64, 128, 256};

  // Why calls are refused for want of room or time: the reasons of such errors,
  // and the deadline, of which errors have none. A test compares them with
  // docs/errors.md.
  static constexpr std::string_view kDeadlinePassed = "DEADLINE_PASSED";
  static constexpr std::array<std::string_view, 17> kRefusals = {
      "QUEUE_FULL",
      "QUEUE_BYTES_FULL",
      "TOO_MANY_UPLOADS",
      "TOO_MANY_CALLS",
      "STREAM_POOL_EXHAUSTED",
      "HOST_MEMORY_EXHAUSTED",
      "DEVICE_MEMORY_EXHAUSTED",
      "PROGRAM_MEMORY_EXHAUSTED",
      "COMPILE_QUEUE_FULL",
      "COMPILE_WAIT_TOO_LONG",
      "MEMORY_WAIT_TOO_LONG",
      "STEP_WAIT_TOO_LONG",
      "SPACE_QUOTA",
      "CONTEXT_FULL",
      "CONTEXT_QUEUE_FULL",
      kDeadlinePassed,
      "OTHER"};

  // One series of a metric: the values of its labels, in the table's order.
  // Labels at the end may be left out.
  struct Sample {
    std::vector<std::string> labels;
    double value = 0;
  };
  using ReadFn = std::function<std::vector<Sample>()>;

  // Where a collector puts the series that it knows of, of several metrics.
  class Series {
   public:
    void Add(Metric metric, const std::vector<std::string>& labels,
             double value);
    // A histogram of times. `counts` has one more than `bounds`, the last for
    // what is above them all.
    void AddTimes(Metric metric, const std::vector<std::string>& labels,
                  absl::Span<const Nanos> bounds,
                  absl::Span<const uint64_t> counts, uint64_t sum_ns);

   private:
    friend class Metrics;
    explicit Series(std::vector<Family>* families) : families_(families) {}
    std::vector<Family>* const families_;
  };
  using CollectFn = std::function<void(Series&)>;

  // `triton`: those of Triton's names are listed too.
  explicit Metrics(bool triton = false);
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  bool triton() const { return triton_; }

  // Names the RPCs that RecordCall counts; once, before the first of them.
  void SetMethods(std::vector<std::string> names);

  // An answered call of RPC number `method`. It keeps the duration of those
  // that succeeded, and of those that nobody waited for.
  void RecordCall(size_t method, absl::StatusCode code, Nanos duration);
  // Such a call was refused: `reason` is one of kRefusals, or counts as the
  // last of them.
  void RecordRefusal(size_t method, std::string_view reason);
  // A finished evaluation.
  void RecordStages(const StageTimes& times);
  // A finished execution of a served model.
  void RecordBatch(int64_t rows);

  // `collect` runs on the thread that reads, until ClearReaders. Several of one
  // metric add up their series.
  void AddCollector(CollectFn collect);
  // The same of one metric, which is no histogram.
  void AddReader(Metric metric, ReadFn read);
  // The same of one series without labels.
  void AddReader(Metric metric, std::function<double()> read);
  void ClearReaders();

  // Prometheus text format 0.0.4.
  std::string Text() const;

 private:
  static constexpr size_t kCodes = 17;

  template <size_t kBounds>
  struct Histogram {
    std::array<OwnedCounter, kBounds + 1> buckets;
    OwnedCounter sum;
  };
  using TimeHistogram = Histogram<kTimeBounds.size()>;
  using GivenUpHistogram = Histogram<kGivenUpBounds.size()>;
  using BatchHistogram = Histogram<kBatchBounds.size()>;

  struct MethodShard {
    std::array<OwnedCounter, kCodes> codes;
    std::array<OwnedCounter, kRefusals.size()> refusals;
    TimeHistogram seconds;
    GivenUpHistogram given_up;
  };
  struct alignas(64) Shard {
    std::vector<MethodShard> methods;
    TimeHistogram queue, lane, compute;
    BatchHistogram batch;
  };

  template <size_t kBounds>
  static void Observe(const std::array<Nanos, kBounds>& bounds, Nanos duration,
                      Histogram<kBounds>* histogram);
  std::unique_ptr<Shard> MakeShard() const;
  void ReadCalls(Family* requests, Family* refused, Family* seconds,
                 Family* given_up) const;

  const bool triton_;
  mutable Mutex mu_;
  std::vector<std::string> methods_ WEIR_GUARDED_BY(mu_);
  std::vector<CollectFn> collectors_ WEIR_GUARDED_BY(mu_);
  PerThread<Shard> shards_;
};

}  // namespace weir
