// Runs a body, and whatever logical threads it starts, one thread at a time,
// and asks a Chooser which one goes on before every lock, after every unlock,
// before every access of an atomic, at every wait, notification, start and end
// of a thread. It owns the clock: time stands still while a thread can run and
// then jumps to the next timed wait; the Chooser may let it jump earlier. One
// execution is decided by its choices alone, so the same choices are the same
// execution again.
//
// What it finds by itself: a deadlock or a lost wake-up (no thread can run, and
// no timed wait ends before the horizon), a livelock (too many steps without
// progress), the use of a lock, atomic or condition variable that was
// destroyed, an unlock by another thread than the owner.
//
// Everything here happens on one thread of the operating system: logical
// threads are ucontext coroutines. Nothing is thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "tests/sim/logical.h"

namespace weir::sim {

// A place where the execution may go on in more than one way.
struct ChoicePoint {
  static constexpr int kClock = -1;  // time goes on to the next timed wait

  // The threads that can run, or values (see Choose). Where `continues`, the
  // first is the thread that runs already, and to choose another preempts it.
  absl::Span<const int> options;
  bool continues = false;
  bool is_value = false;
  // Where it is equal so is the state, but for `running`: it is a digest of
  // what every thread has done to every object, each in the order of causes,
  // and of the time. Who has taken independent steps in another order is in the
  // same state.
  uint64_t state = 0;
  int running = 0;
};

class Chooser {
 public:
  virtual ~Chooser() = default;
  virtual size_t Choose(const ChoicePoint& point) = 0;
};

struct Limits {
  // Steps without Progress, which are a livelock then.
  uint64_t idle_steps = 100'000;
  // No timed wait beyond it is waited for: who relies on it is lost.
  Nanos horizon = 1'000'000'000;
  // Also switch after an unlock, where only a data race could tell.
  bool switch_after_unlock = true;
};

struct Outcome {
  std::string failure;  // empty: none
  uint64_t steps = 0;
  uint64_t choices = 0;  // that the Chooser was asked for
  uint64_t threads = 0;
  bool ok() const { return failure.empty(); }
};

class Scheduler {
 public:
  Scheduler();
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Returns when every thread has ended, or at the first failure: then what the
  // threads hold stays as it is, and so do their stacks.
  Outcome Run(const std::function<void()>& body, Chooser& chooser,
              const Limits& limits = {});

  // Prints every step of the next run.
  void set_trace(bool trace) { trace_ = trace; }

 private:
  friend class Object;
  friend class LogicalMutex;
  friend class LogicalCondVar;
  friend void Touch(Object&, Access);
  friend uint64_t StartThread(const char*, std::function<void()>);
  friend void JoinThread(uint64_t);
  friend uint64_t CurrentThread();
  friend Nanos Now();
  friend void Sleep(Nanos);
  friend void* OwnVariable(const void*);
  friend void SetExploring(bool);
  friend void Quiesce();
  friend int Choose(int);
  friend void Fail(const std::string&);
  friend void Progress();
  friend void AfterEveryStep(std::function<void()>);
  friend void Note(const std::string&);
  friend class Unobserved;

  struct LogicalThread;

  LogicalThread& self();
  int Add(const char* name, std::function<void()> run);
  static void Enter();
  void RunThread();
  // The current thread is about to do something, or cannot go on: whoever is
  // chosen does.
  void Reschedule(const char* what);
  // Null: nobody can go on, which is a failure.
  LogicalThread* PickNext();
  void CollectOptions();
  bool Enabled(const LogicalThread& thread) const;
  bool PassTime();
  void SwitchTo(LogicalThread& next);
  void CheckInvariants();
  [[noreturn]] void GiveUp(const std::string& why);
  std::string DescribeThreads() const;

  void CheckAlive(const Object& object, const char* what);
  static uint64_t& History(Object& object);
  void Record(Object& object, Access access);
  void SetHistory(LogicalThread& thread, uint64_t history);

  struct Native;  // the coroutine of whoever called Run
  std::unique_ptr<Native> native_;
  std::vector<std::unique_ptr<LogicalThread>> threads_;
  std::vector<int> options_;
  Chooser* chooser_ = nullptr;
  Limits limits_;
  Outcome outcome_;
  std::function<void()> invariant_;
  int current_ = -1;
  uint64_t state_ = 0;
  Nanos now_ = 0;
  uint64_t idle_steps_ = 0;
  bool exploring_ = false;
  bool unobserved_ = false;  // operations are looks from outside
  bool inconsistent_ = false;
  bool continues_ = false;
  bool trace_ = false;
  std::vector<char*> stacks_;
};

// -- For the body of a run, and what it calls ---------------------------------

// Choices are made only while exploring, which is off at first: else a thread
// runs until it cannot, and then the next one.
void SetExploring(bool exploring);
// Lets the others run until none can, without waiting for time.
void Quiesce();
// One of 0 ... count - 1, as the Chooser has it; 0 while not exploring.
int Choose(int count);
// Ends the run.
void Fail(const std::string& why);
inline void Check(bool condition, const std::string& why) {
  if (!condition) Fail(why);
}
// Something has come further: no livelock.
void Progress();
// `check` is called after every step from then on, null: no more. Its
// operations are looks, as those below.
void AfterEveryStep(std::function<void()> check);
// While there is one, operations of this thread are no steps but looks at the
// state as it is.
class Unobserved {
 public:
  Unobserved();
  ~Unobserved();
  Unobserved(const Unobserved&) = delete;
  Unobserved& operator=(const Unobserved&) = delete;
  // No lock that was wanted since is held by anybody: what it has seen is
  // whole.
  bool consistent() const;

 private:
  const bool before_;
};
// For the trace.
void Note(const std::string& text);

}  // namespace weir::sim
