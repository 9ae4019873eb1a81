// How much a space, or all spaces of one identity, or of the server, hold at
// once, and how much they may: what one holds its parent holds, too. Whoever
// takes something keeps its share as long as it has it, wherever that is by
// then: a tensor whose number was freed counts while a work reads it.
//
// Thread-safe, without locks. A share keeps its account.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace weir {

enum class Holding : uint8_t {
  kTensorBytes,
  kTensors,
  kContexts,
  kTimelines,
  kWorks,         // that are not done
  kInputBytes,    // that came with them, in memory of the host
  kProgramBytes,  // of callers' programs that they run
  kWaits,         // calls that wait for works or moments
  kSessions,      // with a stream, or to be resumed
  kSpaces,        // of an identity or the server
};
inline constexpr size_t kHoldings = 10;

// One number for each.
class Amounts {
 public:
  uint64_t& operator[](Holding what) {
    return amounts_[static_cast<size_t>(what)];
  }
  uint64_t operator[](Holding what) const {
    return amounts_[static_cast<size_t>(what)];
  }

 private:
  std::array<uint64_t, kHoldings> amounts_ = {};
};

class Account : public std::enable_shared_from_this<Account> {
 public:
  // Some of what an account holds; gives it back at its end. Moved from, it has
  // none.
  class Share {
   public:
    Share() = default;
    Share(Share&& other) noexcept
        : account_(std::move(other.account_)),
          what_(other.what_),
          amount_(std::exchange(other.amount_, 0)) {}
    Share& operator=(Share&& other) noexcept {
      std::swap(account_, other.account_);
      std::swap(what_, other.what_);
      std::swap(amount_, other.amount_);
      return *this;
    }
    ~Share();

    uint64_t amount() const { return amount_; }

   private:
    friend class Account;
    Share(std::shared_ptr<Account> account, Holding what, uint64_t amount)
        : account_(std::move(account)), what_(what), amount_(amount) {}

    std::shared_ptr<Account> account_;
    Holding what_ = Holding::kTensorBytes;
    uint64_t amount_ = 0;
  };

  // `whose` it is, for errors: "the space", "identity \"x\"", "the server".
  static std::shared_ptr<Account> Create(std::string whose,
                                         const Amounts& limits,
                                         std::shared_ptr<Account> parent);

  // RESOURCE_EXHAUSTED, reason SPACE_QUOTA, where this account or one above it
  // would hold more than it may; says whose, what, and how much that holds, and
  // when to try again unless it can never fit.
  absl::StatusOr<Share> Take(Holding what, uint64_t amount = 1);

  const Amounts& limits() const { return limits_; }
  Amounts held() const;
  uint64_t held(Holding what) const {
    return Held(what).load(std::memory_order_relaxed);
  }

 private:
  Account(std::string whose, const Amounts& limits,
          std::shared_ptr<Account> parent)
      : whose_(std::move(whose)), limits_(limits), parent_(std::move(parent)) {}

  std::atomic<uint64_t>& Held(Holding what) {
    return held_[static_cast<size_t>(what)];
  }
  const std::atomic<uint64_t>& Held(Holding what) const {
    return held_[static_cast<size_t>(what)];
  }
  absl::Status Add(Holding what, uint64_t amount);
  void Remove(Holding what, uint64_t amount);

  const std::string whose_;
  const Amounts limits_;
  const std::shared_ptr<Account> parent_;
  std::array<std::atomic<uint64_t>, kHoldings> held_ = {};
};

}  // namespace weir
