#include "server/spaces/space.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "kernels/base/error_info.h"
#include "kernels/base/holders.h"
#include "server/spaces/space_work.h"

namespace weir {

absl::Status SpaceNotFound(uint64_t id) {
  return WithReason(
      absl::NotFoundError(absl::StrCat("space ", id,
                                       " was closed, or its lease has passed; "
                                       "open another one")),
      "SPACE_NOT_FOUND");
}

Space::Space(Options options)
    : options_(std::move(options)), last_used_(options_.now) {}

absl::StatusOr<NumberTable<KeptTensor>::Claim> Space::TakeTensor(
    uint64_t number) {
  auto claim = tensors_.Take(number);
  if (claim.ok() || !absl::IsAlreadyExists(claim.status())) return claim;
  const auto tensor = tensors_.Find(number);
  if (!tensor.ok() || (*tensor)->failure().ok()) return claim;
  tensors_.RemoveIf(number, tensor->get());
  return tensors_.Take(number);
}

absl::StatusOr<NumberTable<KeptContext>::Claim> Space::TakeContext(
    uint64_t number) {
  auto claim = contexts_.Take(number);
  if (!claim.ok()) return claim;
  MutexLock lock(&mu_);
  std::erase_if(expired_contexts_, [number](const ExpiredContext& each) {
    return each.number == number;
  });
  return claim;
}

absl::StatusOr<std::shared_ptr<KeptContext>> Space::FindContext(uint64_t number,
                                                                Nanos now) {
  auto kept = contexts_.Find(number);
  if (kept.ok()) {
    (*kept)->Touch(now);
    return kept;
  }
  MutexLock lock(&mu_);
  const auto expired = std::find_if(
      expired_contexts_.rbegin(), expired_contexts_.rend(),
      [number](const ExpiredContext& each) { return each.number == number; });
  if (expired == expired_contexts_.rend()) return kept;
  return WithReason(absl::NotFoundError(absl::StrCat(
                        "the space has no context ", number,
                        ": it was closed because nobody had used it for ",
                        absl::FormatDuration(absl::Nanoseconds(expired->ttl)),
                        ", its ttl; create it again")),
                    "CONTEXT_NOT_FOUND");
}

std::vector<Space::ExpiredContext> Space::CloseExpiredContexts(Nanos now) {
  std::vector<ExpiredContext> expired;
  // Outside the table's lock: a context ends all that it has deferred.
  std::vector<std::shared_ptr<KeptContext>> ended = contexts_.TakeIf(
      [&](uint64_t number, const std::shared_ptr<KeptContext>& kept) {
        // Whoever is on the way into it has found it.
        if (HeldByOthers(kept)) kept->Touch(now);
        if (!kept->Expired(now)) return false;
        expired.push_back({number, kept->settings().ttl});
        return true;
      });
  if (expired.empty()) return expired;
  MutexLock lock(&mu_);
  for (const ExpiredContext& each : expired) expired_contexts_.push_back(each);
  while (expired_contexts_.size() > kExpiredContextsKept) {
    expired_contexts_.pop_front();
  }
  return expired;
}

bool Space::closed() const {
  MutexLock lock(&mu_);
  return closed_;
}

bool Space::BeginUse() {
  MutexLock lock(&mu_);
  if (closed_) return false;
  ++users_;
  return true;
}

void Space::EndUse(Nanos now) {
  MutexLock lock(&mu_);
  --users_;
  last_used_ = now;
}

Nanos Space::idle(Nanos now) const {
  MutexLock lock(&mu_);
  return users_ > 0 || now < last_used_ ? 0 : now - last_used_;
}

absl::StatusOr<std::shared_ptr<const Account::Share>> Space::HoldProgram(
    const Program& program) {
  MutexLock lock(&mu_);
  std::weak_ptr<const Account::Share>& held = programs_[program.number()];
  if (auto share = held.lock(); share != nullptr) return share;
  auto taken = account().Take(Holding::kProgramBytes, program.held_bytes());
  if (!taken.ok()) {
    programs_.erase(program.number());
    return taken.status();
  }
  auto share = std::make_shared<const Account::Share>(*std::move(taken));
  held = share;
  absl::erase_if(programs_,
                 [](const auto& entry) { return entry.second.expired(); });
  return share;
}

bool Space::NoteWork(SpaceWork* work) {
  MutexLock lock(&mu_);
  if (closed_) return false;
  running_.insert(work);
  return true;
}

void Space::ForgetWork(SpaceWork* work) {
  MutexLock lock(&mu_);
  running_.erase(work);
}

void Space::NoteDone(uint64_t number, std::shared_ptr<KeptWork> work) {
  std::pair<uint64_t, std::shared_ptr<KeptWork>> oldest;
  {
    MutexLock lock(&mu_);
    if (closed_) return;
    done_.emplace_back(number, std::move(work));
    if (done_.size() <= kDoneWorksKept) return;
    oldest = std::move(done_.front());
    done_.pop_front();
  }
  works_.RemoveIf(oldest.first, oldest.second.get());
}

void Space::Close() {
  std::vector<std::shared_ptr<SpaceWork>> running;
  {
    MutexLock lock(&mu_);
    if (closed_) return;
    closed_ = true;
    running.reserve(running_.size());
    for (SpaceWork* work : running_)
      running.push_back(work->shared_from_this());
    done_.clear();
  }
  // What waits for a timeline of the space would wait for ever.
  const absl::Status closed = WithReason(
      absl::CancelledError(absl::StrCat("space ", options_.id, " was closed")),
      "SPACE_CLOSED");
  for (const auto& session : sessions_.Close()) session->SpaceClosed();
  for (const auto& work : running) work->Cancel();
  for (const auto& kept : timelines_.Close()) kept->timeline->Fail(closed);
  works_.Close();
  tensors_.Close();
  contexts_.Close();
}

}  // namespace weir
