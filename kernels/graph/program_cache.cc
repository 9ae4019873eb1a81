#include "kernels/graph/program_cache.h"

#include <algorithm>
#include <array>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kernels/base/atomic.h"
#include "kernels/base/fingerprint.h"
#include "kernels/base/holders.h"
#include "kernels/base/keyed_hash.h"
#include "kernels/base/long_step_bytes.h"
#include "kernels/base/mutex.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/stop_token.h"
#include "kernels/base/striped_snapshot.h"

namespace weir {
namespace {

constexpr size_t kCounterStripes = 16;

using Key = CompileQueue::Key;
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

CompileQueueOptions CompilationsOf(const ProgramCacheOptions& options,
                                   absl::Duration max_wait) {
  return {.max_queued = options.max_queued,
          .max_queued_bytes = options.max_queued_bytes,
          .max_waiters = options.max_waiters,
          .threads = options.threads,
          .max_wait = max_wait};
}

PlanQueueOptions PlansOf(const ProgramCacheOptions& options,
                         absl::Duration max_wait) {
  return {.max_waiters = options.max_waiters,
          .threads = options.plan_threads,
          .quick_plan = options.quick_plan,
          .max_wait = max_wait};
}

}  // namespace

// What is kept. Its room may outlive the cache.
struct ProgramCache::State final : ProgramRoom::Keeper, CompileQueue::Maker {
  State(Device* the_device, const OpRegistry* the_registry,
        const ProgramCacheOptions& the_options,
        std::shared_ptr<ReclaimQueue> the_reclaim)
      : device(the_device),
        registry(the_registry),
        options(the_options),
        reclaim(std::move(the_reclaim)),
        programs(std::make_shared<const Entries>()) {}

  // CompileQueue::Maker.
  std::shared_ptr<const void> Kept(uint64_t hash) const override {
    return FindEntry(hash);
  }
  std::shared_ptr<const Program> Find(uint64_t hash,
                                      std::string_view key) override {
    return Find(hash, KeyPieces(&key, 1));
  }
  ProgramOr Make(const Key& key, uint64_t hash, GraphFactory factory,
                 const StopToken& stop) override;

  // Null if there is none. Keys are not compared.
  std::shared_ptr<Entry> FindEntry(uint64_t hash) const;
  std::shared_ptr<const Program> Find(uint64_t hash, KeyPieces key);
  ProgramOr Compile(const Key& key, GraphFactory factory,
                    const StopToken& stop);
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
  void MakeRoom(size_t key_bytes, const StopToken& stop);
  // For one more entry.
  bool HasPlace() const;
  bool HasRoom(size_t key_bytes) const;
  // Unless another is kept under its hash, or there is no room any more.
  void Insert(const Key& key, uint64_t hash,
              const std::shared_ptr<const Program>& program);

  Device* const device;
  const OpRegistry* const registry;
  const ProgramCacheOptions options;
  const std::shared_ptr<ReclaimQueue> reclaim;

  // Of all programs that were compiled here and live, and of the entries' keys.
  std::shared_ptr<ProgramRoom> room;
  // Changed under `mu`, read without it.
  StripedSnapshot<Entries> programs;
  Atomic<uint64_t> age{1};
  struct alignas(64) Counter {
    Atomic<uint64_t> hits{0};
  };
  std::array<Counter, kCounterStripes> counters;

  mutable Mutex mu;
  uint64_t evicted WEIR_GUARDED_BY(mu) = 0;
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
    counters[ThreadNumber() % kCounterStripes].hits.fetch_add(
        1, std::memory_order_relaxed);
  }
  return program;
}

ProgramCache::ProgramOr ProgramCache::State::Compile(const Key& key,
                                                     GraphFactory factory,
                                                     const StopToken& stop) {
  WEIR_RETURN_IF_ERROR(room->Admit(/*own=*/0, stop));
  auto graph = factory();
  if (!graph.ok()) return graph.status();
  ProgramOptions program_options;
  program_options.identity = Fingerprint(*key);
  program_options.evaluation = options.evaluation;
  program_options.room = room;
  program_options.stop = stop;
  program_options.text_device = options.text_device;
  return Program::Compile(*std::move(graph), *device, *registry,
                          program_options);
}

ProgramCache::ProgramOr ProgramCache::State::Make(const Key& key, uint64_t hash,
                                                  GraphFactory factory,
                                                  const StopToken& stop) {
  ProgramOr program = Compile(key, std::move(factory), stop);
  if (!program.ok()) return program;
  // One that alone is too large would evict all else.
  if (key->size() + (*program)->held_bytes() > options.max_bytes) {
    return program;
  }
  MakeRoom(key->size(), stop);
  Insert(key, hash, *program);
  return program;
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
  return !HeldByOthers(entry.program) && !entry.program->has_plans_in_use();
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

void ProgramCache::State::MakeRoom(size_t key_bytes, const StopToken& stop) {
  while (!HasRoom(key_bytes)) {
    const bool place = !HasPlace();  // is wanted, not bytes alone
    if (!Evict(place) && (place || !DropIdlePlan())) return;
    // Its bytes count until it has ended.
    if (reclaim != nullptr && !reclaim->Flush(stop)) return;
  }
}

void ProgramCache::State::Insert(
    const Key& key, uint64_t hash,
    const std::shared_ptr<const Program>& program) {
  MutexLock lock(&mu);
  if (!HasRoom(key->size()) || FindEntry(hash) != nullptr) return;
  // A key may be as large as a message: whoever reads the entry does not wait
  // for its end either.
  std::shared_ptr<Entry> entry =
      ReclaimQueue::Share(std::make_unique<Entry>(), reclaim);
  entry->key = key;
  entry->charge = ByteCharge(room->account(), key->size());
  entry->program = program;
  // A hit from now on makes an entry younger than this one.
  entry->used = age.fetch_add(1, std::memory_order_relaxed);
  auto entries = std::make_shared<Entries>(*programs.Load());
  entries->emplace(hash, std::move(entry));
  programs.Store(std::move(entries));
}

ProgramCache::ProgramCache(Device* device, const OpRegistry* registry,
                           TimerQueue* timers, ProgramCacheOptions options,
                           std::shared_ptr<ReclaimQueue> reclaim,
                           absl::Duration max_wait)
    : state_(std::make_shared<State>(device, registry, options, reclaim)) {
  state_->room = std::make_shared<ProgramRoom>(options.max_bytes,
                                               std::move(reclaim), state_);
  compilations_ = std::make_shared<CompileQueue>(
      state_.get(), timers, CompilationsOf(options, max_wait));
  plans_ = std::make_shared<PlanQueue>(timers, PlansOf(options, max_wait));
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

// The two queues count their waits themselves: those of plans are odd here.
ProgramCache::WaitId ProgramCache::GetOrCompile(
    std::shared_ptr<const std::string> key, KeyHash hash, GraphFactory factory,
    Nanos deadline, absl::AnyInvocable<void(ProgramOr)> done,
    std::string owner) {
  if (key->size() <= kLongStepBytes) {
    if (auto program = state_->Find(hash, *key)) {
      done(std::move(program));
      return 0;
    }
  }
  return 2 * compilations_->Get(std::move(key), hash, std::move(factory),
                                deadline, std::move(done), std::move(owner));
}

ProgramCache::WaitId ProgramCache::MakePlan(
    std::shared_ptr<const Program> program, absl::Span<const HostTensor> inputs,
    Nanos deadline, absl::AnyInvocable<void(PlanOr)> done, std::string owner) {
  return MakePlan(std::move(program),
                  std::vector<HostTensor>(inputs.begin(), inputs.end()),
                  deadline, std::move(done), std::move(owner));
}

ProgramCache::WaitId ProgramCache::MakePlan(
    std::shared_ptr<const Program> program, std::vector<HostTensor> inputs,
    Nanos deadline, absl::AnyInvocable<void(PlanOr)> done, std::string owner) {
  const PlanQueue::WaitId wait =
      plans_->Make(std::move(program), std::move(inputs), deadline,
                   std::move(done), std::move(owner));
  return wait == 0 ? 0 : 2 * wait + 1;
}

void ProgramCache::Cancel(WaitId wait) {
  if (wait % 2 == 0) {
    compilations_->Cancel(wait / 2);
  } else {
    plans_->Cancel(wait / 2);
  }
}

ProgramCacheStats ProgramCache::stats() const {
  ProgramCacheStats stats;
  for (const State::Counter& counter : state_->counters) {
    stats.hits += counter.hits.load(std::memory_order_relaxed);
  }
  const CompileQueue::Stats compilations = compilations_->stats();
  stats.queued = compilations.queued;
  stats.queued_bytes = compilations.queued_bytes;
  stats.running = compilations.running;
  stats.times = compilations.times;
  stats.misses = compilations.misses;
  stats.failed = compilations.failed;
  stats.plans_queued = plans_->queued();
  stats.bytes = state_->room->account()->bytes();
  MutexLock lock(&state_->mu);
  stats.programs = state_->programs.Read(
      [](const Entries& entries) { return entries.size(); });
  stats.evicted = state_->evicted;
  return stats;
}

void ProgramCache::Stop() {
  compilations_->Close();
  plans_->Close();
  compilations_->Stop();
  plans_->Stop();
}

}  // namespace weir
