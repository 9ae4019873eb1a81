// What is made once for equal shapes and lives as long as somebody holds it: in
// one table of the process for each type. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/base/holders.h"
#include "kernels/base/mutex.h"

namespace weir {

using LivingKey = std::vector<int64_t>;

template <typename Made>
class LivingTable {
 public:
  static LivingTable& Get() {
    static auto* const table = new LivingTable;
    return *table;
  }

  // Null if none lives.
  std::shared_ptr<const Made> Find(const LivingKey& shape) {
    MutexLock lock(&mu_);
    const auto found = living_.find(shape);
    return found == living_.end() ? nullptr : HoldIfThere(found->second);
  }

  // Another's, if one was as quick.
  std::shared_ptr<const Made> Share(const LivingKey& shape, Made made) {
    std::shared_ptr<const Made> ours(new Made(std::move(made)),
                                     [this, shape](const Made* last) {
                                       delete last;
                                       Forget(shape);
                                     });
    MutexLock lock(&mu_);
    std::weak_ptr<const Made>& entry = living_[shape];
    if (auto theirs = HoldIfThere(entry)) return theirs;
    entry = ours;
    return ours;
  }

 private:
  void Forget(const LivingKey& shape) {
    MutexLock lock(&mu_);
    const auto found = living_.find(shape);
    if (found != living_.end() && found->second.expired()) living_.erase(found);
  }

  Mutex mu_;
  std::map<LivingKey, std::weak_ptr<const Made>> living_ WEIR_GUARDED_BY(mu_);
};

}  // namespace weir
