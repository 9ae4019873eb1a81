#include "kernels/graph/program_cache.h"

#include <algorithm>
#include <array>
#include <list>
#include <map>
#include <stop_token>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "kernels/base/atomic.h"
#include "kernels/base/error_info.h"
#include "kernels/base/fingerprint.h"
#include "kernels/base/keyed_hash.h"
#include "kernels/base/mutex.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/striped_snapshot.h"
#include "kernels/base/thread.h"
#include "kernels/base/turn_queue.h"

namespace weir {
namespace {

constexpr size_t kCounterStripes = 16;

using Key = std::shared_ptr<const std::string>;
using KeyPieces = ProgramCache::KeyPieces;

// Smaller keys are compared where they are found, under a lock.
constexpr size_t kSmallKeyBytes = 4096;

size_t SizeOf(KeyPieces key) {
  size_t size = 0;
  for (std::string_view piece : key) size += piece.size();
  return size;
}

bool Equal(std::string_view whole, KeyPieces key) {
  if (whole.size() != SizeOf(key)) return false;
  for (std::string_view piece : key) {
    if (whole.substr(0, piece.size()) != piece) return false;
    whole.remove_prefix(piece.size());
  }
  return true;
}

struct Entry {
  Key key;
  ByteCharge charge;  // for the key
  std::shared_ptr<const Program> program;
  Atomic<uint64_t> used{0};
};

// By their hashes. That two keys have one, which nobody can bring about, costs
// the second its place.
using Entries = std::unordered_map<uint64_t, std::shared_ptr<Entry>>;

// `name` is that of ProgramCacheOptions.
absl::Status QueueFull(const char* what, const char* name, size_t limit) {
  return WithRetryAfter(
      WithReason(absl::ResourceExhaustedError(
                     absl::StrCat("more than ", limit, " ", what, " (", name,
                                  "); try again later")),
                 "COMPILE_QUEUE_FULL", {{name, absl::StrCat(limit)}}),
      absl::Milliseconds(200));
}

absl::Status WaitTooLong(absl::Duration longest) {
  return WithRetryAfter(
      WithReason(absl::DeadlineExceededError(absl::StrCat(
                     "the program was not compiled or planned within ",
                     absl::FormatDuration(longest),
                     ", the longest wait; try again later")),
                 "COMPILE_WAIT_TOO_LONG"),
      absl::Seconds(1));
}

absl::Status Stopping() {
  return absl::CancelledError("the program cache is stopping");
}

}  // namespace

// Shared with timers, which may fire while the cache goes.
struct ProgramCache::State final : ProgramRoom::Keeper,
                                   std::enable_shared_from_this<State> {
  struct Waiter {
    absl::AnyInvocable<void(ProgramOr)> done;
    TimerQueue::TimerId timer = 0;
  };
  struct Compilation;
  using Compilations = TurnQueue<std::shared_ptr<Compilation>>;
  // One compilation and everyone who waits for it.
  // Ends on the thread of `reader` if its key is large.
  struct Compilation {
    enum class Stage : uint8_t { kArrives, kWaits, kRuns };

    uint64_t hash = 0;
    Key key;
    GraphFactory factory;
    std::stop_source stop;
    ByteCharge charge;  // for the key
    // Guarded by `mu`.
    std::map<WaitId, Waiter> waiters;
    Stage stage = Stage::kArrives;
    std::string owner;          // of the first who asked
    Compilations::Place place;  // while it waits
  };
  struct Planning {
    WaitId id = 0;
    std::shared_ptr<const Program> program;
    std::vector<HostTensor> inputs;
    bool reads_inputs = false;
    std::stop_source stop;
    // Guarded by `mu`.
    absl::AnyInvocable<void(PlanOr)> done;  // null: it was told
    absl::Status left;                      // what to tell instead of the plan
    TimerQueue::TimerId timer = 0;
    bool running = false;
    uint64_t program_number = 0;
    std::list<std::shared_ptr<Planning>>::iterator place;  // until it runs
  };
  // What to expect of a program's next plan.
  enum PlanKind { kQuick, kUnknown, kDear, kPlanKinds };
  // Of one program: what waits, while at most one is being made.
  struct Plannings {
    std::list<std::shared_ptr<Planning>> waiting;
    bool running = false;
    // While nothing runs.
    std::list<Plannings*>* line = nullptr;
    std::list<Plannings*>::iterator place;
  };
  struct Wait {
    std::shared_ptr<Compilation> compilation;  // or:
    std::shared_ptr<Planning> planning;
  };

  State(Device* the_device, const OpRegistry* the_registry,
        TimerQueue* the_timers, ProgramCacheOptions the_options)
      : device(the_device),
        registry(the_registry),
        timers(the_timers),
        options(the_options),
        programs(std::make_shared<const Entries>()) {}

  // Null if there is none. Keys are not compared.
  std::shared_ptr<Entry> FindEntry(uint64_t hash) const;
  std::shared_ptr<const Program> Find(uint64_t hash, KeyPieces key);
  // Whether its one caller may wait: then under this id. Otherwise nothing was
  // done.
  absl::StatusOr<WaitId> Admit(const std::shared_ptr<Compilation>& arrival,
                               Nanos deadline,
                               absl::AnyInvocable<void(ProgramOr)>& done)
      WEIR_REQUIRES(mu);
  // Reads the key of what has arrived: its caller is told of a program that is
  // there, or joins another compilation, or waits for this one. False: the
  // caller does not wait any more.
  bool Place(const std::shared_ptr<Compilation>& arrival, WaitId id);
  // Whether more bytes of keys may wait beside those of the queue and so many
  // others.
  absl::Status CheckBytes(size_t more, size_t others) const WEIR_REQUIRES(mu);
  // Whether what has arrived, whose bytes are counted, may wait there.
  absl::Status CheckQueue(const Compilation& arrival) const WEIR_REQUIRES(mu);
  // One more of that owner waits for it: it goes to the line where it is next
  // sooner.
  void MoveUp(Compilation& compilation, const std::string& owner)
      WEIR_REQUIRES(mu);
  // Whom callers of that hash may join; null: nobody.
  std::shared_ptr<Compilation> Joinable(uint64_t hash) const WEIR_REQUIRES(mu);
  void Compile(std::shared_ptr<Compilation> compilation);
  ProgramOr Make(Compilation& compilation);
  // Whether nobody else holds the program or a plan of it, so that to evict it
  // frees what it holds. The next moment it may be otherwise.
  static bool Idle(const Entry& entry);
  // Those that were not used for longest first.
  std::vector<std::shared_ptr<Entry>> ByAge() const;
  // The idle entry that was not used for longest; if there is none and any one
  // will do, that of all. Null: none.
  std::shared_ptr<Entry> ToEvict(bool any) const;
  // Takes that out. False: there is none.
  bool Evict(bool any);
  bool DropIdle() override { return Evict(/*any=*/false) || DropIdlePlan(); }
  // Of the program that was not used for longest of those which have one.
  bool DropIdlePlan();
  // Takes out what has to go until there is room for one more entry beside all
  // programs that live: idle entries, then idle plans of the others, and used
  // entries only where their places are wanted, for their bytes stay. There may
  // be too little room then. Waits for the end of what goes, or until `stop` is
  // requested.
  void MakeRoom(size_t key_bytes, const std::stop_token& stop);
  // For one more entry.
  bool HasPlace() const;
  bool HasRoom(size_t key_bytes) const;
  void Insert(const Compilation& compilation,
              std::shared_ptr<const Program> program) WEIR_REQUIRES(mu);
  void MakePlan(Planning& planning);
  // A timer that ends the wait; it may outlive the state.
  TimerQueue::TimerId AddTimer(Nanos deadline, WaitId id);
  // The caller alone gets `status`, and what nobody waits for then is given up.
  void Leave(WaitId id, absl::Status status);
  // Nobody waits for it: out of the queue, or to its end.
  void GiveUp(Compilation& compilation) WEIR_REQUIRES(mu);
  void RunCompilations();  // a compile thread
  // A plan thread, for plans of all kinds up to that.
  void Plans(PlanKind most);
  PlanKind KindOf(const Program& program) const;
  // Null: there is nothing for it to do.
  std::shared_ptr<Planning> TakePlanning(PlanKind most) WEIR_REQUIRES(mu);
  // In line, behind other programs of its kind. REQUIRES: some planning waits.
  void Enqueue(Plannings& plannings) WEIR_REQUIRES(mu);
  // The one that ran has ended: the next of its program may be made.
  void NextPlanning(uint64_t program_number) WEIR_REQUIRES(mu);
  void RemovePlanning(Planning& planning) WEIR_REQUIRES(mu);

  Device* const device;
  const OpRegistry* const registry;
  TimerQueue* const timers;
  const ProgramCacheOptions options;

  // Of all programs that were compiled here and live, and of the entries' keys.
  std::shared_ptr<ProgramRoom> room;
  // Changed under `mu`, read without it.
  StripedSnapshot<Entries> programs;
  Atomic<uint64_t> age{1};
  // Compares and frees large keys, until Stop.
  std::unique_ptr<Reclaimer> reader = std::make_unique<Reclaimer>();
  const std::shared_ptr<ReclaimQueue> reading = reader->queue();
  // Of compilations.
  const std::shared_ptr<ByteAccount> keys = std::make_shared<ByteAccount>();
  struct alignas(64) Counter {
    Atomic<uint64_t> hits{0};
  };
  std::array<Counter, kCounterStripes> counters;

  mutable Mutex mu;
  CondVar work;
  CondVar plan_work;
  bool stopping WEIR_GUARDED_BY(mu) = false;
  WaitId next_wait WEIR_GUARDED_BY(mu) = 1;
  std::unordered_map<WaitId, Wait> waits WEIR_GUARDED_BY(mu);
  size_t compile_waits WEIR_GUARDED_BY(mu) = 0;  // of those
  size_t arriving WEIR_GUARDED_BY(mu) = 0;       // large keys, not yet read
  Compilations queue WEIR_GUARDED_BY(mu);
  // By Program::number.
  std::unordered_map<uint64_t, Plannings> plans WEIR_GUARDED_BY(mu);
  std::array<std::list<Plannings*>, kPlanKinds> plan_lines WEIR_GUARDED_BY(mu);
  size_t plans_queued WEIR_GUARDED_BY(mu) = 0;
  // What callers may join, queued or running, by its key's hash. Who waits for
  // another key of that hash, waits alone.
  std::unordered_map<uint64_t, std::shared_ptr<Compilation>> compiling
      WEIR_GUARDED_BY(mu);
  uint64_t misses WEIR_GUARDED_BY(mu) = 0;
  uint64_t evicted WEIR_GUARDED_BY(mu) = 0;
  uint64_t failed WEIR_GUARDED_BY(mu) = 0;
  std::vector<Thread> threads;
};

std::shared_ptr<Entry> ProgramCache::State::FindEntry(uint64_t hash) const {
  return programs.Read([&](const Entries& entries) -> std::shared_ptr<Entry> {
    const auto found = entries.find(hash);
    return found == entries.end() ? nullptr : found->second;
  });
}

std::shared_ptr<const Program> ProgramCache::State::Find(uint64_t hash,
                                                         KeyPieces key) {
  const bool small = SizeOf(key) <= kSmallKeyBytes;
  const uint64_t now = age.load(std::memory_order_relaxed);
  std::shared_ptr<Entry> large;
  auto program = programs.Read(
      [&](const Entries& entries) -> std::shared_ptr<const Program> {
        const auto found = entries.find(hash);
        if (found == entries.end()) return nullptr;
        Entry& entry = *found->second;
        if (small && !Equal(*entry.key, key)) return nullptr;
        if (entry.used.load(std::memory_order_relaxed) != now) {
          entry.used.store(now, std::memory_order_relaxed);
        }
        if (small) return entry.program;
        large = found->second;
        return nullptr;
      });
  if (large != nullptr && Equal(*large->key, key)) program = large->program;
  if (program != nullptr) {
    counters[ThreadStripe() % kCounterStripes].hits.fetch_add(
        1, std::memory_order_relaxed);
  }
  return program;
}

absl::StatusOr<ProgramCache::WaitId> ProgramCache::State::Admit(
    const std::shared_ptr<Compilation>& arrival, Nanos deadline,
    absl::AnyInvocable<void(ProgramOr)>& done) {
  if (stopping) return Stopping();
  if (compile_waits >= options.max_waiters) {
    return QueueFull("callers wait for programs", "max_waiters",
                     options.max_waiters);
  }
  const size_t size = arrival->key->size();
  // Others are read, and join or are refused, before their callers go on.
  if (size > kLargeKeyBytes) WEIR_RETURN_IF_ERROR(CheckBytes(size, arriving));
  arrival->charge = ByteCharge(keys, size);
  const WaitId id = next_wait++;
  Waiter& waiter = arrival->waiters[id];
  waiter.done = std::move(done);
  waiter.timer = AddTimer(deadline, id);
  ++compile_waits;
  waits[id].compilation = arrival;
  return id;
}

absl::Status ProgramCache::State::CheckBytes(size_t more, size_t others) const {
  if (queue.empty() && others == 0) return absl::OkStatus();
  if (keys->bytes() + more <= options.max_queued_bytes) return absl::OkStatus();
  return QueueFull("bytes of graphs wait to be compiled", "max_queued_bytes",
                   options.max_queued_bytes);
}

absl::Status ProgramCache::State::CheckQueue(const Compilation& arrival) const {
  if (queue.size() >= options.max_queued) {
    return QueueFull("graphs wait to be compiled", "max_queued",
                     options.max_queued);
  }
  WEIR_RETURN_IF_ERROR(CheckBytes(0, 0));
  if (arrival.owner.empty()) return absl::OkStatus();
  const Compilations::Share share = queue.ShareOf(arrival.owner);
  if (share.items == 0) return absl::OkStatus();
  if (share.items >= options.max_queued - queue.size()) {
    return QueueFull("graphs of one client wait to be compiled", "max_queued",
                     share.items);
  }
  const size_t others = keys->bytes() - arrival.key->size();
  if (share.weight + arrival.key->size() >
      options.max_queued_bytes - std::min(others, options.max_queued_bytes)) {
    return QueueFull("bytes of one client's graphs wait to be compiled",
                     "max_queued_bytes", share.weight);
  }
  return absl::OkStatus();
}

void ProgramCache::State::MoveUp(Compilation& compilation,
                                 const std::string& owner) {
  if (compilation.stage != Compilation::Stage::kWaits ||
      queue.owner(compilation.place) == owner ||
      queue.ShareOf(owner).items >= queue.Rank(compilation.place)) {
    return;
  }
  std::shared_ptr<Compilation> moved = queue.Remove(compilation.place);
  compilation.place =
      queue.Push(owner, std::move(moved), compilation.key->size());
}

bool ProgramCache::State::Place(const std::shared_ptr<Compilation>& arrival,
                                WaitId id) {
  const uint64_t hash = arrival->hash;
  const std::string_view whole = *arrival->key;
  // Keys are compared without the lock.
  std::shared_ptr<Compilation> other;
  for (;;) {
    // First: an entry that comes after this is either found or noticed below.
    const std::shared_ptr<Entry> entry = FindEntry(hash);
    ProgramOr now = Find(hash, {&whole, 1});
    const bool joins = other != nullptr && *other->key == whole;
    Waiter waiter;
    {
      MutexLock lock(&mu);
      auto node = arrival->waiters.extract(id);
      if (node.empty()) return false;  // the caller has left
      if (*now == nullptr) {
        // It may have been finished since it was looked up.
        if (Joinable(hash) != other || FindEntry(hash) != entry) {
          other = Joinable(hash);
          arrival->waiters.insert(std::move(node));
          continue;
        }
        if (!joins) {
          if (absl::Status full = CheckQueue(*arrival); !full.ok()) {
            now = std::move(full);
          }
        }
      }
      if (now.ok() && *now == nullptr) {
        ++misses;
        if (joins) {
          other->waiters.insert(std::move(node));
          MoveUp(*other, arrival->owner);
          waits[id].compilation = std::move(other);
          return true;
        }
        arrival->waiters.insert(std::move(node));
        arrival->stage = Compilation::Stage::kWaits;
        compiling.emplace(hash, arrival);
        arrival->place =
            queue.Push(arrival->owner, arrival, arrival->key->size());
        work.NotifyOne();
        return true;
      }
      waiter = std::move(node.mapped());
      waits.erase(id);
      --compile_waits;
    }
    timers->Cancel(waiter.timer);
    waiter.done(std::move(now));
    return false;
  }
}

std::shared_ptr<ProgramCache::State::Compilation> ProgramCache::State::Joinable(
    uint64_t hash) const {
  const auto found = compiling.find(hash);
  return found == compiling.end() ? nullptr : found->second;
}

ProgramCache::ProgramOr ProgramCache::State::Make(Compilation& compilation) {
  const std::stop_token stop = compilation.stop.get_token();
  WEIR_RETURN_IF_ERROR(room->Admit(/*own=*/0, stop));
  auto graph = compilation.factory();
  if (!graph.ok()) return graph.status();
  ProgramOptions program_options;
  program_options.identity = Fingerprint(*compilation.key);
  program_options.evaluation = options.evaluation;
  program_options.room = room;
  program_options.stop = stop;
  program_options.text_device = options.text_device;
  return Program::Compile(*std::move(graph), *device, *registry,
                          program_options);
}

void ProgramCache::State::Compile(std::shared_ptr<Compilation> compilation) {
  ProgramOr program = Make(*compilation);
  compilation->factory = nullptr;
  const std::string_view whole = *compilation->key;
  // One that alone is too large would evict all else.
  const bool keep = program.ok() && whole.size() + (*program)->held_bytes() <=
                                        options.max_bytes;
  if (keep) MakeRoom(whole.size(), compilation->stop.get_token());
  std::map<WaitId, Waiter> waiters;
  {
    MutexLock lock(&mu);
    // If everybody left, another one of this key may have come since, and may
    // even have ended.
    const uint64_t hash = compilation->hash;
    if (Joinable(hash) == compilation) compiling.erase(hash);
    if (!program.ok()) {
      if (!compilation->stop.stop_requested()) {
        ++failed;
      } else if (stopping) {
        program = Stopping();
      }
    } else if (keep && HasRoom(whole.size()) && FindEntry(hash) == nullptr) {
      Insert(*compilation, *program);
    }
    waiters.swap(compilation->waiters);
    compile_waits -= waiters.size();
    for (const auto& [id, waiter] : waiters) waits.erase(id);
  }
  compilation = nullptr;
  for (auto& [id, waiter] : waiters) {
    timers->Cancel(waiter.timer);
    waiter.done(program);
  }
}

bool ProgramCache::State::HasPlace() const {
  const size_t entries =
      programs.Read([](const Entries& kept) { return kept.size(); });
  return entries < options.max_programs;
}

bool ProgramCache::State::HasRoom(size_t key_bytes) const {
  return HasPlace() &&
         room->account()->bytes() + key_bytes <= options.max_bytes;
}

bool ProgramCache::State::Idle(const Entry& entry) {
  return entry.program.use_count() == 1 && !entry.program->has_plans_in_use();
}

std::vector<std::shared_ptr<Entry>> ProgramCache::State::ByAge() const {
  const std::shared_ptr<const Entries> entries = programs.Load();
  std::vector<std::pair<uint64_t, std::shared_ptr<Entry>>> aged;
  for (const auto& [hash, entry] : *entries) {
    aged.push_back({entry->used.load(std::memory_order_relaxed), entry});
  }
  std::sort(aged.begin(), aged.end());
  std::vector<std::shared_ptr<Entry>> by_age;
  by_age.reserve(aged.size());
  for (auto& [age, entry] : aged) by_age.push_back(std::move(entry));
  return by_age;
}

std::shared_ptr<Entry> ProgramCache::State::ToEvict(bool any) const {
  const std::vector<std::shared_ptr<Entry>> by_age = ByAge();
  const auto found =
      std::find_if(by_age.begin(), by_age.end(),
                   [](const auto& entry) { return Idle(*entry); });
  if (found != by_age.end()) return *found;
  return any && !by_age.empty() ? by_age.front() : nullptr;
}

bool ProgramCache::State::Evict(bool any) {
  for (;;) {
    const std::shared_ptr<Entry> evict = ToEvict(any);
    if (evict == nullptr) return false;
    MutexLock lock(&mu);
    auto entries = std::make_shared<Entries>(*programs.Load());
    const auto found =
        std::find_if(entries->begin(), entries->end(),
                     [&](const auto& kept) { return kept.second == evict; });
    if (found == entries->end()) continue;  // another thread was faster
    entries->erase(found);
    ++evicted;
    programs.Store(std::move(entries));
    return true;
  }
}

bool ProgramCache::State::DropIdlePlan() {
  for (const std::shared_ptr<Entry>& entry : ByAge()) {
    if (entry->program->DropIdlePlan()) return true;
  }
  return false;
}

void ProgramCache::State::MakeRoom(size_t key_bytes,
                                   const std::stop_token& stop) {
  while (!HasRoom(key_bytes)) {
    const bool place = !HasPlace();  // is wanted, not bytes alone
    if (!Evict(place) && (place || !DropIdlePlan())) return;
    // Its bytes count until it has ended.
    if (options.reclaim != nullptr && !options.reclaim->Flush(stop)) return;
  }
}

void ProgramCache::State::Insert(const Compilation& compilation,
                                 std::shared_ptr<const Program> program) {
  // A key may be as large as a message: whoever reads the entry does not wait
  // for its end either.
  std::shared_ptr<Entry> entry =
      ReclaimQueue::Share(std::make_unique<Entry>(), options.reclaim);
  entry->key = compilation.key;
  entry->charge = ByteCharge(room->account(), entry->key->size());
  entry->program = std::move(program);
  // A hit from now on makes an entry younger than this one.
  entry->used = age.fetch_add(1, std::memory_order_relaxed);
  auto entries = std::make_shared<Entries>(*programs.Load());
  entries->emplace(compilation.hash, std::move(entry));
  programs.Store(std::move(entries));
}

TimerQueue::TimerId ProgramCache::State::AddTimer(Nanos deadline, WaitId id) {
  const Nanos longest = NowNanos() + absl::ToInt64Nanoseconds(options.max_wait);
  return timers->Add(std::min(deadline, longest), [weak = weak_from_this(), id,
                                                   in_time =
                                                       deadline > longest] {
    const auto alive = weak.lock();
    if (alive == nullptr) return;
    alive->Leave(id, in_time ? WaitTooLong(alive->options.max_wait)
                             : absl::DeadlineExceededError(
                                   "the deadline passed while the program was "
                                   "compiled or planned"));
  });
}

void ProgramCache::State::GiveUp(Compilation& compilation) {
  if (Joinable(compilation.hash).get() == &compilation) {
    compiling.erase(compilation.hash);
  }
  compilation.stop.request_stop();
  if (compilation.stage == Compilation::Stage::kWaits) {
    queue.Remove(compilation.place);
  }
}

void ProgramCache::State::Leave(WaitId id, absl::Status status) {
  Wait wait;
  Waiter waiter;
  absl::AnyInvocable<void(PlanOr)> plan_done;
  {
    MutexLock lock(&mu);
    const auto found = waits.find(id);
    if (found == waits.end()) return;
    wait = std::move(found->second);
    waits.erase(found);
    if (Compilation* const compilation = wait.compilation.get()) {
      --compile_waits;
      auto node = compilation->waiters.extract(id);
      waiter = std::move(node.mapped());
      if (compilation->waiters.empty()) GiveUp(*compilation);
    } else {
      Planning& planning = *wait.planning;
      waiter.timer = planning.timer;
      planning.stop.request_stop();
      if (!planning.running) RemovePlanning(planning);
      if (!planning.running || !planning.reads_inputs) {
        plan_done = std::move(planning.done);
        planning.done = nullptr;
      } else {
        planning.left = status;
      }
    }
  }
  wait = {};  // its bytes go before the answer
  timers->Cancel(waiter.timer);
  if (waiter.done) {
    waiter.done(std::move(status));
  } else if (plan_done) {
    plan_done(std::move(status));
  }
}

void ProgramCache::State::RunCompilations() {
  for (;;) {
    std::shared_ptr<Compilation> compilation;
    Compilations::Owner owner;
    {
      MutexLock lock(&mu);
      while (queue.empty() && !stopping) work.Wait(&mu);
      if (stopping) return;
      std::tie(compilation, owner) = queue.Take();
      compilation->stage = Compilation::Stage::kRuns;
    }
    Compile(std::move(compilation));
    MutexLock lock(&mu);
    queue.Done(owner);
  }
}

ProgramCache::State::PlanKind ProgramCache::State::KindOf(
    const Program& program) const {
  const Nanos took = program.last_plan_ns();
  if (took == 0) return program.nodes() > kSmallPlanNodes ? kDear : kUnknown;
  return absl::Nanoseconds(took) > options.quick_plan ? kDear : kQuick;
}

void ProgramCache::State::Enqueue(Plannings& plannings) {
  plannings.line = &plan_lines[KindOf(*plannings.waiting.front()->program)];
  plannings.place = plannings.line->insert(plannings.line->end(), &plannings);
  plan_work.NotifyAll();  // not every thread takes it
}

void ProgramCache::State::RemovePlanning(Planning& planning) {
  const auto found = plans.find(planning.program_number);
  Plannings& plannings = found->second;
  plannings.waiting.erase(planning.place);
  --plans_queued;
  if (plannings.running || !plannings.waiting.empty()) return;
  plannings.line->erase(plannings.place);
  plans.erase(found);
}

std::shared_ptr<ProgramCache::State::Planning>
ProgramCache::State::TakePlanning(PlanKind most) {
  // The program that has waited longest for its turn.
  Plannings* first = nullptr;
  for (int kind = 0; kind <= most; ++kind) {
    const auto& line = plan_lines[static_cast<size_t>(kind)];
    if (!line.empty() &&
        (first == nullptr ||
         line.front()->waiting.front()->id < first->waiting.front()->id)) {
      first = line.front();
    }
  }
  if (first == nullptr) return nullptr;
  first->line->erase(first->place);
  std::shared_ptr<Planning> planning = std::move(first->waiting.front());
  first->waiting.pop_front();
  --plans_queued;
  first->running = true;
  planning->running = true;
  return planning;
}

void ProgramCache::State::NextPlanning(uint64_t program_number) {
  const auto found = plans.find(program_number);
  found->second.running = false;
  if (found->second.waiting.empty()) {
    plans.erase(found);
  } else {
    Enqueue(found->second);
  }
}

void ProgramCache::State::Plans(PlanKind most) {
  for (;;) {
    std::shared_ptr<Planning> planning;
    {
      MutexLock lock(&mu);
      for (;;) {
        if (stopping) return;
        planning = TakePlanning(most);
        if (planning != nullptr) break;
        plan_work.Wait(&mu);
      }
    }
    MakePlan(*planning);
  }
}

// Callers that asked for the same plan while it was being made find it here.
void ProgramCache::State::MakePlan(Planning& planning) {
  PlanOr plan = planning.program->FindPlan(planning.inputs);
  if (*plan == nullptr) {
    plan =
        planning.program->MakePlan(planning.inputs, planning.stop.get_token());
  }
  // Whoever is told may be the last who holds it.
  planning.program = nullptr;
  absl::AnyInvocable<void(PlanOr)> done;
  {
    MutexLock lock(&mu);
    waits.erase(planning.id);
    NextPlanning(planning.program_number);
    done = std::move(planning.done);
    planning.done = nullptr;
    if (!planning.left.ok()) {
      plan = std::move(planning.left);
    } else if (stopping && absl::IsCancelled(plan.status())) {
      plan = Stopping();
    }
  }
  timers->Cancel(planning.timer);
  if (done) done(std::move(plan));
}

ProgramCache::ProgramCache(Device* device, const OpRegistry* registry,
                           TimerQueue* timers, ProgramCacheOptions options)
    : state_(std::make_shared<State>(device, registry, timers, options)) {
  state_->room =
      std::make_shared<ProgramRoom>(options.max_bytes, options.reclaim, state_);
  for (int i = 0; i < options.threads; ++i) {
    // Joined by Stop, so that the bare pointer will do.
    state_->threads.emplace_back(
        "weir-compile", [state = state_.get()] { state->RunCompilations(); });
  }
  for (int i = 0; i < options.plan_threads; ++i) {
    const State::PlanKind most =
        i == 0 ? State::kDear
        : i + 1 == options.plan_threads && options.plan_threads > 2
            ? State::kQuick
            : State::kUnknown;
    state_->threads.emplace_back(
        "weir-plan", [state = state_.get(), most] { state->Plans(most); });
  }
}

ProgramCache::~ProgramCache() { Stop(); }

ProgramCache::KeyHash ProgramCache::Hash(KeyPieces key) {
  KeyedHash hash;
  for (std::string_view piece : key) hash.Add(piece);
  return hash.Finish();
}

std::shared_ptr<const Program> ProgramCache::Find(KeyPieces key, KeyHash hash) {
  return state_->Find(hash, key);
}

ProgramCache::WaitId ProgramCache::GetOrCompile(
    std::shared_ptr<const std::string> key, KeyHash hash, GraphFactory factory,
    Nanos deadline, absl::AnyInvocable<void(ProgramOr)> done,
    std::string owner) {
  State& state = *state_;
  const bool large = key->size() > kLargeKeyBytes;
  if (!large) {
    const std::string_view whole = *key;
    if (auto program = state.Find(hash, {&whole, 1})) {
      done(std::move(program));
      return 0;
    }
  }
  const std::shared_ptr<State::Compilation> arrival = ReclaimQueue::Share(
      std::make_unique<State::Compilation>(), large ? state.reading : nullptr);
  arrival->hash = hash;
  arrival->key = std::move(key);
  arrival->factory = std::move(factory);
  arrival->owner = std::move(owner);
  absl::StatusOr<WaitId> id = 0;
  {
    MutexLock lock(&state.mu);
    id = state.Admit(arrival, deadline, done);
    if (id.ok() && large) ++state.arriving;
  }
  if (!id.ok()) {
    done(id.status());
    return 0;
  }
  if (!large) return state.Place(arrival, *id) ? *id : 0;
  // Run before Stop returns, so that the bare reference will do.
  state.reading->Post([&state, arrival, id = *id] {
    (void)state.Place(arrival, id);
    MutexLock lock(&state.mu);
    --state.arriving;
  });
  return *id;
}

ProgramCache::WaitId ProgramCache::MakePlan(
    std::shared_ptr<const Program> program, absl::Span<const HostTensor> inputs,
    Nanos deadline, absl::AnyInvocable<void(PlanOr)> done) {
  return MakePlan(std::move(program),
                  std::vector<HostTensor>(inputs.begin(), inputs.end()),
                  deadline, std::move(done));
}

ProgramCache::WaitId ProgramCache::MakePlan(
    std::shared_ptr<const Program> program, std::vector<HostTensor> inputs,
    Nanos deadline, absl::AnyInvocable<void(PlanOr)> done) {
  auto planning = std::make_shared<State::Planning>();
  planning->inputs = std::move(inputs);
  for (size_t i = 0; i < program->inputs().size(); ++i) {
    if (program->InputOnHost(i)) planning->reads_inputs = true;
  }
  planning->program = std::move(program);
  absl::Status refused;
  {
    State& state = *state_;
    MutexLock lock(&state.mu);
    if (state.stopping) {
      refused = Stopping();
    } else if (state.plans_queued >= state.options.max_waiters) {
      refused = QueueFull("callers wait for plans", "max_waiters",
                          state.options.max_waiters);
    } else {
      // Most of these wait for the same few plans: they are bounded as waiters.
      planning->done = std::move(done);
      planning->id = state.next_wait++;
      planning->timer = state.AddTimer(deadline, planning->id);
      planning->program_number = planning->program->number();
      const WaitId id = planning->id;
      state.waits[id].planning = planning;
      State::Plannings& plannings = state.plans[planning->program_number];
      const bool first = !plannings.running && plannings.waiting.empty();
      const auto place =
          plannings.waiting.insert(plannings.waiting.end(), planning);
      planning->place = place;
      ++state.plans_queued;
      if (first) state.Enqueue(plannings);
      return id;
    }
  }
  done(refused);
  return 0;
}

void ProgramCache::Cancel(WaitId wait) {
  state_->Leave(
      wait, absl::CancelledError("cancelled while the program was compiled or "
                                 "planned"));
}

ProgramCacheStats ProgramCache::stats() const {
  ProgramCacheStats stats;
  for (const State::Counter& counter : state_->counters) {
    stats.hits += counter.hits.load(std::memory_order_relaxed);
  }
  MutexLock lock(&state_->mu);
  stats.programs = state_->programs.Read(
      [](const Entries& entries) { return entries.size(); });
  stats.queued = state_->queue.size();
  stats.queued_bytes = state_->keys->bytes();
  stats.plans_queued = state_->plans_queued;
  stats.bytes = state_->room->account()->bytes();
  stats.misses = state_->misses;
  stats.evicted = state_->evicted;
  stats.failed = state_->failed;
  return stats;
}

void ProgramCache::Stop() {
  std::vector<WaitId> queued;
  std::vector<Thread> threads;
  std::unique_ptr<Reclaimer> reader;
  {
    MutexLock lock(&state_->mu);
    state_->stopping = true;
    threads.swap(state_->threads);
    reader = std::move(state_->reader);
    // What runs is told when it has ended, which it does at its next step.
    for (const auto& [id, wait] : state_->waits) {
      if (wait.compilation != nullptr &&
          wait.compilation->stage == State::Compilation::Stage::kRuns) {
        wait.compilation->stop.request_stop();
      } else if (wait.planning != nullptr && wait.planning->running) {
        wait.planning->stop.request_stop();
      } else {
        queued.push_back(id);
      }
    }
    state_->work.NotifyAll();
    state_->plan_work.NotifyAll();
  }
  for (WaitId id : queued) state_->Leave(id, Stopping());
  for (Thread& thread : threads) thread.Join();
  reader = nullptr;
}

}  // namespace weir
