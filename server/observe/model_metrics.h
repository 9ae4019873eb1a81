// What is counted of requests to served models, for each model and version:
// how many, what became of them, where their time went, and how large the
// batches were that ran. ModelStatistics reads it whole, /metrics what has
// series. Recording takes a lock, and memory, only for a model or a batch size
// that its thread has not seen before. Thread-safe.
//
// Series are bounded: the versions whose ServedModel::number is below the bound
// have some of their own, the others are summed up as one model, kOtherModels.
// A number is a version's from the start of the server to its end, as no model
// is unloaded, replaced or added while it runs; one that is refused keeps its
// own, which nobody else gets. So a version never changes between its own
// series and the sum, and no counter goes back or leaps.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "kernels/base/clock.h"
#include "kernels/base/mutex.h"
#include "kernels/base/per_thread.h"
#include "kernels/eval/work.h"
#include "server/models/repository.h"
#include "server/observe/metrics.h"

namespace weir {

// Of one model version since the server started. A request's time is its
// queueing (until it has a lane), input (taking memory, staging), execution
// (from launch to the completion seen) and output (building the reply); the
// four of a successful request add up to request_ns.
struct ModelCounts {
  // Upper bounds of the histogram of request times: few, as each model has one.
  static constexpr std::array<Nanos, 11> kSecondsBounds = {
      500'000,     1'000'000,     2'500'000,    5'000'000,
      10'000'000,  25'000'000,    50'000'000,   100'000'000,
      250'000'000, 1'000'000'000, 5'000'000'000};
  // And of those that nobody waited for, each one of the above.
  static constexpr std::array<Nanos, 7> kGivenUpBounds = {
      10'000'000,  25'000'000,    50'000'000,   100'000'000,
      250'000'000, 1'000'000'000, 5'000'000'000};

  uint64_t success = 0;
  // Requests that failed once their model was known: refused by a limit or a
  // deadline, given up by the caller, wrong while they ran, wrong before.
  uint64_t rejected = 0, canceled = 0, backend = 0, other = 0;
  uint64_t errors = 0;      // those of them that were the server's fault
  uint64_t inferences = 0;  // rows of successful requests
  uint64_t executions = 0;  // launched, whatever became of them
  // Of successful requests; failure_ns of the others, from arrival to answer.
  uint64_t request_ns = 0, queue_ns = 0, input_ns = 0, infer_ns = 0,
           output_ns = 0;
  // Those requests, by how long they took; the last: longer than all bounds.
  std::array<uint64_t, kSecondsBounds.size() + 1> seconds = {};
  // The same of those that nobody waited for (IsGivenUp), and their sum.
  std::array<uint64_t, kGivenUpBounds.size() + 1> given_up = {};
  uint64_t given_up_ns = 0;
  uint64_t failure_ns = 0;
  Nanos last_executed_at = 0;  // answered; 0: never

  // Executions of one batch size.
  struct Batch {
    uint64_t executions = 0, input_ns = 0, infer_ns = 0, output_ns = 0;
  };
  std::map<int64_t, Batch> batches;  // by rows; at most kMaxBatchSizes a thread

  uint64_t failures() const { return rejected + canceled + backend + other; }
};

class ModelMetrics {
 public:
  // Batch sizes beyond these count in the totals alone.
  static constexpr size_t kMaxBatchSizes = 1024;
  // The label `model` of those without series of their own: no folder's name,
  // and so no model's. Such series have no version.
  static constexpr std::string_view kOtherModels = "/other";

  // `metrics` outlives this.
  explicit ModelMetrics(Metrics* metrics) : metrics_(metrics) {}

  // A request that is about to be answered with `code`. `work` is null if it
  // was refused before it had one.
  void Record(const ServedModel& model, absl::StatusCode code, const Work* work,
              Nanos received);
  // The same with what it takes of the work: its report, and the rows of its
  // inputs.
  void Record(const ServedModel& model, absl::StatusCode code,
              const SyncReport& report, int64_t rows, Nanos received);

  // The sums over all threads.
  ModelCounts Read(const ServedModel& model) const;

  // Makes what is counted of `models` readable, at most `most_series` versions
  // by themselves. Triton's names, where they are wanted, are of those alone:
  // they know no sum of models. Both outlive the metrics, or
  // Metrics::ClearReaders is called first.
  void AddReaders(const ModelRepository& models, size_t most_series);

 private:
  struct BatchCounters {
    OwnedCounter executions, input_ns, infer_ns, output_ns;
  };
  struct Counters {
    explicit Counters(Mutex* the_mu) : mu(the_mu) {}
    Mutex* const mu;  // the shard's
    OwnedCounter success, rejected, canceled, backend, other;
    OwnedCounter errors;  // those that failed by the server's fault
    OwnedCounter inferences, executions;
    OwnedCounter request_ns, queue_ns, input_ns, infer_ns, output_ns;
    std::array<OwnedCounter, ModelCounts::kSecondsBounds.size() + 1> seconds;
    std::array<OwnedCounter, ModelCounts::kGivenUpBounds.size() + 1> given_up;
    OwnedCounter given_up_ns;
    OwnedCounter failure_ns;
    std::atomic<Nanos> last_executed_at{0};
    std::map<int64_t, BatchCounters> batches;
    // The one counted last; most requests repeat it.
    int64_t latest_rows = -1;
    BatchCounters* latest = nullptr;
  };
  // By ServedModel::number. What grows is changed by its thread under the
  // lock, and so read by it without.
  struct Shard {
    mutable Mutex mu;
    std::vector<std::unique_ptr<Counters>> models;
  };

  Counters& Find(const ServedModel& model);
  // Null beyond kMaxBatchSizes.
  static BatchCounters* FindBatch(Counters& counters, int64_t rows);
  static OwnedCounter& FailureCounter(Counters& counters, absl::StatusCode code,
                                      bool executed);
  // All but the batches.
  static void AddTotals(const Counters& from, ModelCounts* to);
  void Collect(const ModelRepository& models, size_t most_series,
               Metrics::Series* series) const;

  Metrics* const metrics_;
  PerThread<Shard> shards_;
};

}  // namespace weir
