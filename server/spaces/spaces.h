// The spaces of a server: opened, found by their tokens, listed for those whose
// they are, and closed, by their callers or when their lease has passed.
//
// Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/base/clock.h"
#include "kernels/base/mutex.h"
#include "server/scheduling/identity.h"
#include "server/spaces/account.h"
#include "server/spaces/space.h"
#include "server/spaces/space_token.h"

namespace weir {

struct SpacesOptions {
  Amounts space;     // the most that one space may hold
  Amounts identity;  // all spaces of one identity but `anonymous`
  Amounts server;    // all spaces
  Nanos lease = 0;   // the longest, and that of who asks for none
  SpaceToken::Origin origin;
};

class Spaces {
 public:
  explicit Spaces(const SpacesOptions& options);
  // Closes all of them, and waits until their works are done.
  ~Spaces();
  Spaces(const Spaces&) = delete;
  Spaces& operator=(const Spaces&) = delete;

  const SpacesOptions& options() const { return options_; }

  // Opens one. `lease` 0: the longest; `quota`: 0 of something: the most.
  // INVALID_ARGUMENT, with the field of weir.v1.OpenSpaceRequest, for more;
  // RESOURCE_EXHAUSTED, reason SPACE_QUOTA, if there are too many.
  struct Wish {
    std::string label;
    std::string identity;
    Nanos lease = 0;
    Amounts quota;
  };
  absl::StatusOr<SpaceUse> Open(Wish wish, Nanos now, int64_t unix_now);

  // The space of this token, for its identity alone. INVALID_ARGUMENT for what
  // is no token; NOT_FOUND, reason SPACE_LOST for one of an earlier start,
  // SPACE_NOT_FOUND for others.
  absl::StatusOr<SpaceUse> Find(std::string_view token,
                                std::string_view identity, Nanos now);

  // Nobody finds it from here on. False if it was closed before.
  bool Close(Space& space);
  // Closes those whose lease has passed, and tells, for the log, what they held
  // until then.
  struct Ended {
    std::shared_ptr<Space> space;
    Amounts held;
  };
  std::vector<Ended> CloseExpired(Nanos now);

  // Closes contexts that nobody has used for as long as their ttl, and tells of
  // them for the log.
  struct EndedContext {
    std::shared_ptr<Space> space;
    Space::ExpiredContext context;
  };
  std::vector<EndedContext> CloseExpiredContexts(Nanos now);

  // Those of an identity, by their ids.
  std::vector<std::shared_ptr<Space>> Of(std::string_view identity) const;
  // What those of an identity hold, how many they are included.
  Amounts HeldBy(std::string_view identity) const;
  // What all of them hold.
  Amounts held() const { return account_->held(); }

 private:
  class Census;

  // Of an identity, made when it opens its first space.
  std::shared_ptr<Account> AccountOf(const std::string& identity)
      WEIR_REQUIRES(mu_);

  const SpacesOptions options_;
  const std::shared_ptr<Account> account_;
  const std::shared_ptr<Census> census_;

  mutable Mutex mu_;
  uint64_t last_id_ WEIR_GUARDED_BY(mu_) = 0;
  absl::flat_hash_map<SpaceToken, std::shared_ptr<Space>> spaces_
      WEIR_GUARDED_BY(mu_);
  // Gone with the last of its spaces.
  std::map<std::string, std::weak_ptr<Account>, std::less<>> accounts_
      WEIR_GUARDED_BY(mu_);
};

}  // namespace weir
