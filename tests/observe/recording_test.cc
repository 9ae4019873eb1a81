// Threads record what they do while another one reads: nothing is lost, and
// (under ThreadSanitizer) nothing races.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "server/observe/metrics.h"
#include "server/observe/model_metrics.h"
#include "server/scheduling/admission.h"

namespace weir {
namespace {

constexpr int kThreads = 4;
constexpr int kCalls = 2000;

bool HasLine(const std::string& text, const std::string& line) {
  return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

TEST(RecordingTest, ThreadsCountApartAndAddUp) {
  Metrics metrics;
  metrics.SetMethods({"Evaluate", "ModelInfer"});
  ModelMetrics models(&metrics);
  Admission admission(kThreads, 1 << 20);
  metrics.AddReader(Metric::kQueueDepth,
                    [&] { return static_cast<double>(admission.waiting()); });
  ServedModel model;
  SyncReport report;
  report.launched_at = 1;
  std::atomic<int> running = kThreads;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kCalls; ++i) {
        const Nanos now = NowNanos();
        auto ticket = admission.Admit(1, kNoDeadline, now);
        if (i % 2 == 0) ticket->Launched();
        metrics.RecordStages({.queue = 1, .lane = 2, .compute = 3});
        models.Record(model, absl::StatusCode::kOk, report, 4, now);
        metrics.RecordCall(1, absl::StatusCode::kOk, 5);
      }
      --running;
    });
  }
  while (running > 0) EXPECT_FALSE(metrics.Text().empty());
  for (std::thread& thread : threads) thread.join();
  const std::string text = metrics.Text();
  const std::string all = absl::StrCat(kThreads * kCalls);
  EXPECT_TRUE(HasLine(
      text, "weir_requests_total{method=\"ModelInfer\",code=\"OK\"} " + all))
      << text;
  for (const char* name : {"weir_queue_wait_seconds", "weir_lane_wait_seconds",
                           "weir_compute_seconds", "weir_batch_size"}) {
    EXPECT_TRUE(HasLine(text, absl::StrCat(name, "_count ", all))) << text;
  }
  EXPECT_TRUE(HasLine(text, "weir_queue_depth 0")) << text;
  EXPECT_EQ(admission.oldest_waiting(), 0);
}

TEST(RecordingTest, RefusalsAreCountedByReason) {
  Metrics metrics;
  metrics.SetMethods({"Evaluate", "ModelInfer"});
  for (const std::string_view reason : Metrics::kRefusals) {
    metrics.RecordRefusal(1, reason);
  }
  metrics.RecordRefusal(1, "A_NEW_REASON");
  metrics.RecordRefusal(2, "QUEUE_FULL");  // no such RPC
  const std::string text = metrics.Text();
  for (const std::string_view reason : Metrics::kRefusals) {
    for (const bool counted : {false, true}) {
      const char* value = !counted ? "0" : reason == "OTHER" ? "2" : "1";
      EXPECT_TRUE(HasLine(
          text,
          absl::StrCat("weir_requests_refused_total{method=\"",
                       counted ? "ModelInfer" : "Evaluate", "\",reason=\"",
                       std::string(reason), "\"} ", value)))
          << reason;
    }
  }
}

// A call that fails fast is no fast one.
TEST(RecordingTest, DurationsAreThoseOfCallsThatSucceeded) {
  Metrics metrics;
  metrics.SetMethods({"Evaluate"});
  metrics.RecordCall(0, absl::StatusCode::kOk, 3'000'000'000);
  metrics.RecordCall(0, absl::StatusCode::kInternal, 1'000);
  const std::string text = metrics.Text();
  EXPECT_TRUE(
      HasLine(text, "weir_request_seconds_count{method=\"Evaluate\"} 1"));
  EXPECT_TRUE(HasLine(text, "weir_request_seconds_sum{method=\"Evaluate\"} 3"));
}

// Nor is a call that nobody waited for one that succeeded, however long it was.
TEST(RecordingTest, WhatNobodyWaitedForHasDurationsOfItsOwn) {
  Metrics metrics;
  metrics.SetMethods({"Evaluate"});
  metrics.RecordCall(0, absl::StatusCode::kCancelled, 100'000'000);
  metrics.RecordCall(0, absl::StatusCode::kDeadlineExceeded, 2'400'000'000);
  for (const auto code : {absl::StatusCode::kOk, absl::StatusCode::kUnavailable,
                          absl::StatusCode::kResourceExhausted}) {
    metrics.RecordCall(0, code, 1'000'000'000);
  }
  const std::string text = metrics.Text();
  const std::string name = "weir_request_given_up_seconds";
  for (const auto& [le, count] : std::vector<std::pair<std::string, int>>{
           {"0.05", 0}, {"0.1", 1}, {"1", 1}, {"2.5", 2}, {"+Inf", 2}}) {
    EXPECT_TRUE(HasLine(text, absl::StrCat(name,
                                           "_bucket{method=\"Evaluate\","
                                           "le=\"",
                                           le, "\"} ", count)))
        << le;
  }
  EXPECT_TRUE(HasLine(text, name + "_count{method=\"Evaluate\"} 2"));
  EXPECT_TRUE(HasLine(text, name + "_sum{method=\"Evaluate\"} 2.5"));
  EXPECT_TRUE(
      HasLine(text, "weir_request_seconds_count{method=\"Evaluate\"} 1"));
}

// So an objective may be set by a bound of one of them.
TEST(RecordingTest, BoundsOfWhatNobodyWaitedForAreThoseOfSuccesses) {
  for (const Nanos bound : Metrics::kGivenUpBounds) {
    EXPECT_TRUE(std::binary_search(Metrics::kTimeBounds.begin(),
                                   Metrics::kTimeBounds.end(), bound))
        << bound;
  }
  for (const Nanos bound : ModelCounts::kGivenUpBounds) {
    EXPECT_TRUE(std::binary_search(ModelCounts::kSecondsBounds.begin(),
                                   ModelCounts::kSecondsBounds.end(), bound))
        << bound;
  }
}

// The counts of a histogram's buckets, in its order.
std::vector<int> Buckets(const std::string& text, const std::string& name) {
  std::vector<int> counts;
  for (const std::string& line : std::vector<std::string>(
           absl::StrSplit(text, '\n', absl::SkipEmpty()))) {
    if (line.rfind(name + "_bucket{", 0) == 0) {
      counts.push_back(std::stoi(line.substr(line.rfind(' '))));
    }
  }
  return counts;
}

// Prometheus' "le" is "less or equal".
TEST(RecordingTest, ABucketHasItsBound) {
  Metrics metrics;
  for (const Nanos bound : Metrics::kTimeBounds) {
    metrics.RecordStages({.queue = bound});
    metrics.RecordStages({.lane = bound + 1});
  }
  for (const int64_t bound : Metrics::kBatchBounds) metrics.RecordBatch(bound);
  const std::string text = metrics.Text();
  std::vector<int> below, above, batches;
  for (int i = 0; i < static_cast<int>(Metrics::kTimeBounds.size()); ++i) {
    below.push_back(i + 1);
    above.push_back(i);
  }
  below.push_back(below.back());  // without a bound
  above.push_back(below.back());
  for (int i = 0; i < static_cast<int>(Metrics::kBatchBounds.size()); ++i) {
    batches.push_back(i + 1);
  }
  batches.push_back(batches.back());
  EXPECT_EQ(Buckets(text, "weir_queue_wait_seconds"), below);
  EXPECT_EQ(Buckets(text, "weir_lane_wait_seconds"), above);
  EXPECT_EQ(Buckets(text, "weir_batch_size"), batches);
}

TEST(RecordingTest, TimesAddUp) {
  Metrics metrics;
  metrics.RecordStages({.compute = 250'000'000});
  metrics.RecordStages({.compute = 1'250'000'000});
  const std::string text = metrics.Text();
  EXPECT_TRUE(HasLine(text, "weir_compute_seconds_sum 1.5")) << text;
  EXPECT_TRUE(HasLine(text, "weir_compute_seconds_count 2")) << text;
}

// The counters of a model, and of a batch size, are made when a thread first
// meets it.
TEST(RecordingTest, ThreadsMeetNewModelsWhileTheyAreRead) {
  constexpr size_t kModels = 200;
  Metrics metrics(/*triton=*/true);
  ModelMetrics models(&metrics);
  auto repository = ModelRepository::Open({}, nullptr, nullptr);
  ASSERT_TRUE(repository.ok()) << repository.status();
  models.AddReaders(**repository, 100);
  std::atomic<int> running = kThreads;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      ServedModel model;
      SyncReport report;
      report.launched_at = 1;
      for (size_t i = 0; i < kModels; ++i) {
        model.name = absl::StrCat("model", i);
        model.number = i;
        for (int64_t rows : {1, 2, 1}) {
          models.Record(model, absl::StatusCode::kOk, report, rows, 0);
        }
      }
      --running;
    });
  }
  ServedModel model;
  while (running > 0) {
    // None of them is served, so none is listed.
    EXPECT_EQ(metrics.Text().find("model1"), std::string::npos);
    model.number = kModels - 1;
    EXPECT_LE(models.Read(model).success, 3u * kThreads);
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < kModels; ++i) {
    model.number = i;
    const ModelCounts counts = models.Read(model);
    EXPECT_EQ(counts.success, 3u * kThreads);
    EXPECT_EQ(counts.executions, 3u * kThreads);
    EXPECT_EQ(counts.inferences, 4u * kThreads);
    ASSERT_EQ(counts.batches.size(), 2u);
    EXPECT_EQ(counts.batches.at(1).executions, 2u * kThreads);
    EXPECT_EQ(counts.batches.at(2).executions, 1u * kThreads);
  }
  model.number = kModels;
  EXPECT_EQ(models.Read(model).success, 0u);
}

TEST(RecordingTest, TimesGoToTheirStages) {
  Metrics metrics;
  ModelMetrics models(&metrics);
  const ServedModel model;
  const Nanos received = NowNanos() - 1'000'000;
  SyncReport report;
  report.leased_at = received + 3'000;
  report.launched_at = received + 10'000;
  report.completed_at = received + 200'000;
  const Nanos before = NowNanos();
  models.Record(model, absl::StatusCode::kOk, report, 1, received);
  models.Record(model, absl::StatusCode::kInternal, report, 1, received);
  // Never launched, and refused by its deadline.
  models.Record(model, absl::StatusCode::kDeadlineExceeded, SyncReport(), 1,
                received);
  const Nanos after = NowNanos();
  const ModelCounts counts = models.Read(model);
  EXPECT_EQ(counts.success, 1u);
  EXPECT_EQ(counts.queue_ns, 3'000u);
  EXPECT_EQ(counts.input_ns, 7'000u);
  EXPECT_EQ(counts.infer_ns, 190'000u);
  EXPECT_GE(counts.output_ns, 800'000u);
  EXPECT_EQ(counts.request_ns, counts.queue_ns + counts.input_ns +
                                   counts.infer_ns + counts.output_ns);
  EXPECT_EQ(counts.backend, 1u);
  EXPECT_EQ(counts.rejected, 1u);
  EXPECT_EQ(counts.failures(), 2u);
  EXPECT_GE(counts.failure_ns, 2'000'000u);
  EXPECT_GE(counts.last_executed_at, before);
  EXPECT_LE(counts.last_executed_at, after);
  EXPECT_EQ(counts.executions, 2u);
  ASSERT_EQ(counts.batches.size(), 1u);
  EXPECT_EQ(counts.batches.at(1).input_ns, 14'000u);
  EXPECT_EQ(counts.batches.at(1).infer_ns, 380'000u);
}

// How long each took is what it added to their sum.
TEST(RecordingTest, TimesOfAModelGoToTheirBuckets) {
  constexpr auto kBounds = ModelCounts::kSecondsBounds;
  Metrics metrics;
  ModelMetrics models(&metrics);
  const ServedModel model;
  SyncReport report;
  report.launched_at = 1;
  std::array<uint64_t, kBounds.size() + 1> expected = {};
  uint64_t sum = 0;
  for (size_t i = 0; i <= kBounds.size(); ++i) {
    const Nanos least = i == 0 ? 0 : kBounds[i - 1];
    models.Record(model, absl::StatusCode::kOk, report, 1,
                  NowNanos() - least - least / 100);
    const uint64_t took = models.Read(model).request_ns - sum;
    sum += took;
    size_t bucket = 0;
    while (bucket < kBounds.size() &&
           took > static_cast<uint64_t>(kBounds[bucket])) {
      ++bucket;
    }
    EXPECT_GE(bucket, i);
    ++expected[bucket];
  }
  // A failure is no request of a short time.
  models.Record(model, absl::StatusCode::kInternal, report, 1, NowNanos());
  EXPECT_EQ(models.Read(model).seconds, expected);
}

TEST(RecordingTest, TimesOfAModelThatNobodyWaitedForGoToTheirBuckets) {
  Metrics metrics;
  ModelMetrics models(&metrics);
  const ServedModel model;
  const Nanos now = NowNanos();
  SyncReport ran;
  ran.launched_at = now;
  models.Record(model, absl::StatusCode::kCancelled, ran, 1,
                now - 6'000'000'000);
  models.Record(model, absl::StatusCode::kDeadlineExceeded, SyncReport(), 1,
                now - 300'000'000);
  models.Record(model, absl::StatusCode::kInternal, ran, 1, now - 300'000'000);
  models.Record(model, absl::StatusCode::kOk, ran, 1, now - 300'000'000);
  const ModelCounts counts = models.Read(model);
  std::array<uint64_t, ModelCounts::kGivenUpBounds.size() + 1> expected = {};
  expected[5] = expected[7] = 1;  // up to 1 s, and beyond 5 s
  EXPECT_EQ(counts.given_up, expected);
  EXPECT_GE(counts.given_up_ns, 6'300'000'000u);
  EXPECT_LT(counts.given_up_ns, counts.failure_ns);
}

TEST(RecordingTest, FailuresAreToldApart) {
  Metrics metrics;
  ModelMetrics models(&metrics);
  const ServedModel model;
  const Nanos received = NowNanos();
  SyncReport ran;
  ran.launched_at = received;
  models.Record(model, absl::StatusCode::kCancelled, ran, 1, received);
  models.Record(model, absl::StatusCode::kResourceExhausted, ran, 1, received);
  models.Record(model, absl::StatusCode::kDeadlineExceeded, ran, 1, received);
  for (int i = 0; i < 3; ++i) {
    models.Record(model, absl::StatusCode::kInternal, ran, 1, received);
  }
  for (int i = 0; i < 4; ++i) {
    models.Record(model, absl::StatusCode::kInvalidArgument, SyncReport(), 1,
                  received);
  }
  const ModelCounts counts = models.Read(model);
  EXPECT_EQ(counts.canceled, 1u);
  EXPECT_EQ(counts.rejected, 2u);
  EXPECT_EQ(counts.backend, 3u);
  EXPECT_EQ(counts.other, 4u);
  EXPECT_EQ(counts.errors, 3u) << "a wrong argument is the caller's fault";
  EXPECT_EQ(counts.success, 0u);
}

// What it says of its errors is what the alerts' own errors are, too.
TEST(RecordingTest, ErrorsAreThoseThatTheirTextNames) {
  std::set<std::string> named;
  for (const MetricDef& def : MetricDefs()) {
    if (std::string(def.name) != "weir_model_errors_total") continue;
    for (const absl::string_view word :
         absl::StrSplit(def.help, absl::ByAnyChar(" ,.:"))) {
      named.emplace(word);
    }
  }
  for (int code = 0; code <= 16; ++code) {
    Metrics metrics;
    ModelMetrics models(&metrics);
    const ServedModel model;
    const auto ended = static_cast<absl::StatusCode>(code);
    models.Record(model, ended, SyncReport(), 1, NowNanos());
    const std::string name = absl::StatusCodeToString(ended);
    EXPECT_EQ(models.Read(model).errors, named.count(name)) << name;
  }
}

TEST(RecordingTest, BatchSizesAreBounded) {
  Metrics metrics;
  ModelMetrics models(&metrics);
  const ServedModel model;
  SyncReport report;
  report.launched_at = 1;
  constexpr int64_t kSizes = ModelMetrics::kMaxBatchSizes + 100;
  for (int round = 0; round < 2; ++round) {
    for (int64_t rows = 1; rows <= kSizes; ++rows) {
      models.Record(model, absl::StatusCode::kOk, report, rows, 0);
    }
  }
  const ModelCounts counts = models.Read(model);
  EXPECT_EQ(counts.executions, 2u * kSizes);
  EXPECT_EQ(counts.inferences, static_cast<uint64_t>(kSizes * (kSizes + 1)));
  EXPECT_EQ(counts.batches.size(), ModelMetrics::kMaxBatchSizes);
  for (const auto& [rows, batch] : counts.batches) {
    EXPECT_EQ(batch.executions, 2u) << rows;
  }
}

}  // namespace
}  // namespace weir
