#include "kernels/base/thread_role.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/atomic.h"
#include "kernels/base/thread.h"

namespace weir {
namespace {

struct RoleTag;
ThreadRole& TheRole() { return ThreadOwn<RoleTag, ThreadRole>(); }

// As threads are, the process's.
struct Misplaced {
  Atomic<uint64_t> count{0};
  // Of the first: written once, the role behind the call.
  Atomic<ThreadRole> role{ThreadRole::kOther};
  Atomic<const char*> call{nullptr};
};

Misplaced& TheMisplaced() {
  static Misplaced misplaced;
  return misplaced;
}

}  // namespace

const char* ThreadRoleName(ThreadRole role) {
  switch (role) {
    case ThreadRole::kOther:
      return "a thread without a role";
    case ThreadRole::kIo:
      return "an I/O thread";
    case ThreadRole::kStep:
      return "a thread of long steps";
    case ThreadRole::kContinuation:
      return "a thread of continuations";
    case ThreadRole::kCompletion:
      return "a thread that completes works";
    case ThreadRole::kTimer:
      return "a timer thread";
    case ThreadRole::kAllocator:
      return "an allocator thread";
    case ThreadRole::kLauncher:
      return "a launch thread";
  }
  return "a thread";
}

ScopedThreadRole::ScopedThreadRole(ThreadRole role)
    : before_(std::exchange(TheRole(), role)) {}

ScopedThreadRole::~ScopedThreadRole() { TheRole() = before_; }

ThreadRole CurrentThreadRole() { return TheRole(); }

void ExpectMayWait(const char* call) {
  const ThreadRole role = TheRole();
  if (MayWait(role)) return;
  Misplaced& misplaced = TheMisplaced();
  if (misplaced.count.fetch_add(1, std::memory_order_relaxed) != 0) return;
  misplaced.role.store(role, std::memory_order_relaxed);
  misplaced.call.store(call, std::memory_order_release);
}

MisplacedWaits CountMisplacedWaits() {
  const Misplaced& misplaced = TheMisplaced();
  MisplacedWaits waits;
  waits.count = misplaced.count.load(std::memory_order_relaxed);
  const char* const call = misplaced.call.load(std::memory_order_acquire);
  if (call != nullptr) {
    waits.first = absl::StrCat(
        call, " on ",
        ThreadRoleName(misplaced.role.load(std::memory_order_relaxed)));
  }
  return waits;
}

}  // namespace weir
