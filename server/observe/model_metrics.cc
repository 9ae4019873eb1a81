#include "server/observe/model_metrics.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace weir {
namespace {

constexpr double kMicrosPerNano = 1e-3;

int64_t Rows(const ServedModel& model, const Work& work) {
  if (model.max_batch_size == 0 || work.request.inputs.empty() ||
      work.request.inputs[0].dims.empty()) {
    return 1;
  }
  return work.request.inputs[0].dims[0];
}

uint64_t Elapsed(Nanos from, Nanos to) {
  return static_cast<uint64_t>(std::max<Nanos>(to - from, 0));
}

}  // namespace

OwnedCounter& ModelMetrics::FailureCounter(Counters& counters,
                                           absl::StatusCode code,
                                           bool executed) {
  switch (code) {
    case absl::StatusCode::kCancelled:
      return counters.canceled;
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kDeadlineExceeded:
      return counters.rejected;
    default:
      return executed ? counters.backend : counters.other;
  }
}

void ModelMetrics::Record(const ServedModel& model, absl::StatusCode code,
                          const Work* work, Nanos received) {
  if (work == nullptr) {
    Record(model, code, SyncReport(), 0, received);
  } else {
    Record(model, code, work->report(), Rows(model, *work), received);
  }
}

void ModelMetrics::Record(const ServedModel& model, absl::StatusCode code,
                          const SyncReport& report, int64_t rows,
                          Nanos received) {
  const bool executed = report.launched_at != 0;
  if (executed) metrics_->RecordBatch(rows);
  if (!metrics_->triton()) return;
  Counters& counters = Find(model);
  if (executed) counters.executions.Add(1);
  if (code != absl::StatusCode::kOk) {
    FailureCounter(counters, code, executed).Add(1);
    return;
  }
  const Nanos now = NowNanos();
  counters.success.Add(1);
  counters.count.Add(static_cast<uint64_t>(rows));
  counters.request_ns.Add(Elapsed(received, now));
  counters.queue_ns.Add(Elapsed(received, report.leased_at));
  counters.input_ns.Add(Elapsed(report.leased_at, report.launched_at));
  counters.infer_ns.Add(Elapsed(report.launched_at, report.completed_at));
  counters.output_ns.Add(Elapsed(report.completed_at, now));
}

ModelMetrics::Counters& ModelMetrics::Find(const ServedModel& model) {
  Shard& shard = shards_.Mine();
  const auto found = shard.models.find(Key{model.name, model.version});
  if (found != shard.models.end()) return *found->second;
  auto counters = std::make_unique<Counters>();
  counters->model = model.name;
  counters->version = model.version;
  const Key key{counters->model, counters->version};
  MutexLock lock(&shard.mu);
  return *shard.models.emplace(key, std::move(counters)).first->second;
}

// The sum over all threads, for each version that is served. `more` are the
// values of the labels after model and version.
void ModelMetrics::AddReader(Metric metric, const ModelRepository& models,
                             OwnedCounter Counters::*counter, double unit,
                             std::vector<std::string> more) {
  auto read = [this, &models, counter, unit, more = std::move(more)] {
    std::vector<Metrics::Sample> samples;
    for (const ModelIndexEntry& entry : models.Index()) {
      if (entry.state != ModelState::kReady) continue;
      uint64_t sum = 0;
      shards_.ForEach([&](const Shard& shard) {
        MutexLock lock(&shard.mu);
        const auto found = shard.models.find(Key{entry.name, entry.version});
        if (found != shard.models.end()) {
          sum += (found->second.get()->*counter).value();
        }
      });
      Metrics::Sample& sample = samples.emplace_back();
      sample.labels = {entry.name, entry.version};
      sample.labels.insert(sample.labels.end(), more.begin(), more.end());
      sample.value = static_cast<double>(sum) * unit;
    }
    return samples;
  };
  metrics_->AddReader(metric, Metrics::ReadFn(std::move(read)));
}

void ModelMetrics::AddReaders(const ModelRepository& models) {
  if (!metrics_->triton()) return;
  auto count = [&](Metric metric, OwnedCounter Counters::*counter,
                   std::vector<std::string> more = {}) {
    AddReader(metric, models, counter, 1, std::move(more));
  };
  auto duration = [&](Metric metric, OwnedCounter Counters::*counter) {
    AddReader(metric, models, counter, kMicrosPerNano, {});
  };
  count(Metric::kNvSuccess, &Counters::success);
  count(Metric::kNvFailure, &Counters::rejected, {"REJECTED"});
  count(Metric::kNvFailure, &Counters::canceled, {"CANCELED"});
  count(Metric::kNvFailure, &Counters::backend, {"BACKEND"});
  count(Metric::kNvFailure, &Counters::other, {"OTHER"});
  count(Metric::kNvCount, &Counters::count);
  count(Metric::kNvExecCount, &Counters::executions);
  duration(Metric::kNvRequestUs, &Counters::request_ns);
  duration(Metric::kNvQueueUs, &Counters::queue_ns);
  duration(Metric::kNvInputUs, &Counters::input_ns);
  duration(Metric::kNvInferUs, &Counters::infer_ns);
  duration(Metric::kNvOutputUs, &Counters::output_ns);
}

}  // namespace weir
