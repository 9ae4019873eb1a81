// Counts of bytes that are held: each object charges its own to an account as
// long as it lives, so that the sum is right at any moment. Thread-safe.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "kernels/base/atomic.h"

namespace weir {

class ByteAccount {
 public:
  // What is counted here counts in `whole` too, if it is not null.
  explicit ByteAccount(std::shared_ptr<ByteAccount> whole = nullptr)
      : whole_(std::move(whole)) {}
  ByteAccount(const ByteAccount&) = delete;
  ByteAccount& operator=(const ByteAccount&) = delete;

  size_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  void Add(size_t bytes) {
    bytes_.fetch_add(bytes, std::memory_order_relaxed);
    if (whole_ != nullptr) whole_->Add(bytes);
  }
  void Remove(size_t bytes) {
    bytes_.fetch_sub(bytes, std::memory_order_relaxed);
    if (whole_ != nullptr) whole_->Remove(bytes);
  }

 private:
  const std::shared_ptr<ByteAccount> whole_;
  Atomic<size_t> bytes_{0};
};

// What one object has in an account, until it goes. Used by its owner only.
class ByteCharge {
 public:
  ByteCharge() = default;  // nothing
  ByteCharge(std::shared_ptr<ByteAccount> account, size_t bytes)
      : account_(std::move(account)), bytes_(bytes) {
    account_->Add(bytes_);
  }
  ByteCharge(ByteCharge&& other) noexcept { *this = std::move(other); }
  ByteCharge& operator=(ByteCharge&& other) noexcept {
    std::swap(account_, other.account_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~ByteCharge() {
    if (account_ != nullptr) account_->Remove(bytes_);
  }

 private:
  std::shared_ptr<ByteAccount> account_;
  size_t bytes_ = 0;
};

}  // namespace weir
