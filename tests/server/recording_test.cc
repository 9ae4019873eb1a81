// Threads record what they do while another one reads: nothing is lost, and
// (under ThreadSanitizer) nothing races.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
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

// With Triton's names the counters of a model are made on its first request.
TEST(RecordingTest, ThreadsMeetNewModelsWhileTheyAreRead) {
  Metrics metrics(/*triton=*/true);
  ModelMetrics models(&metrics);
  auto repository = ModelRepository::Open({}, nullptr, nullptr);
  ASSERT_TRUE(repository.ok()) << repository.status();
  models.AddReaders(**repository);
  std::atomic<int> running = kThreads;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      ServedModel model;
      for (int i = 0; i < 200; ++i) {
        model.name = absl::StrCat("model", i);
        models.Record(model, absl::StatusCode::kCancelled, SyncReport(), 0, 0);
      }
      --running;
    });
  }
  while (running > 0) {
    // None of them is served, so none is listed.
    EXPECT_EQ(metrics.Text().find("model1"), std::string::npos);
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace weir
