#include "server/spaces/account.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"

namespace weir {
namespace {

// What others hold goes when they like.
constexpr absl::Duration kRetryAfter = absl::Milliseconds(100);

// As an error calls them, and what makes room.
struct HoldingText {
  const char* name;
  const char* remedy;
};

HoldingText TextOf(Holding what) {
  switch (what) {
    case Holding::kTensorBytes:
      return {"bytes of tensors", "free tensors that are not needed"};
    case Holding::kTensors:
      return {"tensors", "free those that are not needed"};
    case Holding::kContexts:
      return {"contexts", "close those that are not needed"};
    case Holding::kTimelines:
      return {"timelines", "delete those that are not needed"};
    case Holding::kWorks:
      return {"works that are not done", "wait for some of them"};
    case Holding::kInputBytes:
      return {"bytes of inputs of works that are not done",
              "wait for some of them"};
    case Holding::kProgramBytes:
      return {"bytes of programs of works that are not done",
              "wait for some of them"};
    case Holding::kWaits:
      return {"calls that wait", "let some of them end"};
    case Holding::kSessions:
      return {"sessions", "end some of them"};
    case Holding::kSpaces:
      return {"spaces", "close those that are not needed"};
  }
  return {"", ""};
}

}  // namespace

Account::Share::~Share() {
  if (account_ != nullptr) account_->Remove(what_, amount_);
}

std::shared_ptr<Account> Account::Create(std::string whose,
                                         const Amounts& limits,
                                         std::shared_ptr<Account> parent) {
  return std::shared_ptr<Account>(
      new Account(std::move(whose), limits, std::move(parent)));
}

absl::StatusOr<Account::Share> Account::Take(Holding what, uint64_t amount) {
  WEIR_RETURN_IF_ERROR(Add(what, amount));
  return Share(shared_from_this(), what, amount);
}

absl::Status Account::Add(Holding what, uint64_t amount) {
  const uint64_t limit = limits_[what];
  std::atomic<uint64_t>& held = Held(what);
  uint64_t before = held.load(std::memory_order_relaxed);
  do {
    if (amount > limit || before > limit - amount) {
      const HoldingText text = TextOf(what);
      absl::Status full = WithReason(
          absl::ResourceExhaustedError(absl::StrCat(
              whose_, " has ", before, " of at most ", limit, " ", text.name,
              ", and ", amount, " more were asked for; ", text.remedy)),
          "SPACE_QUOTA",
          {{"held", absl::StrCat(before)}, {"limit", absl::StrCat(limit)}});
      return amount > limit ? full
                            : WithRetryAfter(std::move(full), kRetryAfter);
    }
  } while (!held.compare_exchange_weak(before, before + amount,
                                       std::memory_order_relaxed));
  if (parent_ == nullptr) return absl::OkStatus();
  absl::Status status = parent_->Add(what, amount);
  if (!status.ok()) held.fetch_sub(amount, std::memory_order_relaxed);
  return status;
}

void Account::Remove(Holding what, uint64_t amount) {
  Held(what).fetch_sub(amount, std::memory_order_relaxed);
  if (parent_ != nullptr) parent_->Remove(what, amount);
}

Amounts Account::held() const {
  Amounts amounts;
  for (size_t i = 0; i < kHoldings; ++i) {
    const auto what = static_cast<Holding>(i);
    amounts[what] = held(what);
  }
  return amounts;
}

}  // namespace weir
