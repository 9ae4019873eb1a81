// Objects of one kind by the numbers that their caller gave them. A number is
// claimed first and filled later, when its object is there for others: until
// then it stands for nothing, and nobody else gets it. Thread-safe; objects
// that leave the table end outside its lock.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/error_info.h"
#include "kernels/base/mutex.h"

namespace weir {

template <typename T>
class NumberTable {
 public:
  // A number that nobody else gets. Moved from, it has none; ends before the
  // table.
  class Claim {
   public:
    Claim() = default;
    Claim(Claim&& other) noexcept
        : table_(std::exchange(other.table_, nullptr)),
          number_(other.number_) {}
    Claim& operator=(Claim&& other) noexcept {
      std::swap(table_, other.table_);
      std::swap(number_, other.number_);
      return *this;
    }
    // An unfilled number is free again.
    ~Claim() {
      if (table_ != nullptr) table_->GiveUp(number_);
    }

    explicit operator bool() const { return table_ != nullptr; }
    uint64_t number() const { return number_; }
    // Once: from here on the number stands for `object`. False if the table was
    // closed: then nobody finds it.
    bool Fill(std::shared_ptr<T> object) {
      return std::exchange(table_, nullptr)->Fill(number_, std::move(object));
    }

   private:
    friend class NumberTable;
    Claim(NumberTable* table, uint64_t number)
        : table_(table), number_(number) {}

    NumberTable* table_ = nullptr;
    uint64_t number_ = 0;
  };

  // `kind` of its objects, for errors: "tensor". A literal.
  explicit NumberTable(const char* kind) : kind_(kind) {}

  // INVALID_ARGUMENT for 0; ALREADY_EXISTS, reason NUMBER_IN_USE, for one that
  // is claimed or filled; NOT_FOUND, reason SPACE_NOT_FOUND, once the table is
  // closed.
  absl::StatusOr<Claim> Take(uint64_t number) {
    if (number == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("0 is no number of a ", kind_));
    }
    MutexLock lock(&mu_);
    if (closed_) {
      return WithReason(absl::NotFoundError("the space was closed"),
                        "SPACE_NOT_FOUND");
    }
    if (objects_.try_emplace(number).second) return Claim(this, number);
    return WithReason(absl::AlreadyExistsError(absl::StrCat(
                          "the space has a ", kind_, " ", number, " already")),
                      "NUMBER_IN_USE");
  }

  // NOT_FOUND, reason TENSOR_NOT_FOUND for a tensor, if it stands for nothing.
  absl::StatusOr<std::shared_ptr<T>> Find(uint64_t number) const {
    MutexLock lock(&mu_);
    const auto at = objects_.find(number);
    if (at == objects_.end() || at->second == nullptr) return NotFound(number);
    return at->second;
  }

  // The same, and it stands for nothing from now on.
  absl::StatusOr<std::shared_ptr<T>> Remove(uint64_t number) {
    MutexLock lock(&mu_);
    const auto at = objects_.find(number);
    if (at == objects_.end() || at->second == nullptr) return NotFound(number);
    std::shared_ptr<T> object = std::move(at->second);
    objects_.erase(at);
    return object;
  }
  // The same if it still stands for `object`.
  void RemoveIf(uint64_t number, const T* object) {
    std::shared_ptr<T> removed;
    MutexLock lock(&mu_);
    const auto at = objects_.find(number);
    if (at == objects_.end() || at->second.get() != object) return;
    removed = std::move(at->second);
    objects_.erase(at);
  }

  // It stands for `object` from now on, if it stands for one that
  // `follows(it)`. Returns that, or null. `follows` runs under the table's
  // lock.
  std::shared_ptr<T> ReplaceIf(uint64_t number,
                               absl::FunctionRef<bool(const T& now)> follows,
                               std::shared_ptr<T> object) {
    MutexLock lock(&mu_);
    const auto at = objects_.find(number);
    if (at == objects_.end() || at->second == nullptr ||
        !follows(*at->second)) {
      return nullptr;
    }
    return std::exchange(at->second, std::move(object));
  }

  // Those for which `ends(number, object)` is true stand for nothing from now
  // on. It runs under the table's lock.
  std::vector<std::shared_ptr<T>> TakeIf(
      absl::FunctionRef<bool(uint64_t number, const std::shared_ptr<T>& object)>
          ends) {
    std::vector<std::shared_ptr<T>> taken;
    MutexLock lock(&mu_);
    absl::erase_if(objects_, [&](auto& entry) {
      if (entry.second == nullptr || !ends(entry.first, entry.second)) {
        return false;
      }
      taken.push_back(std::move(entry.second));
      return true;
    });
    return taken;
  }

  // Takes nothing any more, and gives up all that it has.
  std::vector<std::shared_ptr<T>> Close() {
    Objects objects;
    {
      MutexLock lock(&mu_);
      closed_ = true;
      objects.swap(objects_);
    }
    std::vector<std::shared_ptr<T>> all;
    all.reserve(objects.size());
    for (auto& [number, object] : objects) {
      if (object != nullptr) all.push_back(std::move(object));
    }
    return all;
  }

 private:
  // Null where the number is claimed.
  using Objects = absl::flat_hash_map<uint64_t, std::shared_ptr<T>>;

  bool Fill(uint64_t number, std::shared_ptr<T> object) {
    MutexLock lock(&mu_);
    if (closed_) return false;
    objects_[number] = std::move(object);
    return true;
  }
  void GiveUp(uint64_t number) {
    MutexLock lock(&mu_);
    if (!closed_) objects_.erase(number);
  }
  absl::Status NotFound(uint64_t number) const {
    return WithReason(absl::NotFoundError(
                          absl::StrCat("the space has no ", kind_, " ", number,
                                       "; it was freed, or never was")),
                      absl::StrCat(absl::AsciiStrToUpper(kind_), "_NOT_FOUND"));
  }

  const char* const kind_;
  mutable Mutex mu_;
  bool closed_ WEIR_GUARDED_BY(mu_) = false;
  Objects objects_ WEIR_GUARDED_BY(mu_);
};

}  // namespace weir
