// Runs a body, and whatever logical threads it starts, one thread at a time,
// and asks a Chooser which one goes on before every lock, after every unlock,
// before every access of an atomic, before a reference that is not the only one
// is let go of, at every wait, notification, start and end of a thread; or, for
// a search (Sharing), only where that can matter to others. It owns the clock:
// time stands still while a thread can run and then jumps to the next timed
// wait; the Chooser may let it jump earlier. One execution is decided by its
// choices alone, so the same choices are the same execution again.
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

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "tests/sim/logical.h"

namespace weir::sim {

class Sharing;

// What is known of a state before anybody goes there: `causes`, once the chosen
// thread has done what it is about to, and `block`, which decides what it does
// after that, up to the next place where it may be switched away from.
struct Successor {
  uint64_t causes = 0;
  uint64_t block = 0;  // 0: nothing
  Nanos now = 0;
  uint64_t running = 0;  // as ChoicePoint's
};

// A place where the execution may go on in more than one way.
struct ChoicePoint {
  static constexpr int kClock = -1;  // time goes on to the next timed wait

  // The threads that can run, or values (see Choose). Where `continues`, the
  // first is the thread that runs already, and to choose another preempts it.
  absl::Span<const int> options;
  bool continues = false;
  bool is_value = false;
  // So many of the options are threads that await no change; whoever does comes
  // behind them.
  size_t runnable = 0;
  const char* does = nullptr;  // what the running thread comes to
  // Which one it is of the run: the steps before it, and a number among those
  // of one step. The same whether or not there is a Sharing.
  uint64_t step = 0;
  uint32_t of_step = 0;
  // Where it is equal so is the state, but for `running`: it is a digest of
  // what every thread has done to every object, each in the order of causes,
  // and of the time. Who has taken independent steps in another order is in the
  // same state.
  uint64_t state = 0;
  int thread = 0;        // that runs already
  uint64_t running = 0;  // the same, in every execution
  // What each option leads to; for a search alone.
  absl::Span<const Successor> successors;
};

// As ChoicePoint::state.
uint64_t StateOf(uint64_t causes, Nanos now);

// What a thread does to something that threads share, by names that are the
// same in every execution.
struct Deed {
  enum class Kind : uint8_t { kRead, kWrite, kLetGo, kLetGoLast };
  int thread = 0;  // as Sharing numbers them
  uint64_t id = 0;
  uint64_t object = 0;
  Kind kind = Kind::kRead;
};

// What came of a block: it has added to the causes, and its thread comes to its
// next place.
struct Ran {
  uint64_t added = 0;
  uint64_t next = 0;
  friend bool operator==(const Ran&, const Ran&) = default;
};

class Chooser {
 public:
  virtual ~Chooser() = default;
  virtual size_t Choose(const ChoicePoint& point) = 0;
  // For a search: asked at places with one option, too, and told what came of
  // each block.
  virtual void RanBlock(uint64_t block, const Ran& ran);
  // And of threads, and what they do before others learn of it; and what one
  // could have done, which does something else now.
  virtual void Started(int thread, uint64_t id, uint64_t parent);
  virtual void Did(const Deed& deed);
  virtual void CouldHave(const Deed& deed);
  // The run is where one was before; nobody wants to know anything of it.
  virtual bool repeats() const { return false; }
  // And there the running thread went on.
  virtual bool PassesOn();
  // Nothing is to be explored any more in this run.
  virtual bool over() const { return false; }
};

struct Limits {
  // Steps without Progress, which are a livelock then.
  uint64_t idle_steps = 100'000;
  // No timed wait beyond it is waited for: who relies on it is lost.
  Nanos horizon = 1'000'000'000;
};

struct Outcome {
  std::string failure;   // empty: none
  uint64_t steps = 0;    // while exploring
  uint64_t choices = 0;  // that the Chooser was asked for
  uint64_t threads = 0;
  bool ok() const { return failure.empty(); }
};

// Where threads are switched.
enum class Places : uint8_t {
  kAll,
  kShared,  // where it matters, as far as `sharing` knows
};

class Scheduler {
 public:
  Scheduler();
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Returns when every thread has ended, or at the first failure: then what the
  // threads hold stays as it is, and so do their stacks. `sharing` learns from
  // the run; null: nobody does.
  Outcome Run(const std::function<void()>& body, Chooser& chooser,
              const Limits& limits = {}, Sharing* sharing = nullptr,
              Places places = Places::kAll);

  // Prints every step of the next run.
  void set_trace(bool trace) { trace_ = trace; }

 private:
  friend class Object;
  friend class LogicalMutex;
  friend class LogicalCondVar;
  friend void Touch(Object&, Access);
  friend void BeforeDrop(const void*);
  friend bool IsHeld(const void*, int);
  friend uint64_t StartThread(const char*, std::function<void()>);
  friend void JoinThread(uint64_t);
  friend uint64_t CurrentThread();
  friend uint64_t ThreadNumber();
  friend Nanos Now();
  friend void Sleep(Nanos);
  friend void AwaitChange(Nanos);
  friend void* OwnVariable(const void*);
  friend void SetExploring(bool);
  friend void Quiesce();
  friend int Choose(int);
  friend void Fail(const std::string&);
  friend void Progress();
  friend void AfterEveryStep(std::function<void()>);
  friend void Note(const std::string&);
  friend class Unobserved;

  struct Coroutine;
  struct LogicalThread;
  struct Pending;

  LogicalThread& self();
  LogicalThread& thread(int index);
  int Add(const char* name, std::function<void()> run);
  static void Enter();
  void RunThread();

  // -- Steps.

  // The current thread is about to do something that others see: another one
  // may go on before it.
  void Step(const char* what, const Pending& pending);
  void StepOn(Object& object, Access access, const char* what);
  // It cannot go on, or has come to a place where it may be switched away from:
  // whoever is chosen does.
  void Reschedule(const char* what);
  void CountStep(const char* what);
  void CheckInvariants();

  // -- Who goes on.

  // Null: nobody can go on, which is a failure.
  LogicalThread* PickNext();
  void CollectOptions();
  bool Enabled(const LogicalThread& thread) const;
  Nanos NextTime(bool early) const;
  void WakeWhoAwaits();
  void SwitchTo(LogicalThread& next);
  static void Jump(Coroutine& to);
  size_t Ask(bool is_value, uint32_t of_step);
  void CollectSuccessors(Nanos time);

  // -- Causes.

  void Recognize(Object& object);
  // What it adds to the history of who comes to it.
  uint64_t HistoryOf(Object& object, Access access);
  void Remember(Object& object, Access access, uint64_t history);
  void NoteDrop(const int* counts, uint64_t history);
  // What the thread's history is once it has done what it is about to do.
  uint64_t HistoryAfter(const LogicalThread& thread);
  // It does so.
  void GoOn(LogicalThread& thread);
  void Record(Object& object, Access access);
  void Do(const LogicalThread& thread, uint64_t object, Deed::Kind kind);
  void CouldHaveWoken(const LogicalThread& thread);
  void DoTo(const LogicalThread& thread, Object& object, Access access);
  // Who awaits a change knows from here on what there is.
  void Notice(LogicalThread& thread, Object& object, Access access);
  void Watch(LogicalThread& thread);
  void LookAt(Object& object);  // in an Unobserved
  void LookAtClock(const LogicalThread& thread, bool wakes);
  void PassTime(Nanos time);
  void SetHistory(LogicalThread& thread, uint64_t history);
  static uint64_t NextOf(const LogicalThread& thread);
  void BeginBlock(uint64_t history);
  void EndBlock();

  [[noreturn]] void GiveUp(const std::string& why);
  std::string DescribeThreads() const;
  void CheckAlive(const Object& object, const char* what);

  struct Native;  // the coroutine of whoever called Run
  std::unique_ptr<Native> native_;
  std::vector<std::unique_ptr<LogicalThread>> threads_;
  size_t living_ = 0;  // of them
  std::vector<int> options_;
  size_t runnable_ = 0;  // of them
  std::vector<int> awaiting_;
  std::vector<Successor> successors_;
  Chooser* chooser_ = nullptr;
  Sharing* sharing_ = nullptr;
  Places places_ = Places::kAll;
  Limits limits_;
  Outcome outcome_;
  std::function<void()> invariant_;
  int current_ = -1;
  uint64_t causes_ = 0;
  Nanos now_ = 0;
  Trail clock_;
  uint64_t block_ = 0;         // that runs; 0: none
  uint64_t block_causes_ = 0;  // where it began
  uint64_t idle_steps_ = 0;
  bool exploring_ = false;
  bool over_ = false;        // nothing is explored any more
  bool unobserved_ = false;  // operations are looks from outside
  bool checks_ = false;      // and are an invariant's
  bool inconsistent_ = false;
  bool continues_ = false;
  bool trace_ = false;
  // Where those are counted who hold something that had several holders, with
  // the histories of those who have let go.
  absl::flat_hash_map<const void*, uint64_t> held_together_;
  std::vector<std::unique_ptr<Coroutine>> idle_;
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
