// The plans of one program by what they were made for. Lookups on different
// threads do not meet. Thread-safe. Internal to this layer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/base/atomic.h"
#include "kernels/base/byte_account.h"
#include "kernels/base/mutex.h"
#include "kernels/base/striped_snapshot.h"
#include "kernels/graph/plan.h"
#include "kernels/graph/program_core.h"

namespace weir {

// Shapes of all inputs, and what the host reads of them.
using PlanKey = absl::InlinedVector<int64_t, 48>;

// What making a key may take.
struct PlanKeyBudget {
  DigestBudget digests;
  size_t words = SIZE_MAX;
};

// On a thread that others wait for: to copy and to hash so many words takes
// less than a millisecond.
inline constexpr size_t kQuickKeyWords = size_t{1} << 16;

// False where the inputs are none that a plan could be made for, or their key
// takes more than `budget`.
bool MakePlanKey(const ProgramCore& core, absl::Span<const HostTensor> inputs,
                 PlanKeyBudget budget, PlanKey* key);

class PlanCache {
 public:
  // `max_bytes`: of keys and what plans hold. `account` counts the keys.
  PlanCache(size_t max_plans, size_t max_bytes,
            std::shared_ptr<ByteAccount> account);

  std::shared_ptr<const Plan> Find(const PlanKey& key) const;

  // Returns the plan that is cached from now on: an equal one that another
  // thread has put there before, or `plan`. The least recently used go. A plan
  // that alone is too large is not kept.
  std::shared_ptr<const Plan> Insert(const PlanKey& key,
                                     std::shared_ptr<const Plan> plan);

  // Drops the least recently used that nobody else has; false: there is none.
  bool DropIdle();

  struct Use {
    size_t plans = 0;
    bool held = false;  // some plan, by somebody else
  };
  Use use() const;

 private:
  struct Entry {
    uint64_t hash = 0;
    PlanKey key;
    std::shared_ptr<const Plan> plan;
    size_t bytes = 0;
    ByteCharge charge;  // for the key
    mutable Atomic<uint64_t> used{0};
  };
  using Entries = std::vector<std::shared_ptr<const Entry>>;

  static uint64_t Hash(const PlanKey& key);
  static const Entry* FindIn(const Entries& entries, uint64_t hash,
                             const PlanKey& key);

  const size_t max_plans_;
  const size_t max_bytes_;
  const std::shared_ptr<ByteAccount> account_;
  // Grows with every insertion; an entry remembers when it was used last.
  Atomic<uint64_t> age_{1};
  Mutex insert_mu_;
  StripedSnapshot<Entries> entries_;
};

}  // namespace weir
