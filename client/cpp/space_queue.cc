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
// Of those, commands that were added, and waits for the works of others.
constexpr size_t kMaxEntries = 768;
constexpr uint64_t kMaxAwaited = kMaxCommands - kMaxEntries;

bool IsFree(const v1::Command& command) {
  return command.has_tensor_free() || command.has_context_close() ||
         command.has_timeline_delete();
}

// Of the work that it is; 0: it is none.
uint64_t WorkOf(const v1::Command& command) {
  return command.has_evaluate() ? command.evaluate().work()
                                : command.tensor_put().work();
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
      // Works that were asked for go on.
      entry.command.mutable_timeline_delete()->set_number_only(true);
      break;
  }
  waiting_.push_back(std::move(entry));
}

absl::Status SpaceQueue::Usable(const Numbers& numbers) const {
  for (const auto& used : numbers) {
    if (used == nullptr) continue;
    if (used->queue_.get() != this) {
      return absl::InvalidArgumentError(
          absl::StrCat("number ", used->value(),
                       " is of another space; read it there, and put it here"));
    }
    if (!used->failure_.ok() && !used->in_doubt_) return used->failure_;
  }
  return absl::OkStatus();
}

absl::Status SpaceQueue::Cause(const Numbers& numbers, absl::Status failure) {
  for (const auto& used : numbers) {
    if (used != nullptr && !used->failure_.ok()) failure = used->failure_;
  }
  return failure;
}

void SpaceQueue::NoteMoment(Entry& entry) {
  entry.awaits_moment = entry.command.evaluate().after_size() > 0;
  awaits_moments_ |= entry.awaits_moment;
  for (const auto& used : entry.uses) {
    if (used != nullptr) entry.awaits_moment |= used->awaits_moment_;
  }
  if (!entry.awaits_moment) return;
  for (const auto& made : entry.makes) made->awaits_moment_ = true;
  for (const auto& used : entry.uses) {
    if (used != nullptr && used->kind() == SpaceNumber::Kind::kContext) {
      used->awaits_moment_ = true;
    }
  }
}

void SpaceQueue::Add(Entry entry) {
  {
    const std::lock_guard lock(mu_);
    absl::Status failure = stopped_;
    if (failure.ok()) failure = Usable(entry.uses);
    if (!failure.ok()) return Fail(entry, failure, /*in_doubt=*/false);
    if (entry.command.has_tensor_put()) {
      entry.command.mutable_tensor_put()->set_work(++last_number_);
    } else if (entry.command.has_evaluate()) {
      entry.command.mutable_evaluate()->set_work(++last_number_);
    }
    NoteMoment(entry);
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

std::vector<SpaceQueue::Entry> SpaceQueue::Take(bool* more) {
  const std::lock_guard lock(mu_);
  size_t count = 0, bytes = 0, works = 0;
  for (; count < waiting_.size() && count < kMaxEntries; ++count) {
    const v1::Command& command = waiting_[count].command;
    bytes += command.ByteSizeLong();
    if (WorkOf(command) != 0) ++works;
    if (count > 0 && (bytes > Space::kMaxWaitingBytes ||
                      works > std::min<uint64_t>(max_works_, kMaxAwaited))) {
      break;
    }
  }
  const auto end = waiting_.begin() + static_cast<ptrdiff_t>(count);
  std::vector<Entry> taken(std::make_move_iterator(waiting_.begin()),
                           std::make_move_iterator(end));
  waiting_.erase(waiting_.begin(), end);
  *more = !waiting_.empty();
  if (waiting_.empty()) waiting_bytes_ = 0;
  return taken;
}

std::vector<v1::Command> SpaceQueue::AwaitRoom(
    const std::vector<Entry>& entries) {
  std::vector<v1::Command> waits;
  const std::lock_guard lock(mu_);
  for (const Entry& entry : entries) {
    const uint64_t work = WorkOf(entry.command);
    if (work == 0 || entry.awaits_moment) continue;
    works_.push_back(work);
    if (works_.size() <= max_works_) continue;
    // One by one: a wait for several ends with the first that failed.
    waits.emplace_back().mutable_wait()->add_works(works_.front());
    works_.pop_front();
  }
  return waits;
}

absl::StatusOr<std::vector<v1::CommandResult>> SpaceQueue::Run(
    std::vector<v1::Command> commands, absl::Duration patience) {
  bool apart = patience > absl::ZeroDuration();
  {
    const std::lock_guard lock(mu_);
    apart = !commands.empty() && (apart || awaits_moments_);
  }
  std::vector<v1::CommandResult> results;
  {
    const std::lock_guard turn(turn_);
    std::vector<v1::Command> own;
    if (!apart) own.swap(commands);
    size_t sent = 0;  // of `own`
    for (bool more = true; more;) {
      std::vector<Entry> entries = Take(&more);
      const std::vector<v1::Command> waits = AwaitRoom(entries);
      const size_t others = waits.size() + entries.size();
      size_t with =
          more ? 0 : std::min(kMaxCommands - others, own.size() - sent);
      more |= sent + with < own.size();
      if (others + with == 0) break;
      v1::RunRequest request;
      for (const v1::Command& wait : waits) *request.add_commands() = wait;
      for (Entry& entry : entries) {
        *request.add_commands() = std::move(entry.command);
      }
      for (; with > 0; --with) {
        *request.add_commands() = std::move(own[sent++]);
      }
      v1::RunResponse response;
      const absl::Status failed = Send(request, patience, &response);
      for (size_t i = 0; i < entries.size(); ++i) {
        entries[i].command = std::move(
            *request.mutable_commands(static_cast<int>(waits.size() + i)));
      }
      Note(entries, failed, response, waits.size());
      if (!failed.ok()) return failed;
      for (int i = static_cast<int>(others); i < response.results_size(); ++i) {
        results.push_back(std::move(*response.mutable_results(i)));
      }
    }
  }
  return apart ? RunApart(std::move(commands), patience) : results;
}

absl::StatusOr<std::vector<v1::CommandResult>> SpaceQueue::RunApart(
    std::vector<v1::Command> commands, absl::Duration patience) {
  std::vector<v1::CommandResult> results;
  for (size_t sent = 0; sent < commands.size();) {
    v1::RunRequest request;
    for (size_t i = 0; i < kMaxCommands && sent < commands.size(); ++i) {
      *request.add_commands() = std::move(commands[sent++]);
    }
    v1::RunResponse response;
    const absl::Status failed = Send(request, patience, &response);
    if (!failed.ok()) return failed;
    for (v1::CommandResult& result : *response.mutable_results()) {
      results.push_back(std::move(result));
    }
  }
  return results;
}

absl::Status SpaceQueue::Send(const v1::RunRequest& request,
                              absl::Duration patience,
                              v1::RunResponse* response) {
  {
    const std::lock_guard lock(mu_);
    if (!stopped_.ok()) return stopped_;
  }
  auto answer = client_->Run(token_, request, patience);
  if (!answer.ok()) return answer.status();
  *response = *std::move(answer);
  if (response->results_size() == request.commands_size()) {
    return absl::OkStatus();
  }
  return absl::InternalError(
      absl::StrCat("the server answered ", request.commands_size(),
                   " commands with ", response->results_size(), " results"));
}

void SpaceQueue::Note(std::vector<Entry>& entries, const absl::Status& failed,
                      const v1::RunResponse& response, size_t first) {
  const std::lock_guard lock(mu_);
  std::vector<Entry> again;
  for (size_t i = 0; i < entries.size(); ++i) {
    Entry& entry = entries[i];
    if (IsFree(entry.command)) {
      // What was given up may never have been made: that is no failure. What
      // nobody answered is sent again.
      if (!failed.ok() && stopped_.ok()) again.push_back(std::move(entry));
      continue;
    }
    absl::Status failure =
        failed.ok() ? Outcome(response.results(static_cast<int>(first + i)))
                    : failed;
    if (failure.ok()) continue;
    Fail(entry, Cause(entry.uses, std::move(failure)),
         /*in_doubt=*/!failed.ok());
  }
  waiting_.insert(waiting_.begin(), std::make_move_iterator(again.begin()),
                  std::make_move_iterator(again.end()));
}

void SpaceQueue::Fail(Entry& entry, const absl::Status& failure,
                      bool in_doubt) {
  for (const auto& made : entry.makes) {
    made->failure_ = failure;
    made->in_doubt_ = in_doubt;
  }
  if (untold_.ok()) untold_ = failure;
}

absl::Status SpaceQueue::Judge(const Numbers& numbers,
                               const absl::Status& outcome) {
  const std::lock_guard lock(mu_);
  absl::Status told = Usable(numbers);
  if (told.ok() && !outcome.ok()) told = Cause(numbers, outcome);
  if (!told.ok() && untold_ == told) untold_ = absl::OkStatus();
  return told;
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
    Fail(entry, why, /*in_doubt=*/false);
  }
}

}  // namespace weir::client
