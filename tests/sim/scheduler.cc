#include "tests/sim/scheduler.h"

#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/sim/heap.h"
#include "tests/sim/sharing.h"

namespace weir::sim {
namespace {

constexpr size_t kStackBytes = size_t{256} << 10;
constexpr size_t kGuardBytes = 4096;
// While nothing is explored, and changes are not noticed.
constexpr Nanos kLookAgain = 10'000;

// What a thread has seen or done, beside the histories of objects.
enum Seen : uint64_t {
  kGoesOn = 1,
  kIsLast,
  kIsNotLast,
  kIsHeld,
  kIsNotHeld,
  kNobodyNotified,
  kDestroys,
};

// Names of objects that are none.
constexpr uint64_t kClockName = 1;
constexpr uint64_t kVisibleName = 2;

Scheduler* running = nullptr;
uint64_t runs = 0;

struct alignas(8) OwnBytes {
  unsigned char bytes[8] = {};
};

uint64_t Mix(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9e3779b97f4a7c15 + b;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

char* NewStack() {
  void* const stack =
      mmap(nullptr, kStackBytes + kGuardBytes, PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stack == MAP_FAILED || mprotect(stack, kGuardBytes, PROT_NONE) != 0) {
    std::perror("a stack for a logical thread");
    std::abort();
  }
  return static_cast<char*>(stack) + kGuardBytes;
}

// libstdc++ counts those that hold an object, and those that do so weakly, in
// two words behind the pointer to the virtual functions of what counts: that
// pointer says what is held.
using Counts = int[2];
bool IsUnique(const int* counts) { return counts[0] == 1 && counts[1] == 1; }
const void* PlaceOf(const int* counts) {
  return *reinterpret_cast<const void* const*>(
      reinterpret_cast<const char*>(counts) - sizeof(void*));
}

}  // namespace

uint64_t StateOf(uint64_t causes, Nanos now) {
  return Mix(causes, static_cast<uint64_t>(now));
}

void Chooser::RanBlock(uint64_t, const Ran&) {}
void Chooser::Started(int, uint64_t, uint64_t) {}
void Chooser::Did(const Deed&) {}
void Chooser::CouldHave(const Deed&) {}
bool Chooser::PassesOn() { return false; }

struct Scheduler::Native {
  ucontext_t context;
};

// Runs one logical thread after the other, run after run. Jumps are quicker
// than contexts, which ask something of the kernel: those only begin it.
struct Scheduler::Coroutine {
  ucontext_t start;
  jmp_buf place;  // once it has started
  bool started = false;
  char* stack = nullptr;
};

// What a thread that can run does next.
struct Scheduler::Pending {
  enum class Kind : uint8_t { kNothing, kTouch, kDrop, kLook };
  Kind kind = Kind::kNothing;
  Access access = Access::kRead;
  Object* object = nullptr;
  const int* counts = nullptr;
  int known = 0;
};

struct Scheduler::LogicalThread {
  enum class State : uint8_t {
    kRunnable,
    kLocks,   // wants `mutex`
    kWaits,   // for `notified` or `wake_at`, and then wants `mutex`
    kSleeps,  // until `wake_at`
    kAwaits,  // something that is in `watched`, or `wake_at`
    kJoins,   // `joined`
    kQuiets,  // until no other can run
    kEnded,
  };

  int index = 0;
  const char* name = nullptr;
  const char* does = "starts";
  std::function<void()> run;
  State state = State::kRunnable;
  Pending pending;
  LogicalMutex* mutex = nullptr;
  LogicalCondVar* condition = nullptr;
  bool notified = false;
  uint64_t notified_by = 0;  // whoever did, by its history
  Nanos wake_at = kNever;
  int joined = 0;
  uint64_t id = 0;       // the same in every execution that starts it
  uint64_t history = 0;  // of what it did and saw
  uint64_t children = 0;
  std::map<const void*, OwnBytes> own;
  // What it has looked at since it last awaited a change, and as what.
  std::vector<std::pair<Object*, uint32_t>> looked;
  std::vector<const Object*> watched;
  bool changed = false;

  std::unique_ptr<Coroutine> coroutine;

  int number() const { return index + 1; }  // as Sharing has it
};

Scheduler::Scheduler() : native_(std::make_unique<Native>()) {}

Scheduler::~Scheduler() {
  for (const auto& idle : idle_) {
    munmap(idle->stack - kGuardBytes, kStackBytes + kGuardBytes);
  }
}

// -- Objects ------------------------------------------------------------------

[[gnu::noinline]] Object::Object() {
  trail_.place = __builtin_return_address(0);
  static uint64_t outside = 0;
  if (running == nullptr || running->current_ < 0) {
    name_ = ++outside;
    return;
  }
  Scheduler::LogicalThread& thread = running->self();
  name_ = Mix(thread.id, ++thread.children);
}

Object::~Object() {
  if (running != nullptr && running->exploring_ && running->current_ >= 0) {
    running->Recognize(*this);
    Scheduler::LogicalThread& self = running->self();
    running->DoTo(self, *this, Access::kWrite);
    if (running->places_ == Places::kAll || trail_.shared) {
      running->SetHistory(self, Mix(self.history, name_ ^ kDestroys));
    }
  }
  // Not left out as a dead store: who comes later looks.
  *const_cast<volatile uint64_t*>(&alive_) = 0;
}

void Scheduler::CheckAlive(const Object& object, const char* what) {
  if (object.alive_ == Object::kAlive) return;
  GiveUp(absl::StrCat(what, " something that was destroyed"));
}

void Scheduler::Recognize(Object& object) {
  if (object.run_ == runs) return;
  object.run_ = runs;
  object.history_ = object.name_;
  object.reads_ = 0;
  object.changes_ = 0;
  const void* const place = object.trail_.place;
  object.trail_ = Trail();
  object.trail_.place = place;
  if (sharing_ != nullptr) sharing_->Recognize(object.trail_);
}

void Scheduler::SetHistory(LogicalThread& thread, uint64_t history) {
  causes_ ^= Mix(thread.id, thread.history);
  thread.history = history;
  causes_ ^= Mix(thread.id, thread.history);
}

void Scheduler::Notice(LogicalThread& thread, Object& object, Access access) {
  const OutsideHeap mine;
  if (access == Access::kWrite) {
    ++object.changes_;
    for (const auto& other : threads_) {
      if (other->state == LogicalThread::State::kAwaits && !other->changed) {
        other->changed = std::find(other->watched.begin(), other->watched.end(),
                                   &object) != other->watched.end();
      }
    }
  }
  thread.looked.emplace_back(&object, object.changes_);
}

// What it has looked at; it knows each as it was the last time.
void Scheduler::Watch(LogicalThread& thread) {
  const OutsideHeap mine;
  std::vector<const Object*>& watched = thread.watched;
  for (auto i = thread.looked.rbegin(); i != thread.looked.rend(); ++i) {
    const auto& [object, changes] = *i;
    if (std::find(watched.begin(), watched.end(), object) == watched.end()) {
      watched.push_back(object);
      thread.changed |= object->changes_ != changes;
    }
  }
}

void Scheduler::Do(const LogicalThread& thread, uint64_t object,
                   Deed::Kind kind) {
  if (places_ != Places::kShared) return;
  const OutsideHeap mine;
  chooser_->Did({thread.number(), thread.id, object, kind});
}

// Its time has come, and it is notified before it goes on.
void Scheduler::CouldHaveWoken(const LogicalThread& thread) {
  if (!exploring_ || places_ != Places::kShared) return;
  const OutsideHeap mine;
  for (Object* const object : {static_cast<Object*>(thread.condition),
                               static_cast<Object*>(thread.mutex)}) {
    if (!object->trail_.shared) continue;
    chooser_->CouldHave(
        {thread.number(), thread.id, object->name_, Deed::Kind::kWrite});
  }
}

void Scheduler::DoTo(const LogicalThread& thread, Object& object,
                     Access access) {
  if (sharing_ == nullptr) return;
  if (object.trail_.shared) {
    const bool writes = access == Access::kWrite;
    Do(thread, object.name_, writes ? Deed::Kind::kWrite : Deed::Kind::kRead);
    if (writes && object.trail_.visible) {
      Do(thread, kVisibleName, Deed::Kind::kWrite);
    }
  }
  sharing_->Touch(thread.number(), object.trail_, access);
}

void Scheduler::LookAt(Object& object) {
  if (!exploring_ || sharing_ == nullptr) return;
  Recognize(object);
  if (checks_) {
    sharing_->MakeVisible(object.trail_);
  } else {
    DoTo(self(), object, Access::kRead);
  }
}

// `wakes`: it goes on because its time has come, be it past by now.
void Scheduler::LookAtClock(const LogicalThread& thread, bool wakes) {
  if (sharing_ == nullptr) return;
  if (wakes) sharing_->Wake(thread.number(), thread.wake_at);
  Do(thread, kClockName, Deed::Kind::kRead);
  sharing_->Touch(thread.number(), clock_, Access::kRead);
}

void Scheduler::PassTime(Nanos time) {
  const bool could_come_early = time == NextTime(/*early=*/true);
  now_ = time;
  if (!exploring_ || sharing_ == nullptr) return;
  if (places_ == Places::kShared) {
    chooser_->Did({Sharing::kClock, 0, kClockName, Deed::Kind::kWrite});
  }
  sharing_->PassTime(time, clock_);
  if (could_come_early) return;
  // Whatever comes next has waited until nobody could go on.
  sharing_->MeetAll();
  const uint64_t all = causes_;
  for (const auto& thread : threads_) {
    SetHistory(*thread, Mix(thread->history, all));
  }
}

// What is read is what was written, in whatever order it is read; who writes
// comes after all that have read before.
uint64_t Scheduler::HistoryOf(Object& object, Access access) {
  if (object.alive_ != Object::kAlive) return 0;
  Recognize(object);
  return access == Access::kWrite && object.reads_ != 0
             ? Mix(object.history_, object.reads_)
             : object.history_;
}

void Scheduler::Remember(Object& object, Access access, uint64_t history) {
  if (access == Access::kWrite) {
    object.history_ = history;
    object.reads_ = 0;
  } else {
    object.reads_ ^= Mix(history, object.name_);
  }
}

// A lock that is left is taken by others, who come after who took it.
void Scheduler::Record(Object& object, Access access) {
  if (!exploring_) return;
  LogicalThread& thread = self();
  Recognize(object);
  Notice(thread, object, access);
  if (sharing_ != nullptr) {
    sharing_->Touch(thread.number(), object.trail_, access);
  }
  // Otherwise it follows from the histories of what is shared.
  if (places_ == Places::kShared && !object.trail_.shared) return;
  const uint64_t after = Mix(thread.history, HistoryOf(object, access));
  Remember(object, access, after);
  SetHistory(thread, after);
}

// That it goes on is a step, also where it touches nothing.
uint64_t Scheduler::HistoryAfter(const LogicalThread& thread) {
  uint64_t history = Mix(thread.history, kGoesOn);
  using State = LogicalThread::State;
  switch (thread.state) {
    case State::kRunnable: {
      const Pending& next = thread.pending;
      switch (next.kind) {
        case Pending::Kind::kNothing:
          return history;
        case Pending::Kind::kTouch:
          return Mix(history, HistoryOf(*next.object, next.access));
        case Pending::Kind::kDrop:
          // The last one comes after all others.
          return *next.counts == 1
                     ? Mix(Mix(history, kIsLast), held_together_[next.counts])
                     : Mix(history, kIsNotLast);
        case Pending::Kind::kLook:
          return Mix(history, *next.counts > next.known ? kIsHeld : kIsNotHeld);
      }
      return history;
    }
    case State::kLocks:
      return Mix(history, HistoryOf(*thread.mutex, Access::kWrite));
    case State::kWaits:
      if (thread.notified) {
        history = Mix(history, thread.notified_by);
      } else {
        history = Mix(history, HistoryOf(*thread.condition, Access::kWrite));
        history = Mix(history, kNobodyNotified);
      }
      return Mix(history, HistoryOf(*thread.mutex, Access::kWrite));
    case State::kJoins:
      return Mix(history, this->thread(thread.joined).history);
    case State::kSleeps:
    case State::kAwaits:
    case State::kQuiets:
    case State::kEnded:
      return history;
  }
  return history;
}

void Scheduler::NoteDrop(const int* counts, uint64_t history) {
  const OutsideHeap mine;
  held_together_[counts] ^= history;
}

void Scheduler::GoOn(LogicalThread& thread) {
  if (!exploring_) return;
  const uint64_t after = HistoryAfter(thread);
  const auto touch = [&](Object& object, Access access) {
    if (object.alive_ != Object::kAlive) return;
    Remember(object, access, after);
    Notice(thread, object, access);
    DoTo(thread, object, access);
  };
  const auto touch_counts = [&](const Pending& next) {
    if (next.kind == Pending::Kind::kDrop) NoteDrop(next.counts, after);
    if (sharing_ == nullptr) return;
    const void* const place = PlaceOf(next.counts);
    const bool looks = next.kind == Pending::Kind::kLook;
    const bool last = *next.counts == 1;
    if (sharing_->IsShared(place)) {
      Do(thread, reinterpret_cast<uintptr_t>(place),
         looks  ? Deed::Kind::kRead
         : last ? Deed::Kind::kLetGoLast
                : Deed::Kind::kLetGo);
    }
    if (looks) {
      sharing_->Look(thread.number(), next.counts, place);
    } else {
      sharing_->Drop(thread.number(), next.counts, place, last);
    }
  };
  using State = LogicalThread::State;
  switch (thread.state) {
    case State::kRunnable: {
      const Pending& next = thread.pending;
      if (next.kind == Pending::Kind::kTouch) {
        touch(*next.object, next.access);
      } else if (next.kind != Pending::Kind::kNothing) {
        touch_counts(next);
      }
      break;
    }
    case State::kLocks:
      touch(*thread.mutex, Access::kWrite);
      break;
    case State::kWaits:
      if (!thread.notified) {
        LookAtClock(thread, /*wakes=*/true);
        touch(*thread.condition, Access::kWrite);
      }
      touch(*thread.mutex, Access::kWrite);
      break;
    case State::kJoins:
      if (sharing_ != nullptr) {
        sharing_->Follow(thread.number(), this->thread(thread.joined).number());
      }
      break;
    case State::kSleeps:
      LookAtClock(thread, /*wakes=*/true);
      break;
    case State::kAwaits:
      if (!thread.changed) LookAtClock(thread, /*wakes=*/true);
      break;
    case State::kQuiets:
    case State::kEnded:
      break;
  }
  SetHistory(thread, after);
  BeginBlock(after);
}

// What it is about to do.
uint64_t Scheduler::NextOf(const LogicalThread& thread) {
  uint64_t next = static_cast<uint64_t>(thread.state);
  if (thread.state == LogicalThread::State::kLocks) {
    return Mix(next, thread.mutex->name_);
  }
  const Pending& pending = thread.pending;
  next = Mix(next, static_cast<uint64_t>(pending.kind));
  if (pending.object == nullptr) return next;
  return Mix(Mix(next, pending.object->name_),
             static_cast<uint64_t>(pending.access));
}

void Scheduler::BeginBlock(uint64_t history) {
  block_ = Mix(history, static_cast<uint64_t>(now_));
  block_causes_ = causes_;
}

void Scheduler::EndBlock() {
  if (block_ == 0) return;
  chooser_->RanBlock(block_, {causes_ ^ block_causes_, NextOf(self())});
  block_ = 0;
}

// -- Threads ------------------------------------------------------------------

Scheduler::LogicalThread& Scheduler::thread(int index) {
  return *threads_[static_cast<size_t>(index)];
}

Scheduler::LogicalThread& Scheduler::self() { return thread(current_); }

int Scheduler::Add(const char* name, std::function<void()> run) {
  const OutsideHeap mine;
  auto thread = std::make_unique<LogicalThread>();
  const int index = static_cast<int>(threads_.size());
  thread->index = index;
  thread->name = name;
  thread->run = std::move(run);
  if (current_ >= 0) {
    LogicalThread& parent = self();
    thread->id = Mix(parent.id, ++parent.children);
    thread->history = Mix(parent.history, thread->id);
  } else {
    thread->id = 1;
  }
  if (sharing_ != nullptr) sharing_->Start(thread->number(), current_ + 1);
  chooser_->Started(thread->number(), thread->id, current_ < 0 ? 0 : self().id);
  causes_ ^= Mix(thread->id, thread->history);
  if (idle_.empty()) {
    thread->coroutine = std::make_unique<Coroutine>();
    Coroutine& coroutine = *thread->coroutine;
    coroutine.stack = NewStack();
    getcontext(&coroutine.start);
    coroutine.start.uc_stack.ss_sp = coroutine.stack;
    coroutine.start.uc_stack.ss_size = kStackBytes;
    coroutine.start.uc_link = nullptr;
    makecontext(&coroutine.start, &Scheduler::Enter, 0);
  } else {
    thread->coroutine = std::move(idle_.back());
    idle_.pop_back();
  }
  threads_.push_back(std::move(thread));
  ++living_;
  ++outcome_.threads;
  return index;
}

void Scheduler::Enter() {
  for (;;) running->RunThread();
}

void Scheduler::RunThread() {
  self().run();
  self().run = nullptr;
  LogicalThread& ended = self();
  ended.state = LogicalThread::State::kEnded;
  CountStep("has ended");
  if (--living_ > 0) return SwitchTo(*PickNext());
  current_ = -1;
  if (_setjmp(ended.coroutine->place) == 0) setcontext(&native_->context);
}

void Scheduler::Jump(Coroutine& to) {
  if (to.started) _longjmp(to.place, 1);
  to.started = true;
  setcontext(&to.start);
}

void Scheduler::SwitchTo(LogicalThread& next) {
  LogicalThread& from = self();
  current_ = next.index;
  if (&from == &next || _setjmp(from.coroutine->place) != 0) return;
  Jump(*next.coroutine);
}

void Scheduler::GiveUp(const std::string& why) {
  if (current_ < 0) {
    std::fprintf(stderr, "outside any thread: %s\n", why.c_str());
    std::abort();
  }
  outcome_.failure =
      absl::StrCat(self().name, ": ", why, "\nafter ", outcome_.steps,
                   " steps, at ", now_, " ns:\n", DescribeThreads());
  current_ = -1;
  setcontext(&native_->context);
  std::abort();
}

std::string Scheduler::DescribeThreads() const {
  std::string text;
  for (const auto& thread : threads_) {
    using State = LogicalThread::State;
    absl::StrAppend(&text, thread->index == current_ ? " *" : "  ", "[",
                    thread->index, "] ", thread->name, ": ", thread->does);
    if (thread->state == State::kLocks || thread->state == State::kWaits) {
      const int owner = thread->mutex->owner_;
      if (owner >= 0) {
        absl::StrAppend(&text, ", whose lock [", owner, "] has");
      }
    }
    if (thread->wake_at != kNever && thread->state != State::kEnded) {
      absl::StrAppend(&text, ", until ", thread->wake_at, " ns");
    }
    absl::StrAppend(&text, "\n");
  }
  return text;
}

Outcome Scheduler::Run(const std::function<void()>& body, Chooser& chooser,
                       const Limits& limits, Sharing* sharing, Places places) {
  running = this;
  ++runs;
  chooser_ = &chooser;
  sharing_ = sharing;
  places_ = places;
  limits_ = limits;
  outcome_ = Outcome();
  invariant_ = nullptr;
  current_ = -1;
  causes_ = 0;
  block_ = 0;
  living_ = 0;
  held_together_.clear();
  now_ = 1'000'000;  // zero is often "never"
  limits_.horizon += now_;
  idle_steps_ = 0;
  exploring_ = over_ = unobserved_ = checks_ = inconsistent_ = continues_ =
      false;
  clock_ = Trail();
  clock_.shared = true;
  if (sharing_ != nullptr) sharing_->Begin();
  LogicalThread& first = thread(Add("the test", body));
  current_ = 0;
  volatile bool entered = false;
  getcontext(&native_->context);
  if (!entered) {
    entered = true;
    Jump(*first.coroutine);
  }
  const OutsideHeap mine;
  // After a failure others may still refer to what lies on the stacks.
  for (auto& thread : threads_) {
    if (outcome_.ok()) {
      idle_.push_back(std::move(thread->coroutine));
    } else {
      thread.release();
    }
  }
  threads_.clear();
  invariant_ = nullptr;
  running = nullptr;
  return outcome_;
}

// -- Choices ------------------------------------------------------------------

bool Scheduler::Enabled(const LogicalThread& thread) const {
  using State = LogicalThread::State;
  switch (thread.state) {
    case State::kRunnable:
      return true;
    case State::kLocks:
      return thread.mutex->owner_ == LogicalMutex::kFree;
    case State::kWaits:
      return (thread.notified || thread.wake_at <= now_) &&
             thread.mutex->owner_ == LogicalMutex::kFree;
    case State::kSleeps:
      return thread.wake_at <= now_;
    case State::kAwaits:
      return thread.changed || thread.wake_at <= now_;
    case State::kJoins:
      return threads_[static_cast<size_t>(thread.joined)]->state ==
             State::kEnded;
    case State::kQuiets:
    case State::kEnded:
      return false;
  }
  return false;
}

// The current thread first, then the others in turn, and at last those that
// await changes.
void Scheduler::CollectOptions() {
  options_.clear();
  awaiting_.clear();
  const auto count = static_cast<int>(threads_.size());
  const auto collect = [this](int from, int to) {
    for (int i = from; i < to; ++i) {
      const LogicalThread& one = thread(i);
      if (!Enabled(one)) continue;
      const bool awaits = one.state == LogicalThread::State::kAwaits;
      (awaits ? awaiting_ : options_).push_back(i);
    }
  };
  collect(current_, count);
  collect(0, current_);
  continues_ = !options_.empty() && options_.front() == current_;
  runnable_ = options_.size();
  options_.insert(options_.end(), awaiting_.begin(), awaiting_.end());
  if (!options_.empty()) return;
  for (int i = 0; i < count; ++i) {
    if (thread(i).state == LogicalThread::State::kQuiets) {
      options_.push_back(i);
      return;
    }
  }
}

// Of the timed waits; kNever if there is none before the horizon. Time need not
// be early for who awaits a change: it would find none.
Nanos Scheduler::NextTime(bool early) const {
  Nanos next = kNever;
  for (const auto& thread : threads_) {
    if (thread->wake_at > now_ && thread->wake_at < next &&
        thread->state != LogicalThread::State::kEnded &&
        !(early && thread->state == LogicalThread::State::kAwaits)) {
      next = thread->wake_at;
    }
  }
  return next > limits_.horizon ? kNever : next;
}

void Scheduler::CollectSuccessors(Nanos time) {
  successors_.clear();
  for (const int option : options_) {
    if (option == ChoicePoint::kClock) {
      successors_.push_back({causes_, 0, time, self().id});
      continue;
    }
    const LogicalThread& next = thread(option);
    const uint64_t after = HistoryAfter(next);
    successors_.push_back(
        {causes_ ^ Mix(next.id, next.history) ^ Mix(next.id, after),
         Mix(after, static_cast<uint64_t>(now_)), now_, next.id});
  }
}

size_t Scheduler::Ask(bool is_value, uint32_t of_step) {
  ChoicePoint point;
  point.options = options_;
  point.continues = continues_ && !is_value;
  point.runnable = is_value ? options_.size() : runnable_;
  point.is_value = is_value;
  point.does = self().does;
  point.step = outcome_.steps;
  point.of_step = of_step;
  point.state = StateOf(causes_, now_);
  point.thread = current_;
  point.running = self().id;
  point.successors = successors_;
  if (options_.size() > 1) ++outcome_.choices;
  const size_t chosen = chooser_->Choose(point);
  if (chooser_->over()) {
    over_ = true;
    exploring_ = false;
    WakeWhoAwaits();
  }
  return chosen;
}

// Changes are not noticed any more.
void Scheduler::WakeWhoAwaits() {
  for (const auto& thread : threads_) thread->changed = true;
}

Scheduler::LogicalThread* Scheduler::PickNext() {
  const OutsideHeap mine;
  if (exploring_) {
    EndBlock();
    if (places_ == Places::kShared && chooser_->PassesOn()) {
      GoOn(self());
      return &self();
    }
  }
  // Who had to wait for time does not simply go on.
  bool waited = false;
  for (uint32_t of_step = 0;; ++of_step) {
    CollectOptions();
    continues_ &= !waited;
    waited = !continues_;
    if (options_.empty()) {
      const Nanos next = NextTime(/*early=*/false);
      if (next == kNever) {
        GiveUp("no thread can go on: a deadlock, or a lost wake-up");
      }
      PassTime(next);
      continue;
    }
    size_t chosen = 0;
    if (exploring_) {
      const Nanos time = NextTime(/*early=*/true);
      if (time != kNever) options_.push_back(ChoicePoint::kClock);
      const bool searches = places_ == Places::kShared;
      if (searches && !chooser_->repeats()) CollectSuccessors(time);
      if (searches || options_.size() > 1) {
        chosen = Ask(/*is_value=*/false, of_step);
      }
      if (options_[chosen] == ChoicePoint::kClock) {
        PassTime(time);
        continue;
      }
    }
    LogicalThread& next = thread(options_[chosen]);
    GoOn(next);
    return &next;
  }
}

// -- Steps --------------------------------------------------------------------

void Scheduler::CountStep(const char* what) {
  self().does = what;
  if (exploring_) ++outcome_.steps;
  if (++idle_steps_ > limits_.idle_steps) {
    GiveUp(absl::StrCat("a livelock: ", idle_steps_,
                        " steps without any progress"));
  }
  CheckInvariants();
}

void Scheduler::Reschedule(const char* what) {
  LogicalThread& thread = self();
  CountStep(what);
  LogicalThread* const next = PickNext();
  if (trace_ && next != &thread) {
    std::fprintf(stderr, "%10lld ns  [%d] %s %s\n",
                 static_cast<long long>(now_), next->index, next->name,
                 next->does);
  }
  SwitchTo(*next);
}

void Scheduler::Step(const char* what, const Pending& pending) {
  LogicalThread& thread = self();
  thread.pending = pending;
  Reschedule(what);
  thread.pending = Pending();
}

void Scheduler::StepOn(Object& object, Access access, const char* what) {
  CheckAlive(object, what);
  if (exploring_) Recognize(object);
  if (exploring_ && (places_ == Places::kAll || object.trail_.shared)) {
    Pending pending;
    pending.kind = Pending::Kind::kTouch;
    pending.access = access;
    pending.object = &object;
    Step(what, pending);
    CheckAlive(object, what);
  } else {
    CountStep(what);
    Record(object, access);
  }
}

void Scheduler::CheckInvariants() {
  if (invariant_ == nullptr || !exploring_ || chooser_->repeats()) return;
  unobserved_ = checks_ = true;
  inconsistent_ = false;
  invariant_();
  unobserved_ = checks_ = false;
}

// -- What threads do ----------------------------------------------------------

void Touch(Object& object, Access access) {
  if (running == nullptr) return;
  if (running->unobserved_) return running->LookAt(object);
  running->StepOn(
      object, access,
      access == Access::kRead ? "reads an atomic" : "writes an atomic");
}

void BeforeDrop(const void* count) {
  if (running == nullptr || !running->exploring_ || running->unobserved_ ||
      running->current_ < 0) {
    return;
  }
  // The count of those that hold it weakly.
  if (reinterpret_cast<uintptr_t>(count) % sizeof(Counts) != 0) return;
  const auto* const counts = static_cast<const int*>(count);
  Sharing* const sharing = running->sharing_;
  {
    // What only ever had one holder is nobody else's matter. Else it is a step
    // in every order, for the last one as well.
    const OutsideHeap mine;
    if (IsUnique(counts) && !running->held_together_.contains(count)) return;
    running->held_together_.try_emplace(count);
  }
  if (running->places_ == Places::kAll || sharing->IsShared(PlaceOf(counts))) {
    Scheduler::Pending pending;
    pending.kind = Scheduler::Pending::Kind::kDrop;
    pending.counts = counts;
    running->Step("lets go of a reference", pending);
  } else {
    running->CountStep("lets go of a reference");
    sharing->Drop(running->self().number(), count, PlaceOf(counts),
                  *counts == 1);
    Scheduler::LogicalThread& self = running->self();
    if (*counts == 1) {
      running->SetHistory(self,
                          Mix(self.history, running->held_together_[count]));
    } else {
      running->NoteDrop(counts, self.history);
    }
  }
}

bool IsHeld(const void* count, int known) {
  const auto* const counts = static_cast<const int*>(count);
  if (running != nullptr && running->exploring_ && !running->unobserved_) {
    if (running->places_ == Places::kAll ||
        running->sharing_->IsShared(PlaceOf(counts))) {
      Scheduler::Pending pending;
      pending.kind = Scheduler::Pending::Kind::kLook;
      pending.counts = counts;
      pending.known = known;
      running->Step("looks who holds it", pending);
    } else {
      running->CountStep("looks who holds it");
      running->sharing_->Look(running->self().number(), count, PlaceOf(counts));
    }
  }
  return *counts > known;
}

LogicalMutex::~LogicalMutex() {
  if (running != nullptr && owner_ != kFree && running->current_ >= 0) {
    running->GiveUp("destroys a mutex that is locked");
  }
}

void LogicalMutex::Lock() {
  if (running == nullptr) return;
  if (running->unobserved_) {
    if (owner_ != kFree) running->inconsistent_ = true;
    return running->LookAt(*this);
  }
  running->CheckAlive(*this, "locks");
  Scheduler::LogicalThread& self = running->self();
  if (owner_ == self.index) running->GiveUp("locks what it has locked");
  bool asks = owner_ != kFree;
  if (running->exploring_) {
    running->Recognize(*this);
    asks |= running->places_ == Places::kAll || trail_.shared;
  }
  if (asks) {
    self.state = Scheduler::LogicalThread::State::kLocks;
    self.mutex = this;
    running->Reschedule("locks");
    running->CheckAlive(*this, "locks");
    self.state = Scheduler::LogicalThread::State::kRunnable;
    owner_ = self.index;
  } else {
    running->CountStep("locks");
    owner_ = self.index;
    running->Record(*this, Access::kWrite);
  }
}

void LogicalMutex::Unlock() {
  if (running == nullptr || running->unobserved_) return;
  running->CheckAlive(*this, "unlocks");
  if (owner_ != running->current_) {
    running->GiveUp("unlocks what it has not locked");
  }
  running->Record(*this, Access::kWrite);
  owner_ = kFree;
  // From here on it may be destroyed. Only a data race could tell whether
  // another thread comes now, or before the next step.
  if (running->exploring_ && running->places_ == Places::kAll) {
    running->Reschedule("has unlocked");
  } else {
    running->CountStep("has unlocked");
  }
}

bool LogicalCondVar::Wait(LogicalMutex& mutex, Nanos deadline) {
  if (running == nullptr || running->unobserved_) return false;
  Scheduler::LogicalThread& self = running->self();
  if (mutex.owner_ != self.index) running->GiveUp("waits without the lock");
  // Who notifies without the lock may come before.
  running->StepOn(*this, Access::kWrite, "begins to wait");
  running->Record(mutex, Access::kWrite);
  mutex.owner_ = LogicalMutex::kFree;
  self.mutex = &mutex;
  self.condition = this;
  self.notified = false;
  self.wake_at = deadline;
  self.state = Scheduler::LogicalThread::State::kWaits;
  running->Reschedule("waits");
  running->CheckAlive(*this, "waits for");
  running->CheckAlive(mutex, "waits with");
  self.state = Scheduler::LogicalThread::State::kRunnable;
  self.condition = nullptr;
  self.wake_at = kNever;
  mutex.owner_ = self.index;
  return self.notified || running->now_ < deadline;
}

void LogicalCondVar::Notify(bool all) {
  if (running == nullptr || running->unobserved_) return;
  running->StepOn(*this, Access::kWrite, "notifies");
  std::vector<Scheduler::LogicalThread*> waiting;
  for (const auto& thread : running->threads_) {
    if (thread->condition == this && !thread->notified) {
      waiting.push_back(thread.get());
    }
  }
  if (waiting.empty()) return;
  if (!all) {
    // Not in the order in which they were started, which may be another one in
    // an execution that is the same for the rest.
    std::sort(waiting.begin(), waiting.end(),
              [](const auto* a, const auto* b) { return a->id < b->id; });
    waiting = {
        waiting[static_cast<size_t>(Choose(static_cast<int>(waiting.size())))]};
  }
  for (Scheduler::LogicalThread* thread : waiting) {
    if (thread->wake_at <= running->now_) running->CouldHaveWoken(*thread);
    thread->notified = true;
    thread->notified_by = running->self().history;
    if (running->sharing_ != nullptr) {
      running->sharing_->Follow(thread->number(), running->self().number());
    }
  }
}

uint64_t StartThread(const char* name, std::function<void()> run) {
  if (running == nullptr) {
    std::fprintf(stderr, "thread %s was started outside a simulation\n", name);
    std::abort();
  }
  const int index = running->Add(name, std::move(run));
  if (running->exploring_ && running->places_ == Places::kAll) {
    running->Reschedule("starts a thread");
  } else {
    running->CountStep("starts a thread");
  }
  return static_cast<uint64_t>(index) + 1;
}

void JoinThread(uint64_t thread) {
  Scheduler::LogicalThread& self = running->self();
  self.joined = static_cast<int>(thread) - 1;
  self.state = Scheduler::LogicalThread::State::kJoins;
  running->Reschedule("joins a thread");
  self.state = Scheduler::LogicalThread::State::kRunnable;
}

uint64_t CurrentThread() {
  if (running == nullptr) return ~uint64_t{0};
  return static_cast<uint64_t>(running->current_) + 1;
}

uint64_t ThreadNumber() { return running == nullptr ? 0 : running->self().id; }

Nanos Now() {
  if (running == nullptr) return 1;
  if (!running->unobserved_ && running->exploring_) {
    Scheduler::LogicalThread& self = running->self();
    running->LookAtClock(self, /*wakes=*/false);
    running->SetHistory(
        self, Mix(self.history, static_cast<uint64_t>(running->now_)));
  }
  return running->now_;
}

void Sleep(Nanos time) {
  Scheduler::LogicalThread& self = running->self();
  self.wake_at = running->now_ + std::max<Nanos>(time, 1);
  // Until when is decided by the time, which it has not looked at.
  if (running->exploring_) running->LookAtClock(self, /*wakes=*/false);
  running->SetHistory(self,
                      Mix(self.history, static_cast<uint64_t>(self.wake_at)));
  self.state = Scheduler::LogicalThread::State::kSleeps;
  running->Reschedule("sleeps");
  self.state = Scheduler::LogicalThread::State::kRunnable;
  self.wake_at = kNever;
}

void AwaitChange(Nanos time) {
  if (running == nullptr) return;
  Scheduler::LogicalThread& self = running->self();
  self.changed = false;
  self.watched.clear();
  if (running->exploring_) {
    running->Watch(self);
    if (time != kNever) running->LookAtClock(self, /*wakes=*/false);
  } else {
    time = std::min(time, kLookAgain);
  }
  self.looked.clear();
  self.wake_at =
      time == kNever ? kNever : running->now_ + std::max<Nanos>(time, 1);
  running->SetHistory(self,
                      Mix(self.history, static_cast<uint64_t>(self.wake_at)));
  self.state = Scheduler::LogicalThread::State::kAwaits;
  running->Reschedule("awaits a change");
  self.state = Scheduler::LogicalThread::State::kRunnable;
  self.wake_at = kNever;
}

void* OwnVariable(const void* name) {
  const OutsideHeap mine;
  static std::map<const void*, OwnBytes> outside;
  if (running == nullptr || running->current_ < 0) return &outside[name];
  return &running->self().own[name];
}

void SetExploring(bool exploring) {
  if (running->over_) return;
  running->exploring_ = exploring;
  running->block_ = 0;
  if (!exploring) running->WakeWhoAwaits();
}

void Quiesce() {
  Scheduler::LogicalThread& self = running->self();
  self.state = Scheduler::LogicalThread::State::kQuiets;
  running->Reschedule("lets the others run");
  self.state = Scheduler::LogicalThread::State::kRunnable;
}

int Choose(int count) {
  if (count <= 1 || !running->exploring_) return 0;
  Scheduler::LogicalThread& self = running->self();
  running->CountStep("chooses");
  size_t chosen = 0;
  uint64_t after = 0;
  {
    const OutsideHeap mine;
    running->EndBlock();
    running->options_.clear();
    running->successors_.clear();
    for (int i = 0; i < count; ++i) {
      running->options_.push_back(i);
      const uint64_t with =
          Mix(self.history, static_cast<uint64_t>(i) + 0x63686f69);
      running->successors_.push_back(
          {running->causes_ ^ Mix(self.id, self.history) ^ Mix(self.id, with),
           Mix(with, static_cast<uint64_t>(running->now_)), running->now_,
           self.id});
    }
    chosen = running->Ask(/*is_value=*/true, 0);
  }
  after = Mix(self.history, chosen + 0x63686f69);
  running->SetHistory(self, after);
  running->BeginBlock(after);
  return static_cast<int>(chosen);
}

void Fail(const std::string& why) { running->GiveUp(why); }

void Progress() { running->idle_steps_ = 0; }

void AfterEveryStep(std::function<void()> check) {
  running->invariant_ = std::move(check);
}

Unobserved::Unobserved() : before_(running->unobserved_) {
  running->unobserved_ = true;
  running->inconsistent_ = false;
}
Unobserved::~Unobserved() { running->unobserved_ = before_; }
bool Unobserved::consistent() const { return !running->inconsistent_; }

void Note(const std::string& text) {
  if (running != nullptr && running->trace_) {
    std::fprintf(stderr, "%10s     [%d] %s\n", "", running->current_,
                 text.c_str());
  }
}

}  // namespace weir::sim
