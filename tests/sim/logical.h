// What the simulation puts in the place of threads, locks, atomics and time:
// logical threads, one of which runs at a time, and which one is decided by the
// scheduler (scheduler.h) before every operation on something they share. The
// seams (seams/kernels/base) are written on these few functions; nothing else
// includes this but the scheduler and what it is made of.
//
// Outside a simulation, while a test sets things up, the operations do what
// they say without a scheduler: there is one thread then.
//
// Memory is sequentially consistent here, and a variable that is not an Atomic
// is no place to switch at: weaker orders and data races are for
// ThreadSanitizer to find.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>

namespace weir::sim {

using Nanos = int64_t;
inline constexpr Nanos kNever = std::numeric_limits<Nanos>::max();

enum class Access : uint8_t { kRead, kWrite };

struct Clock;  // sharing.h

// Who came last to something, in the order of causes: see sharing.h.
struct Trail {
  // What it is one of: where in the program it is made.
  const void* place = nullptr;
  bool shared = false;
  bool visible = false;  // an invariant looks at it
  int writer = -1;
  int reader = -1;
  uint32_t written = 0;  // on that thread's own clock
  uint32_t read = 0;
  Clock* writes = nullptr;  // of what is shared
  Clock* reads = nullptr;   // the same, or where several read
};

// Something that threads share. Touching one that was destroyed is a failure:
// whoever does it uses what was freed.
class Object {
 public:
  // Whoever calls it is the place where the object is made: that must be the
  // constructor of what it is in, or whoever makes that.
  Object();
  ~Object();
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

 private:
  friend class Scheduler;
  friend class LogicalMutex;
  static constexpr uint64_t kAlive = 0x616c697665616c69;

  uint64_t alive_ = kAlive;
  uint64_t run_ = 0;      // the execution that what follows belongs to
  uint64_t name_;         // the same in every execution
  uint64_t history_ = 0;  // of what was done to it, in the order of causes
  uint64_t reads_ = 0;    // those since it was last written to
  uint32_t changes_ = 0;
  Trail trail_;
};

// Before each access of an atomic.
void Touch(Object& object, Access access);

// Those that hold an object together (shared_ptr), by the count of them.
// Before one lets go.
void BeforeDrop(const void* count);
// Whether more than `known` hold it, or, of what is held weakly, at least one.
bool IsHeld(const void* count, int known);

class LogicalCondVar;

class LogicalMutex : public Object {
 public:
  [[gnu::always_inline]] LogicalMutex() {}
  ~LogicalMutex();
  void Lock();
  void Unlock();

 private:
  friend class Scheduler;
  friend class LogicalCondVar;
  int owner_ = kFree;
  static constexpr int kFree = -1;
};

class LogicalCondVar : public Object {
 public:
  [[gnu::always_inline]] LogicalCondVar() {}
  // REQUIRES: the caller holds the mutex. False if `deadline` came first.
  bool Wait(LogicalMutex& mutex, Nanos deadline = kNever);
  void Notify(bool all);
};

// Starts a logical thread; 0 is no thread.
uint64_t StartThread(const char* name, std::function<void()> run);
void JoinThread(uint64_t thread);
uint64_t CurrentThread();
// The same in every execution that starts it, however many others it starts
// before.
uint64_t ThreadNumber();

Nanos Now();
void Sleep(Nanos time);
// For who looks again and again at what others will change: waits until
// something changes that it has looked at since it last waited here, or for so
// long. To look while nothing changes only makes steps.
void AwaitChange(Nanos time);

// Eight bytes of the current thread's own, zero at first, by the address of
// something that names them.
void* OwnVariable(const void* name);

}  // namespace weir::sim
