// What is counted of requests to served models: the batch size of executions
// and, with --triton-metrics, Triton's counters for each model and version.
// Recording takes no lock but for a model that a thread has not seen before.
// Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "kernels/base/clock.h"
#include "kernels/eval/work.h"
#include "server/models/repository.h"
#include "server/observe/metrics.h"
#include "server/observe/per_thread.h"

namespace weir {

class ModelMetrics {
 public:
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

  // Makes Triton's counters of what `models` serves readable. Both outlive the
  // metrics, or Metrics::ClearReaders is called first.
  void AddReaders(const ModelRepository& models);

 private:
  struct Key {
    std::string_view model;
    std::string_view version;
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    size_t operator()(const Key& key) const {
      return std::hash<std::string_view>()(key.model) * 31 +
             std::hash<std::string_view>()(key.version);
    }
  };
  struct Counters {
    std::string model, version;
    OwnedCounter success, rejected, canceled, backend, other;
    OwnedCounter count, executions;
    OwnedCounter request_ns, queue_ns, input_ns, infer_ns, output_ns;
  };
  // Changed by its thread under the lock, and so read by it without.
  struct Shard {
    mutable Mutex mu;
    std::unordered_map<Key, std::unique_ptr<Counters>, Hash> models;
  };

  Counters& Find(const ServedModel& model);
  static OwnedCounter& FailureCounter(Counters& counters, absl::StatusCode code,
                                      bool executed);
  void AddReader(Metric metric, const ModelRepository& models,
                 OwnedCounter Counters::*counter, double unit,
                 std::vector<std::string> more);

  Metrics* const metrics_;
  PerThread<Shard> shards_;
};

}  // namespace weir
