#include "server/spaces/spaces.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "kernels/base/absl_view.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"

namespace weir {
namespace {

struct QuotaField {
  Holding what;
  const char* name;
};
constexpr QuotaField kQuotaFields[] = {
    {Holding::kTensorBytes, "tensor_bytes"},
    {Holding::kTensors, "tensors"},
    {Holding::kContexts, "contexts"},
    {Holding::kTimelines, "timelines"},
    {Holding::kWorks, "works"},
    {Holding::kInputBytes, "input_bytes"},
    {Holding::kProgramBytes, "program_bytes"},
    {Holding::kWaits, "waits"},
    {Holding::kSessions, "sessions"}};

absl::StatusOr<Amounts> Quota(const Amounts& wanted, const Amounts& most) {
  Amounts quota = most;
  for (const auto& [what, name] : kQuotaFields) {
    if (wanted[what] > most[what]) {
      return InvalidField(
          absl::StrCat("quota.", name),
          absl::StrCat(wanted[what], " is more than the ", most[what],
                       " that this server gives a space"));
    }
    if (wanted[what] != 0) quota[what] = wanted[what];
  }
  return quota;
}

absl::StatusOr<Nanos> Lease(Nanos wanted, Nanos longest) {
  if (wanted < 0 || wanted > longest) {
    return InvalidField(
        "lease_ns",
        absl::StrCat(absl::FormatDuration(absl::Nanoseconds(wanted)),
                     " is not between 0 and ",
                     absl::FormatDuration(absl::Nanoseconds(longest)),
                     ", the longest that this server gives a space"));
  }
  return wanted == 0 ? longest : wanted;
}

}  // namespace

// Counts what is left of spaces: each holds its own reference.
class Spaces::Census {
 public:
  std::shared_ptr<const void> Enter() {
    {
      MutexLock lock(&mu_);
      ++living_;
    }
    return {this, [](Census* census) { census->Leave(); }};
  }
  void AwaitNone() {
    MutexLock lock(&mu_);
    while (living_ > 0) changed_.Wait(&mu_);
  }

 private:
  void Leave() {
    MutexLock lock(&mu_);
    --living_;
    changed_.NotifyAll();
  }

  Mutex mu_;
  CondVar changed_;
  size_t living_ WEIR_GUARDED_BY(mu_) = 0;
};

Spaces::Spaces(const SpacesOptions& options)
    : options_(options),
      account_(Account::Create("the server", options.server, nullptr)),
      census_(std::make_shared<Census>()) {}

Spaces::~Spaces() {
  std::vector<std::shared_ptr<Space>> all;
  {
    MutexLock lock(&mu_);
    for (auto& [token, space] : spaces_) all.push_back(std::move(space));
    spaces_.clear();
  }
  for (const auto& space : all) space->Close();
  all.clear();
  census_->AwaitNone();
}

std::shared_ptr<Account> Spaces::AccountOf(const std::string& identity) {
  const auto at = accounts_.find(identity);
  if (at != accounts_.end()) {
    if (auto account = at->second.lock(); account != nullptr) return account;
  }
  auto account = Account::Create(
      absl::StrCat("identity \"", identity, "\""),
      identity == kAnonymous ? options_.server : options_.identity, account_);
  std::erase_if(accounts_,
                [](const auto& entry) { return entry.second.expired(); });
  accounts_[identity] = account;
  return account;
}

absl::StatusOr<SpaceUse> Spaces::Open(Wish wish, Nanos now, int64_t unix_now) {
  WEIR_ASSIGN_OR_RETURN(const Amounts quota, Quota(wish.quota, options_.space));
  WEIR_ASSIGN_OR_RETURN(const Nanos lease, Lease(wish.lease, options_.lease));
  Space::Options options;
  options.token = SpaceToken::New(options_.origin);
  options.label = std::move(wish.label);
  options.identity = std::move(wish.identity);
  options.lease = lease;
  options.opened_unix_ns = unix_now;
  options.now = now;
  MutexLock lock(&mu_);
  std::shared_ptr<Account> identity = AccountOf(options.identity);
  WEIR_ASSIGN_OR_RETURN(options.share, identity->Take(Holding::kSpaces));
  options.id = ++last_id_;
  options.account = Account::Create("the space", quota, std::move(identity));
  options.census = census_->Enter();
  const SpaceToken token = options.token;
  auto space = std::make_shared<Space>(std::move(options));
  space->BeginUse();
  spaces_[token] = space;
  return SpaceUse(std::move(space));
}

absl::StatusOr<SpaceUse> Spaces::Find(std::string_view token,
                                      std::string_view identity, Nanos now) {
  const std::optional<SpaceToken> wanted = SpaceToken::Read(token);
  if (!wanted.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("weir-space-bin has ", token.size(),
                     " bytes; a space's token has ", SpaceToken::kBytes));
  }
  {
    MutexLock lock(&mu_);
    const auto at = spaces_.find(*wanted);
    if (at != spaces_.end() && at->second->identity() == identity &&
        !at->second->Expired(now) && at->second->BeginUse()) {
      return SpaceUse(at->second);
    }
  }
  if (wanted->origin() != options_.origin) {
    return WithReason(
        absl::NotFoundError(
            "the space went with the process that had it; open another one"),
        "SPACE_LOST");
  }
  return WithReason(
      absl::NotFoundError("there is no space with this token: it was closed, "
                          "its lease has passed, or it never was; open "
                          "another one"),
      "SPACE_NOT_FOUND");
}

bool Spaces::Close(Space& space) {
  std::shared_ptr<Space> closed;
  {
    MutexLock lock(&mu_);
    const auto at = spaces_.find(space.token());
    if (at == spaces_.end()) return false;
    closed = std::move(at->second);
    spaces_.erase(at);
  }
  closed->Close();
  return true;
}

std::vector<Spaces::Ended> Spaces::CloseExpired(Nanos now) {
  std::vector<Ended> expired;
  {
    MutexLock lock(&mu_);
    absl::erase_if(spaces_, [&](const auto& entry) {
      if (!entry.second->Expired(now)) return false;
      expired.push_back({entry.second, entry.second->account().held()});
      return true;
    });
  }
  for (const Ended& each : expired) each.space->Close();
  return expired;
}

std::vector<Spaces::EndedContext> Spaces::CloseExpiredContexts(Nanos now) {
  std::vector<std::shared_ptr<Space>> spaces;
  {
    MutexLock lock(&mu_);
    for (const auto& [token, space] : spaces_) spaces.push_back(space);
  }
  std::vector<EndedContext> ended;
  for (const std::shared_ptr<Space>& space : spaces) {
    for (const auto& each : space->CloseExpiredContexts(now)) {
      ended.push_back({space, each});
    }
  }
  return ended;
}

std::vector<std::shared_ptr<Space>> Spaces::Of(
    std::string_view identity) const {
  std::vector<std::shared_ptr<Space>> all;
  {
    MutexLock lock(&mu_);
    for (const auto& [token, space] : spaces_) {
      if (space->identity() == identity) all.push_back(space);
    }
  }
  std::sort(all.begin(), all.end(),
            [](const auto& a, const auto& b) { return a->id() < b->id(); });
  return all;
}

Amounts Spaces::HeldBy(std::string_view identity) const {
  MutexLock lock(&mu_);
  const auto at = accounts_.find(identity);
  if (at == accounts_.end()) return {};
  const auto account = at->second.lock();
  return account == nullptr ? Amounts() : account->held();
}

}  // namespace weir
