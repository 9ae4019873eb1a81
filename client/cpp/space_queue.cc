#include "client/cpp/space_queue.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/space.h"
#include "client/cpp/status_details.h"

namespace weir::client {
namespace {

// Of one call, as the server has it.
constexpr size_t kMaxCommands = 1024;

bool IsFree(const v1::Command& command) {
  return command.has_tensor_free() || command.has_context_close() ||
         command.has_timeline_delete();
}

absl::Status Outcome(const v1::CommandResult& result) {
  return result.has_error() ? ToStatus(result.error()) : absl::OkStatus();
}

}  // namespace

SpaceNumber::SpaceNumber(std::shared_ptr<SpaceQueue> queue, Kind kind,
                         uint64_t number)
    : queue_(std::move(queue)), kind_(kind), value_(number) {}

SpaceNumber::~SpaceNumber() { queue_->GiveUp(*this); }

std::shared_ptr<SpaceNumber> SpaceQueue::NewNumber(SpaceNumber::Kind kind) {
  uint64_t number = 0;
  {
    const std::lock_guard lock(mu_);
    number = ++last_number_;
  }
  return std::make_shared<SpaceNumber>(shared_from_this(), kind, number);
}

void SpaceQueue::GiveUp(const SpaceNumber& number) {
  const std::lock_guard lock(mu_);
  if (!stopped_.ok()) return;
  Entry entry;
  switch (number.kind()) {
    case SpaceNumber::Kind::kTensor:
      entry.command.mutable_tensor_free()->set_tensor(number.value());
      break;
    case SpaceNumber::Kind::kContext:
      entry.command.mutable_context_close()->set_context(number.value());
      break;
    case SpaceNumber::Kind::kTimeline:
      entry.command.mutable_timeline_delete()->set_timeline(number.value());
      break;
  }
  waiting_.push_back(std::move(entry));
}

void SpaceQueue::Add(Entry entry) {
  {
    const std::lock_guard lock(mu_);
    absl::Status failure = stopped_;
    for (const auto& used : entry.uses) {
      if (failure.ok() && used != nullptr) failure = used->failure_;
    }
    if (!failure.ok()) return Fail(entry, failure);
    waiting_bytes_ += entry.command.ByteSizeLong();
    waiting_.push_back(std::move(entry));
    if (waiting_.size() < Space::kMaxWaiting &&
        waiting_bytes_ < Space::kMaxWaitingBytes) {
      return;
    }
  }
  // Its failures are those of what it was to make.
  Run({}).status().IgnoreError();
}

std::vector<SpaceQueue::Entry> SpaceQueue::Take() {
  const std::lock_guard lock(mu_);
  const auto end = waiting_.begin() + static_cast<ptrdiff_t>(std::min(
                                          waiting_.size(), kMaxCommands));
  std::vector<Entry> taken(std::make_move_iterator(waiting_.begin()),
                           std::make_move_iterator(end));
  waiting_.erase(waiting_.begin(), end);
  if (waiting_.empty()) waiting_bytes_ = 0;
  return taken;
}

absl::StatusOr<std::vector<v1::CommandResult>> SpaceQueue::Run(
    std::vector<v1::Command> commands, absl::Duration patience) {
  const std::lock_guard turn(turn_);
  std::vector<v1::CommandResult> results;
  size_t sent = 0;  // of `commands`
  while (true) {
    std::vector<Entry> entries = Take();
    const size_t own =
        std::min(kMaxCommands - entries.size(), commands.size() - sent);
    if (entries.empty() && own == 0) return results;
    // What is added meanwhile, the numbers of these among it, can wait.
    const bool last = entries.size() + own < kMaxCommands;
    v1::RunRequest request;
    for (Entry& entry : entries) {
      *request.add_commands() = std::move(entry.command);
    }
    for (size_t i = 0; i < own; ++i) {
      *request.add_commands() = std::move(commands[sent++]);
    }
    absl::Status failed;
    {
      const std::lock_guard lock(mu_);
      failed = stopped_;
    }
    v1::RunResponse response;
    if (failed.ok()) {
      auto answer = client_->Run(token_, request, patience);
      failed = answer.status();
      if (answer.ok()) response = *std::move(answer);
    }
    if (failed.ok() && response.results_size() != request.commands_size()) {
      failed = absl::InternalError(
          absl::StrCat("the server answered ", request.commands_size(),
                       " commands with ", response.results_size(), " results"));
    }
    for (size_t i = 0; i < entries.size(); ++i) {
      entries[i].command =
          std::move(*request.mutable_commands(static_cast<int>(i)));
    }
    Note(entries, failed, response);
    if (!failed.ok()) return failed;
    for (size_t i = entries.size(); i < entries.size() + own; ++i) {
      results.push_back(
          std::move(*response.mutable_results(static_cast<int>(i))));
    }
    if (last) return results;
  }
}

void SpaceQueue::Note(std::vector<Entry>& entries, const absl::Status& failed,
                      const v1::RunResponse& response) {
  const std::lock_guard lock(mu_);
  for (size_t i = 0; i < entries.size(); ++i) {
    Entry& entry = entries[i];
    // What was given up may never have been made.
    if (IsFree(entry.command)) continue;
    absl::Status failure =
        failed.ok() ? Outcome(response.results(static_cast<int>(i))) : failed;
    if (failure.ok()) continue;
    for (const auto& used : entry.uses) {
      if (used != nullptr && !used->failure_.ok()) failure = used->failure_;
    }
    Fail(entry, failure);
  }
}

void SpaceQueue::Fail(Entry& entry, const absl::Status& failure) {
  for (const auto& made : entry.makes) made->failure_ = failure;
  if (untold_.ok()) untold_ = failure;
}

absl::Status SpaceQueue::TellFailure(const SpaceNumber& number) {
  const std::lock_guard lock(mu_);
  if (!number.failure_.ok() && untold_ == number.failure_) {
    untold_ = absl::OkStatus();
  }
  return number.failure_;
}

absl::Status SpaceQueue::TakeUntold() {
  const std::lock_guard lock(mu_);
  return std::exchange(untold_, absl::OkStatus());
}

void SpaceQueue::Stop(const absl::Status& why) {
  std::vector<Entry> dropped;
  const std::lock_guard turn(turn_);
  const std::lock_guard lock(mu_);
  if (stopped_.ok()) stopped_ = why;
  dropped.swap(waiting_);
  for (Entry& entry : dropped) {
    for (const auto& made : entry.makes) made->failure_ = why;
  }
}

}  // namespace weir::client
