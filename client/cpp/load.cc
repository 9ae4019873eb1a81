#include "client/cpp/load.h"

#include <grpcpp/alarm.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "client/cpp/call_failure.h"
#include "client/cpp/channel.h"
#include "client/cpp/status_details.h"

namespace weir::client {
namespace {

using Clock = std::chrono::steady_clock;

std::chrono::nanoseconds Seconds(double seconds) {
  return std::chrono::nanoseconds(static_cast<int64_t>(seconds * 1e9));
}

struct Counters {
  std::atomic<int64_t> calls{0};
  std::atomic<int64_t> errors{0};
};

// The callers of one thread.
class Worker {
 public:
  Worker(const LoadOptions& options, int callers, int number,
         Counters* counters)
      : options_(options),
        rate_(Rate(options)),
        counters_(counters),
        request_(MakeRequest(options.request)),
        channel_(MakeChannel(options, number)),
        stub_(channel_),
        random_(static_cast<uint64_t>(number) + 1) {
    for (int i = 0; i < callers; ++i) {
      callers_.push_back(std::make_unique<Caller>());
      idle_.push_back(callers_.back().get());
    }
  }

  void Run(Clock::time_point measure_from, Clock::time_point end) {
    measure_from_ = measure_from;
    end_ = end;
    if (rate_ > 0) {
      next_departure_ = Clock::now() + Gap();
      if (next_departure_ < end_) SetAlarm();
    } else {
      while (!idle_.empty()) SendOne(Clock::now());
    }
    void* tag = nullptr;
    bool ok = false;
    while ((in_flight_ > 0 || alarm_set_) && queue_.Next(&tag, &ok)) {
      if (tag == this) {
        alarm_set_ = false;
        Depart();
      } else {
        Receive(static_cast<Caller*>(tag));
      }
    }
    queue_.Shutdown();
    while (queue_.Next(&tag, &ok)) {
    }
  }

  LoadResult result;

 private:
  struct Exchange {
    grpc::ClientContext context;
    grpc::ByteBuffer reply;
    grpc::Status status;
    std::unique_ptr<grpc::GenericClientAsyncResponseReader> reader;
  };
  struct Caller {
    std::optional<Exchange> exchange;
    Clock::time_point due;
  };

  static double Rate(const LoadOptions& options) {
    if (options.rate <= 0) return 0;
    return std::clamp(options.rate, kMinLoadRate, kMaxLoadRate) /
           std::max(options.threads, 1);
  }

  static grpc::ByteBuffer MakeRequest(const std::string& bytes) {
    const grpc::Slice slice(bytes);
    return grpc::ByteBuffer(&slice, 1);
  }

  static std::string Bytes(const grpc::ByteBuffer& message) {
    std::vector<grpc::Slice> slices;
    if (!message.Dump(&slices).ok()) return "";
    std::string bytes;
    for (const grpc::Slice& slice : slices) {
      bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
    }
    return bytes;
  }

  static std::shared_ptr<grpc::Channel> MakeChannel(const LoadOptions& options,
                                                    int number) {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    // Different arguments make gRPC open a connection for each.
    arguments.SetInt("weir.load.channel", number);
    return client::MakeChannel(options.address, options.tls, arguments);
  }

  void SendOne(Clock::time_point due) {
    Caller* caller = idle_.back();
    idle_.pop_back();
    caller->due = due;
    caller->exchange.emplace();
    Exchange& exchange = *caller->exchange;
    exchange.context.set_deadline(std::chrono::system_clock::now() +
                                  Seconds(options_.timeout_seconds));
    exchange.reader = stub_.PrepareUnaryCall(&exchange.context, options_.method,
                                             request_, &queue_);
    exchange.reader->StartCall();
    exchange.reader->Finish(&exchange.reply, &exchange.status, caller);
    ++in_flight_;
  }

  void Receive(Caller* caller) {
    --in_flight_;
    const Clock::time_point now = Clock::now();
    const grpc::Status& status = caller->exchange->status;
    if (status.ok()) {
      ++result.answered;
      if (now >= measure_from_ && now < end_) ++result.rated;
    }
    if (caller->due >= measure_from_ && caller->due <= end_) {
      if (status.ok()) {
        ++result.calls;
        // Of all workers' calls one: replies may be large.
        if (counters_->calls.fetch_add(1, std::memory_order_relaxed) == 0) {
          result.reply = Bytes(caller->exchange->reply);
        }
        result.latencies.Add(now - caller->due);
        result.seconds = std::max(
            result.seconds,
            std::chrono::duration<double>(now - measure_from_).count());
      } else {
        ++result.errors[status.error_code()];
        counters_->errors.fetch_add(1, std::memory_order_relaxed);
        if (result.first_error.empty()) {
          result.first_error = ErrorText(Failure(status));
        }
      }
    }
    caller->exchange.reset();
    idle_.push_back(caller);
    if (rate_ <= 0 && now < end_) SendOne(now);
  }

  absl::Status Failure(const grpc::Status& status) const {
    const bool connected =
        channel_->GetState(/*try_to_connect=*/false) == GRPC_CHANNEL_READY;
    return CallFailure(status,
                       {.address = options_.address,
                        .timeout = absl::Seconds(options_.timeout_seconds),
                        .connected = connected,
                        .tls = options_.tls});
  }

  std::chrono::nanoseconds Gap() {
    std::exponential_distribution<double> gap(rate_);
    return Seconds(gap(random_));
  }

  // Open loop: everything that is due leaves now.
  void Depart() {
    const Clock::time_point now = Clock::now();
    while (next_departure_ <= now && next_departure_ < end_) {
      if (idle_.empty()) {
        if (next_departure_ >= measure_from_) ++result.skipped;
      } else {
        SendOne(next_departure_);
      }
      next_departure_ += Gap();
    }
    if (next_departure_ < end_) SetAlarm();
  }

  void SetAlarm() {
    const auto wait =
        std::max(next_departure_ - Clock::now(), Clock::duration::zero());
    alarm_set_ = true;
    alarm_.Set(&queue_, std::chrono::system_clock::now() + wait, this);
  }

  const LoadOptions& options_;
  const double rate_;
  Counters* const counters_;
  const grpc::ByteBuffer request_;
  grpc::CompletionQueue queue_;
  const std::shared_ptr<grpc::Channel> channel_;
  grpc::GenericStub stub_;
  grpc::Alarm alarm_;
  bool alarm_set_ = false;
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<Caller>> callers_;
  std::vector<Caller*> idle_;
  size_t in_flight_ = 0;
  Clock::time_point measure_from_, end_, next_departure_;
};

void Merge(LoadResult part, LoadResult* whole) {
  if (whole->reply.empty()) whole->reply = std::move(part.reply);
  whole->calls += part.calls;
  whole->answered += part.answered;
  whole->rated += part.rated;
  whole->skipped += part.skipped;
  whole->seconds = std::max(whole->seconds, part.seconds);
  for (const auto& [code, count] : part.errors) whole->errors[code] += count;
  if (whole->first_error.empty()) whole->first_error = part.first_error;
  whole->latencies.Add(part.latencies);
}

}  // namespace

int64_t LoadResult::error_count() const {
  int64_t count = 0;
  for (const auto& entry : errors) count += entry.second;
  return count;
}

double LoadResult::Quantile(double q) const {
  return std::chrono::duration<double, std::micro>(latencies.Quantile(q))
      .count();
}

LoadResult RunLoad(const LoadOptions& options,
                   const std::function<void(const LoadProgress&)>& progress) {
  const int threads = std::max(1, std::min(options.threads, options.callers));
  LoadOptions used = options;
  used.threads = threads;
  Counters counters;
  std::vector<std::unique_ptr<Worker>> workers;
  for (int i = 0; i < threads; ++i) {
    const int callers =
        options.callers / threads + (i < options.callers % threads ? 1 : 0);
    workers.push_back(std::make_unique<Worker>(used, callers, i, &counters));
  }
  const Clock::time_point from = Clock::now() + Seconds(options.warmup_seconds);
  const Clock::time_point end = from + Seconds(options.seconds);
  std::vector<std::thread> running;
  running.reserve(workers.size());
  for (const auto& worker : workers) {
    running.emplace_back([&, from, end] { worker->Run(from, end); });
  }
  if (progress != nullptr) {
    for (Clock::time_point at = from + Seconds(0.5); at <= end;
         at += Seconds(0.5)) {
      std::this_thread::sleep_until(at);
      progress({std::chrono::duration<double>(Clock::now() - from).count(),
                counters.calls.load(), counters.errors.load()});
    }
  }
  for (std::thread& thread : running) thread.join();

  LoadResult result;
  for (const auto& worker : workers) Merge(std::move(worker->result), &result);
  if (options.rate <= 0 && result.rated > 0) {
    result.seconds = options.seconds;
  } else {
    result.rated = result.calls;
    result.seconds = std::max(result.seconds, options.seconds);
  }
  return result;
}

}  // namespace weir::client
