// A work of tests: runs a function when launched and keeps its completion.
#pragma once

#include <atomic>
#include <optional>
#include <utility>

#include "absl/functional/any_invocable.h"
#include "kernels/device/stream.h"
#include "tests/base/event.h"

namespace weir {

class TestTask : public StreamTask {
 public:
  using LaunchFunction = absl::AnyInvocable<absl::Status(Stream&)>;
  using CompleteFunction = absl::AnyInvocable<void(const Completion&)>;

  TestTask() = default;
  explicit TestTask(LaunchFunction launch, CompleteFunction complete = nullptr)
      : launch_(std::move(launch)), complete_(std::move(complete)) {}

  absl::Status Launch(Stream& stream) override {
    ++launches_;
    return launch_ == nullptr ? absl::OkStatus() : launch_(stream);
  }

  // In place of the status alone.
  using SettleFunction =
      absl::AnyInvocable<std::optional<absl::Status>(const Completion&)>;
  void set_settle(SettleFunction settle) { settle_ = std::move(settle); }
  std::optional<absl::Status> Settle(const Completion& completion) override {
    return settle_ == nullptr ? completion.status : settle_(completion);
  }

  void Complete(const Completion& completion) override {
    done_ = completion;
    if (complete_ != nullptr) complete_(completion);
    completed_.Set();  // the test may delete this task now
  }

  // Waits for the end and returns it.
  const Completion& Wait() {
    completed_.Wait();
    return done_;
  }
  bool finished() const { return completed_.count() != 0; }
  size_t completions() const { return completed_.count(); }
  int launches() const { return launches_; }

 private:
  LaunchFunction launch_;
  CompleteFunction complete_;
  SettleFunction settle_;
  std::atomic<int> launches_{0};
  Completion done_;
  Event completed_;
};

}  // namespace weir
