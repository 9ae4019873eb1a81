#include "tests/sim/scheduler.h"

#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/sim/heap.h"

namespace weir::sim {
namespace {

constexpr size_t kStackBytes = size_t{256} << 10;
constexpr size_t kGuardBytes = 4096;
constexpr Nanos kYieldTime = 1000;

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

}  // namespace

struct Scheduler::Native {
  ucontext_t context;
};

struct Scheduler::LogicalThread {
  enum class State : uint8_t {
    kRunnable,
    kLocks,   // wants `mutex`
    kWaits,   // for `notified` or `wake_at`, and then wants `mutex`
    kSleeps,  // until `wake_at`
    kJoins,   // `joined`
    kQuiets,  // until no other can run
    kEnded,
  };

  int index = 0;
  const char* name = nullptr;
  const char* does = "starts";
  std::function<void()> run;
  State state = State::kRunnable;
  LogicalMutex* mutex = nullptr;
  LogicalCondVar* condition = nullptr;
  bool notified = false;
  Nanos wake_at = kNever;
  int joined = 0;
  uint64_t id = 0;       // the same in every execution that starts it
  uint64_t history = 0;  // of what it did and saw
  uint64_t children = 0;
  std::map<const void*, OwnBytes> own;

  ucontext_t context;
  char* stack = nullptr;
};

Scheduler::Scheduler() : native_(std::make_unique<Native>()) {}

Scheduler::~Scheduler() {
  for (char* stack : stacks_) {
    munmap(stack - kGuardBytes, kStackBytes + kGuardBytes);
  }
}

// -- Objects ------------------------------------------------------------------

Object::Object() {
  static uint64_t outside = 0;
  if (running == nullptr || running->current_ < 0) {
    name_ = ++outside;
    return;
  }
  Scheduler::LogicalThread& thread = running->self();
  name_ = Mix(thread.id, ++thread.children);
}

Object::~Object() {
  // Not left out as a dead store: who comes later looks.
  *const_cast<volatile uint64_t*>(&alive_) = 0;
}

void Scheduler::CheckAlive(const Object& object, const char* what) {
  if (object.alive_ == Object::kAlive) return;
  GiveUp(absl::StrCat(what, " something that was destroyed"));
}

uint64_t& Scheduler::History(Object& object) {
  if (object.run_ != runs) {
    object.run_ = runs;
    object.history_ = object.name_;
  }
  return object.history_;
}

void Scheduler::SetHistory(LogicalThread& thread, uint64_t history) {
  state_ ^= Mix(thread.id, thread.history);
  thread.history = history;
  state_ ^= Mix(thread.id, thread.history);
}

// What is read is what was written: who reads changes nothing for others.
void Scheduler::Record(Object& object, Access access) {
  LogicalThread& thread = self();
  uint64_t& history = History(object);
  const uint64_t after = Mix(thread.history, history);
  if (access == Access::kWrite) history = after;
  SetHistory(thread, after);
}

// -- Threads ------------------------------------------------------------------

Scheduler::LogicalThread& Scheduler::self() {
  return *threads_[static_cast<size_t>(current_)];
}

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
  state_ ^= Mix(thread->id, thread->history);
  if (stacks_.empty()) {
    thread->stack = NewStack();
  } else {
    thread->stack = stacks_.back();
    stacks_.pop_back();
  }
  getcontext(&thread->context);
  thread->context.uc_stack.ss_sp = thread->stack;
  thread->context.uc_stack.ss_size = kStackBytes;
  thread->context.uc_link = nullptr;
  makecontext(&thread->context, &Scheduler::Enter, 0);
  threads_.push_back(std::move(thread));
  ++outcome_.threads;
  return index;
}

void Scheduler::Enter() { running->RunThread(); }

void Scheduler::RunThread() {
  self().run();
  self().run = nullptr;
  LogicalThread& ended = self();
  ended.state = LogicalThread::State::kEnded;
  ended.does = "has ended";
  const bool all =
      std::all_of(threads_.begin(), threads_.end(),
                  [](const std::unique_ptr<LogicalThread>& t) {
                    return t->state == LogicalThread::State::kEnded;
                  });
  if (!all) SwitchTo(*PickNext());
  current_ = -1;
  setcontext(&native_->context);
}

void Scheduler::SwitchTo(LogicalThread& next) {
  LogicalThread& from = self();
  current_ = next.index;
  if (&from == &next) return;
  swapcontext(&from.context, &next.context);
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
                       const Limits& limits) {
  running = this;
  ++runs;
  chooser_ = &chooser;
  limits_ = limits;
  outcome_ = Outcome();
  invariant_ = nullptr;
  current_ = -1;
  state_ = 0;
  now_ = 1'000'000;  // zero is often "never"
  limits_.horizon += now_;
  idle_steps_ = 0;
  exploring_ = unobserved_ = inconsistent_ = continues_ = false;
  LogicalThread& first = *threads_[static_cast<size_t>(Add("the test", body))];
  current_ = 0;
  swapcontext(&native_->context, &first.context);
  const OutsideHeap mine;
  // After a failure others may still refer to what lies on the stacks.
  for (auto& thread : threads_) {
    if (outcome_.ok()) {
      stacks_.push_back(thread->stack);
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
    case State::kJoins:
      return threads_[static_cast<size_t>(thread.joined)]->state ==
             State::kEnded;
    case State::kQuiets:
    case State::kEnded:
      return false;
  }
  return false;
}

// The current thread first, then the others in turn.
void Scheduler::CollectOptions() {
  options_.clear();
  const auto count = static_cast<int>(threads_.size());
  continues_ = Enabled(self());
  for (int i = 0; i < count; ++i) {
    const int index = (current_ + i) % count;
    if (Enabled(*threads_[static_cast<size_t>(index)])) {
      options_.push_back(index);
    }
  }
  if (!options_.empty()) return;
  for (int i = 0; i < count; ++i) {
    if (threads_[static_cast<size_t>(i)]->state ==
        LogicalThread::State::kQuiets) {
      options_.push_back(i);
      return;
    }
  }
}

bool Scheduler::PassTime() {
  Nanos next = kNever;
  for (const auto& thread : threads_) {
    if (thread->state != LogicalThread::State::kEnded &&
        thread->wake_at > now_) {
      next = std::min(next, thread->wake_at);
    }
  }
  if (next > limits_.horizon) return false;
  now_ = next;
  return true;
}

Scheduler::LogicalThread* Scheduler::PickNext() {
  const OutsideHeap mine;
  for (;;) {
    CollectOptions();
    if (options_.empty()) {
      if (PassTime()) continue;
      GiveUp("no thread can go on: a deadlock, or a lost wake-up");
    }
    size_t chosen = 0;
    if (exploring_) {
      Nanos next = kNever;
      for (const auto& thread : threads_) {
        if (thread->state != LogicalThread::State::kEnded &&
            thread->wake_at > now_) {
          next = std::min(next, thread->wake_at);
        }
      }
      if (next <= limits_.horizon) options_.push_back(ChoicePoint::kClock);
      if (options_.size() > 1) {
        ChoicePoint point;
        point.options = options_;
        point.continues = continues_;
        point.state = Mix(state_, static_cast<uint64_t>(now_));
        point.running = current_;
        ++outcome_.choices;
        chosen = chooser_->Choose(point);
      }
    }
    if (options_[chosen] == ChoicePoint::kClock) {
      PassTime();
      continue;
    }
    LogicalThread& next = *threads_[static_cast<size_t>(options_[chosen])];
    // That it goes on is a step, also where it touches nothing.
    SetHistory(next, Mix(next.history, 1));
    return &next;
  }
}

void Scheduler::Reschedule(const char* what) {
  LogicalThread& thread = self();
  thread.does = what;
  ++outcome_.steps;
  if (++idle_steps_ > limits_.idle_steps) {
    GiveUp(absl::StrCat("a livelock: ", idle_steps_,
                        " steps without any progress"));
  }
  CheckInvariants();
  LogicalThread* const next = PickNext();
  if (trace_ && next != &thread) {
    std::fprintf(stderr, "%10lld ns  [%d] %s %s\n",
                 static_cast<long long>(now_), next->index, next->name,
                 next->does);
  }
  SwitchTo(*next);
}

void Scheduler::CheckInvariants() {
  if (invariant_ == nullptr) return;
  unobserved_ = true;
  inconsistent_ = false;
  invariant_();
  unobserved_ = false;
}

// -- What threads do ----------------------------------------------------------

void Touch(Object& object, Access access) {
  if (running == nullptr || running->unobserved_) return;
  const char* const what =
      access == Access::kRead ? "reads an atomic" : "writes an atomic";
  running->CheckAlive(object, what);
  running->Reschedule(what);
  running->CheckAlive(object, what);
  running->Record(object, access);
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
    return;
  }
  running->CheckAlive(*this, "locks");
  Scheduler::LogicalThread& self = running->self();
  if (owner_ == self.index) running->GiveUp("locks what it has locked");
  self.state = Scheduler::LogicalThread::State::kLocks;
  self.mutex = this;
  running->Reschedule("locks");
  running->CheckAlive(*this, "locks");
  self.state = Scheduler::LogicalThread::State::kRunnable;
  owner_ = self.index;
  running->Record(*this, Access::kWrite);
}

void LogicalMutex::Unlock() {
  if (running == nullptr || running->unobserved_) return;
  running->CheckAlive(*this, "unlocks");
  if (owner_ != running->current_) {
    running->GiveUp("unlocks what it has not locked");
  }
  running->Record(*this, Access::kWrite);
  owner_ = kFree;
  // From here on it may be destroyed.
  if (running->limits_.switch_after_unlock) {
    running->Reschedule("has unlocked");
  }
}

bool LogicalCondVar::Wait(LogicalMutex& mutex, Nanos deadline) {
  if (running == nullptr || running->unobserved_) return false;
  running->CheckAlive(*this, "waits for");
  Scheduler::LogicalThread& self = running->self();
  if (mutex.owner_ != self.index) running->GiveUp("waits without the lock");
  running->Record(*this, Access::kWrite);
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
  if (!self.notified) running->Record(*this, Access::kWrite);
  running->Record(mutex, Access::kWrite);
  return self.notified || running->now_ < deadline;
}

void LogicalCondVar::Notify(bool all) {
  if (running == nullptr || running->unobserved_) return;
  running->CheckAlive(*this, "notifies");
  running->Reschedule("notifies");
  running->CheckAlive(*this, "notifies");
  running->Record(*this, Access::kWrite);
  std::vector<Scheduler::LogicalThread*> waiting;
  for (const auto& thread : running->threads_) {
    if (thread->condition == this && !thread->notified) {
      waiting.push_back(thread.get());
    }
  }
  if (waiting.empty()) return;
  if (all) {
    for (Scheduler::LogicalThread* thread : waiting) thread->notified = true;
    return;
  }
  const int chosen = Choose(static_cast<int>(waiting.size()));
  waiting[static_cast<size_t>(chosen)]->notified = true;
}

uint64_t StartThread(const char* name, std::function<void()> run) {
  if (running == nullptr) {
    std::fprintf(stderr, "thread %s was started outside a simulation\n", name);
    std::abort();
  }
  const int index = running->Add(name, std::move(run));
  running->Reschedule("starts a thread");
  return static_cast<uint64_t>(index) + 1;
}

void JoinThread(uint64_t thread) {
  Scheduler::LogicalThread& self = running->self();
  self.joined = static_cast<int>(thread) - 1;
  self.state = Scheduler::LogicalThread::State::kJoins;
  running->Reschedule("joins a thread");
  self.state = Scheduler::LogicalThread::State::kRunnable;
  running->SetHistory(
      self, Mix(self.history,
                running->threads_[static_cast<size_t>(self.joined)]->history));
}

uint64_t CurrentThread() {
  if (running == nullptr) return ~uint64_t{0};
  return static_cast<uint64_t>(running->current_) + 1;
}

Nanos Now() {
  if (running == nullptr) return 1;
  if (!running->unobserved_ && running->current_ >= 0) {
    Scheduler::LogicalThread& self = running->self();
    running->SetHistory(
        self, Mix(self.history, static_cast<uint64_t>(running->now_)));
  }
  return running->now_;
}

void Sleep(Nanos time) {
  Scheduler::LogicalThread& self = running->self();
  self.wake_at = running->now_ + std::max<Nanos>(time, 1);
  self.state = Scheduler::LogicalThread::State::kSleeps;
  running->Reschedule("sleeps");
  self.state = Scheduler::LogicalThread::State::kRunnable;
  self.wake_at = kNever;
}

void YieldThread() {
  if (running != nullptr) Sleep(kYieldTime);
}

void* OwnVariable(const void* name) {
  const OutsideHeap mine;
  static std::map<const void*, OwnBytes> outside;
  if (running == nullptr || running->current_ < 0) return &outside[name];
  return &running->self().own[name];
}

void SetExploring(bool exploring) { running->exploring_ = exploring; }

void Quiesce() {
  Scheduler::LogicalThread& self = running->self();
  self.state = Scheduler::LogicalThread::State::kQuiets;
  running->Reschedule("lets the others run");
  self.state = Scheduler::LogicalThread::State::kRunnable;
}

int Choose(int count) {
  if (count <= 1 || !running->exploring_) return 0;
  std::vector<int> options;
  for (int i = 0; i < count; ++i) options.push_back(i);
  ChoicePoint point;
  point.options = options;
  point.is_value = true;
  point.state = running->state_;
  point.running = running->current_;
  int chosen = 0;
  {
    const OutsideHeap mine;
    ++running->outcome_.choices;
    chosen = static_cast<int>(running->chooser_->Choose(point));
  }
  Scheduler::LogicalThread& self = running->self();
  running->SetHistory(
      self, Mix(self.history, static_cast<uint64_t>(chosen) + 0x63686f69));
  return chosen;
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
