// What observing costs a request: CPU time of everything that a ModelInfer
// call records, from its admission to its answer, and of the parts. One thread
// plays an I/O thread; with two, neither may slow the other down.
#include <benchmark/benchmark.h>

#include <iostream>
#include <optional>
#include <string>
#include <utility>

#include "kernels/base/timer_queue.h"
#include "server/models/repository.h"
#include "server/observe/call_recorder.h"
#include "server/observe/logger.h"
#include "server/observe/metrics.h"
#include "server/observe/model_metrics.h"
#include "server/scheduling/admission.h"
#include "tests/bench/judged.h"
#include "tests/observe/stream_sink.h"

namespace weir {
namespace {

// A call that has arrived; nothing of it is answered.
class FakeCall final : public ServerCall {
 public:
  void Arrive() {
    received_ = NowNanos();
    whole_ = true;
  }
  void Answer() { answered_at_ = NowNanos(); }
  void Resume(ResumeFn, void*) override {}
  std::string Connection() const override { return "ipv4:127.0.0.1:1"; }
  std::optional<std::string_view> Header(std::string_view) const override {
    return std::nullopt;
  }
  void Reply(ReplyBuffer) override {}
  void Fail(const absl::Status&) override {}
  void Write(ReplyBuffer, ResumeFn, void*) override {}
};

// What all I/O threads of a server share.
struct Observed {
  Observed() {
    metrics.SetMethods({"Evaluate", "ModelInfer"});
    method.name = std::string("ModelInfer");
    method.number = 1;
    model.name = std::string("digits");
    model.version = std::string("1");
    model.max_batch_size = 8;
  }

  TimerQueue timers;
  testing::StreamSink sink{std::cerr};
  Logger logger{LogFormat::kText, LogLevel::kInfo, sink};
  Metrics metrics{/*triton=*/true};
  ModelMetrics model_metrics{&metrics};
  CallRecorder recorder{&metrics, &logger, &timers, "bench"};
  Admission admission{1024, size_t{1} << 30};
  Method method;
  ServedModel model;
};

Observed& Server() {
  static Observed observed;
  return observed;
}

// A work that took its time in every stage.
SyncReport Report(Nanos received) {
  SyncReport report;
  report.ready_at = received + 1'000;
  report.leased_at = received + 3'000;
  report.launched_at = received + 4'000;
  report.completed_at = received + 60'000;
  return report;
}

StageTimes Stages(const SyncReport& report, Nanos received) {
  return {report.ready_at - received, report.leased_at - report.ready_at,
          report.completed_at - report.launched_at};
}

// All of it, Triton's counters and two looks at the clock included.
void RecordRequest(benchmark::State& state) {
  Observed& server = Server();
  FakeCall call;
  const SyncReport report = Report(NowNanos());
  for (auto _ : state) {
    call.Arrive();
    auto ticket = server.admission.Admit(100, kNoDeadline, call.received());
    Admission::Ticket held = *std::move(ticket);
    held.Launched();
    server.metrics.RecordStages(Stages(report, call.received()));
    server.model_metrics.Record(server.model, absl::StatusCode::kOk, report, 4,
                                call.received());
    call.Answer();
    held.Answered(100);
    server.recorder.OnEnded(call, server.method, absl::OkStatus(),
                            Delivery::kSent);
    held.Reset();
  }
}
BENCHMARK(RecordRequest)->Threads(1)->Threads(2);

void Admit(benchmark::State& state) {
  Observed& server = Server();
  const Nanos now = NowNanos();
  for (auto _ : state) {
    auto ticket = server.admission.Admit(100, kNoDeadline, now);
    ticket->Launched();
    benchmark::DoNotOptimize(ticket);
  }
}
BENCHMARK(Admit)->Threads(1)->Threads(2);

void RecordStages(benchmark::State& state) {
  Observed& server = Server();
  const SyncReport report = Report(0);
  for (auto _ : state) server.metrics.RecordStages(Stages(report, 0));
}
BENCHMARK(RecordStages)->Threads(1)->Threads(2);

void RecordModel(benchmark::State& state) {
  Observed& server = Server();
  const SyncReport report = Report(NowNanos());
  for (auto _ : state) {
    server.model_metrics.Record(server.model, absl::StatusCode::kOk, report, 4,
                                0);
  }
}
BENCHMARK(RecordModel)->Threads(1)->Threads(2);

void RecordAnswer(benchmark::State& state) {
  Observed& server = Server();
  FakeCall call;
  call.Arrive();
  for (auto _ : state) {
    call.Answer();
    server.recorder.OnEnded(call, server.method, absl::OkStatus(),
                            Delivery::kSent);
  }
}
BENCHMARK(RecordAnswer)->Threads(1)->Threads(2);

}  // namespace
}  // namespace weir

int main(int argc, char** argv) {
  return weir::bench::RunJudged(
      argc, argv, {{.name = "RecordRequest/threads:1", .most_cpu_ns = 1200}});
}
