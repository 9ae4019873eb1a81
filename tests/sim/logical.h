// What the simulation puts in the place of threads, locks, atomics and time:
// logical threads, one of which runs at a time, and which one is decided by the
// scheduler (scheduler.h) before every operation on something they share. The
// seams (seams/kernels/base) are written on these few functions; nothing else
// includes this but the scheduler.
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

// Something that threads share. Touching one that was destroyed is a failure:
// whoever does it uses what was freed.
class Object {
 public:
  Object();
  ~Object();
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

 private:
  friend class Scheduler;
  static constexpr uint64_t kAlive = 0x616c697665616c69;

  uint64_t alive_ = kAlive;
  uint64_t run_ = 0;      // the execution that `history_` belongs to
  uint64_t name_;         // the same in every execution
  uint64_t history_ = 0;  // of what was done to it, in the order of causes
};

enum class Access : uint8_t { kRead, kWrite };

// Before each access of an atomic.
void Touch(Object& object, Access access);

class LogicalCondVar;

class LogicalMutex : public Object {
 public:
  LogicalMutex() = default;
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
  // REQUIRES: the caller holds the mutex. False if `deadline` came first.
  bool Wait(LogicalMutex& mutex, Nanos deadline = kNever);
  void Notify(bool all);
};

// Starts a logical thread; 0 is no thread.
uint64_t StartThread(const char* name, std::function<void()> run);
void JoinThread(uint64_t thread);
uint64_t CurrentThread();

Nanos Now();
void Sleep(Nanos time);
// Who looks again and again at what others will change sleeps a microsecond
// between two looks: to look while nothing changes only makes steps.
void YieldThread();

// Eight bytes of the current thread's own, zero at first, by the address of
// something that names them.
void* OwnVariable(const void* name);

}  // namespace weir::sim
