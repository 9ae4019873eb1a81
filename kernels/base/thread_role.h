// What a thread is there for, so that a call that may wait can tell whether its
// thread may. Whoever makes a thread that may not wait says so at its start;
// one that says nothing may. Thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/base/export.h"

namespace weir {

enum class ThreadRole : uint8_t {
  kOther,
  // These may not wait.
  kIo,            // takes calls, answers them
  kStep,          // what of a call takes long
  kContinuation,  // goes on with what was waited for
  kCompletion,    // completes works
  kTimer,
  // These are there to wait.
  kAllocator,
  kLauncher,
};

constexpr bool MayWait(ThreadRole role) {
  return role < ThreadRole::kIo || role > ThreadRole::kTimer;
}
WEIR_EXPORT const char* ThreadRoleName(ThreadRole role);

// The calling thread's role while the object lives; what it was, after that.
class WEIR_EXPORT ScopedThreadRole {
 public:
  explicit ScopedThreadRole(ThreadRole role);
  ~ScopedThreadRole();
  ScopedThreadRole(const ScopedThreadRole&) = delete;
  ScopedThreadRole& operator=(const ScopedThreadRole&) = delete;

 private:
  const ThreadRole before_;
};

WEIR_EXPORT ThreadRole CurrentThreadRole();

// Said by whatever may wait for a driver, a library or a device, when it is
// about to: counted where the thread may not, and otherwise nothing, for the
// call is right and only its place is wrong. `call` is a literal.
WEIR_EXPORT void ExpectMayWait(const char* call);

// Of the whole process, since it began.
struct MisplacedWaits {
  uint64_t count = 0;
  std::string first;  // "cudaMalloc on an I/O thread"; empty: none
};
WEIR_EXPORT MisplacedWaits CountMisplacedWaits();

}  // namespace weir
