#include "kernels/graph/program_cache.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/error_info.h"
#include "kernels/base/fingerprint.h"
#include "kernels/base/mutex.h"
#include "kernels/base/striped_snapshot.h"

namespace weir {
namespace {

constexpr size_t kCounterStripes = 16;

using Key = std::shared_ptr<const std::string>;
using KeyPieces = ProgramCache::KeyPieces;

// Of a large key a hash sees so many places, and so much of each: reading all
// of it, only to compare it afterwards, would cost as much again.
constexpr size_t kSamples = 64;
constexpr size_t kSampleBytes = 64;

size_t SizeOf(KeyPieces key) {
  size_t size = 0;
  for (std::string_view piece : key) size += piece.size();
  return size;
}

// Reads a key in pieces at growing places.
class PieceReader {
 public:
  explicit PieceReader(KeyPieces key) : key_(key) {}

  // REQUIRES: the bytes are there, and `at` is not below that of before.
  void Read(size_t at, size_t bytes, char* out) {
    while (at >= start_ + key_[piece_].size()) {
      start_ += key_[piece_++].size();
    }
    size_t piece = piece_;
    size_t skipped = at - start_;
    while (bytes > 0) {
      const std::string_view part = key_[piece++].substr(skipped, bytes);
      std::memcpy(out, part.data(), part.size());
      out += part.size();
      bytes -= part.size();
      skipped = 0;
    }
  }

 private:
  const KeyPieces key_;
  size_t piece_ = 0;
  size_t start_ = 0;  // of the piece
};

uint64_t SampledHash(KeyPieces key) {
  const size_t size = SizeOf(key);
  const size_t samples =
      std::min(kSamples, (size + kSampleBytes - 1) / kSampleBytes);
  uint64_t hash = size;
  PieceReader reader(key);
  char sample[kSampleBytes];
  for (size_t i = 0; i < samples; ++i) {
    const size_t bytes = std::min(size, kSampleBytes);
    // Evenly, from the first byte to the last.
    const size_t at = samples == 1 ? 0 : (size - bytes) / (samples - 1) * i;
    reader.Read(i + 1 == samples ? size - bytes : at, bytes, sample);
    hash = Fingerprint({sample, bytes}, hash);
  }
  return hash;
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
  std::shared_ptr<const Program> program;
  size_t bytes = 0;  // changed and read under State::mu
  std::atomic<uint64_t> used{0};
};

using Entries = std::unordered_multimap<uint64_t, std::shared_ptr<Entry>>;

absl::Status QueueFull(size_t limit, const char* what) {
  return WithRetryAfter(
      WithReason(absl::ResourceExhaustedError(absl::StrCat(
                     "more than ", limit, " ", what, " compilations")),
                 "COMPILE_QUEUE_FULL"),
      absl::Milliseconds(200));
}

absl::Status Stopping() {
  return absl::CancelledError("the program cache is stopping");
}

}  // namespace

// Shared with timers, which may fire while the cache goes.
struct ProgramCache::State {
  struct Waiter {
    absl::AnyInvocable<void(ProgramOr)> done;
    TimerQueue::TimerId timer = 0;
  };
  // One compilation and everyone who waits for it.
  struct Compilation {
    Key key;
    GraphFactory factory;
    std::map<uint64_t, Waiter> waiters;
  };
  struct Planning {
    std::shared_ptr<const Program> program;
    absl::Span<const HostTensor> inputs;
    absl::AnyInvocable<void(PlanOr)> done;
  };
  struct Job {
    std::shared_ptr<Compilation> compilation;  // or:
    Planning planning;
  };

  State(Device* the_device, const OpRegistry* the_registry,
        TimerQueue* the_timers, ProgramCacheOptions the_options)
      : device(the_device),
        registry(the_registry),
        timers(the_timers),
        options(the_options),
        programs(std::make_shared<const Entries>()) {}

  std::shared_ptr<const Program> Find(KeyPieces key);
  void Compile(const std::shared_ptr<Compilation>& compilation);
  // Returns what had to go, for the caller to drop without the lock.
  std::vector<std::shared_ptr<Entry>> Insert(
      Key key, std::shared_ptr<const Program> program) WEIR_REQUIRES(mu);
  void Expire(std::string_view key, const Compilation* compilation,
              uint64_t waiter);
  void MakePlan(Planning& planning);
  // Counts what `program` holds by now, if it is kept, and lets go of what does
  // not fit any more.
  void Recount(const Program* program);
  // Takes out the least recently used. REQUIRES: there are some.
  std::shared_ptr<Entry> TakeOldest(Entries* entries) WEIR_REQUIRES(mu);
  void Work();

  Device* const device;
  const OpRegistry* const registry;
  TimerQueue* const timers;
  const ProgramCacheOptions options;

  // Changed under `mu`, read without it.
  StripedSnapshot<Entries> programs;
  std::atomic<uint64_t> age{1};
  struct alignas(64) Counter {
    std::atomic<uint64_t> hits{0};
  };
  std::array<Counter, kCounterStripes> counters;

  mutable Mutex mu;
  CondVar work;
  bool stopping WEIR_GUARDED_BY(mu) = false;
  uint64_t next_waiter WEIR_GUARDED_BY(mu) = 1;
  size_t waiting WEIR_GUARDED_BY(mu) = 0;
  std::deque<Job> queue WEIR_GUARDED_BY(mu);
  size_t compilations_queued WEIR_GUARDED_BY(mu) = 0;  // of those
  size_t queued_key_bytes WEIR_GUARDED_BY(mu) = 0;     // of those
  // The key's bytes lie in the compilation.
  std::map<std::string_view, std::shared_ptr<Compilation>> compiling
      WEIR_GUARDED_BY(mu);
  size_t bytes WEIR_GUARDED_BY(mu) = 0;
  uint64_t misses WEIR_GUARDED_BY(mu) = 0;
  uint64_t evicted WEIR_GUARDED_BY(mu) = 0;
  uint64_t failed WEIR_GUARDED_BY(mu) = 0;
  std::vector<std::thread> threads;
};

std::shared_ptr<const Program> ProgramCache::State::Find(KeyPieces key) {
  const uint64_t hash = SampledHash(key);
  const uint64_t now = age.load(std::memory_order_relaxed);
  auto program = programs.Read(
      [&](const Entries& entries) -> std::shared_ptr<const Program> {
        const auto [first, last] = entries.equal_range(hash);
        for (auto it = first; it != last; ++it) {
          Entry& entry = *it->second;
          if (!Equal(*entry.key, key)) continue;
          if (entry.used.load(std::memory_order_relaxed) != now) {
            entry.used.store(now, std::memory_order_relaxed);
          }
          return entry.program;
        }
        return nullptr;
      });
  if (program != nullptr) {
    counters[ThreadStripe() % kCounterStripes].hits.fetch_add(
        1, std::memory_order_relaxed);
  }
  return program;
}

void ProgramCache::State::Compile(
    const std::shared_ptr<Compilation>& compilation) {
  const ProgramOr program = [&]() -> ProgramOr {
    auto graph = compilation->factory();
    if (!graph.ok()) return graph.status();
    ProgramOptions program_options;
    program_options.identity = Fingerprint(*compilation->key);
    program_options.evaluation = options.evaluation;
    program_options.text_device = options.text_device;
    return Program::Compile(*std::move(graph), *device, *registry,
                            program_options);
  }();
  compilation->factory = nullptr;
  std::map<uint64_t, Waiter> waiters;
  std::vector<std::shared_ptr<Entry>> gone;
  {
    MutexLock lock(&mu);
    if (program.ok()) {
      gone = Insert(compilation->key, *program);
    } else {
      ++failed;
    }
    compiling.erase(*compilation->key);
    waiters.swap(compilation->waiters);
    waiting -= waiters.size();
  }
  for (auto& [id, waiter] : waiters) {
    timers->Cancel(waiter.timer);
    waiter.done(program);
  }
}

std::vector<std::shared_ptr<Entry>> ProgramCache::State::Insert(
    Key key, std::shared_ptr<const Program> program) {
  auto entry = std::make_shared<Entry>();
  entry->bytes = key->size() + program->held_bytes();
  const std::string_view whole = *key;
  const uint64_t hash = SampledHash({&whole, 1});
  entry->key = std::move(key);
  entry->program = std::move(program);
  // A hit from now on makes an entry younger than this one.
  entry->used = age.fetch_add(1, std::memory_order_relaxed);
  if (entry->bytes > options.max_bytes) return {};  // it would evict all else
  std::vector<std::shared_ptr<Entry>> gone;
  auto entries = std::make_shared<Entries>(*programs.Load());
  while (!entries->empty() && (entries->size() >= options.max_programs ||
                               bytes + entry->bytes > options.max_bytes)) {
    gone.push_back(TakeOldest(entries.get()));
  }
  bytes += entry->bytes;
  entries->emplace(hash, std::move(entry));
  programs.Store(std::move(entries));
  return gone;
}

std::shared_ptr<Entry> ProgramCache::State::TakeOldest(Entries* entries) {
  auto oldest = entries->begin();
  for (auto it = entries->begin(); it != entries->end(); ++it) {
    if (it->second->used.load(std::memory_order_relaxed) <
        oldest->second->used.load(std::memory_order_relaxed)) {
      oldest = it;
    }
  }
  std::shared_ptr<Entry> taken = oldest->second;
  bytes -= taken->bytes;
  entries->erase(oldest);
  ++evicted;
  return taken;
}

void ProgramCache::State::Recount(const Program* program) {
  const size_t held = program->held_bytes();
  std::vector<std::shared_ptr<Entry>> gone;
  MutexLock lock(&mu);
  const std::shared_ptr<const Entries> kept = programs.Load();
  for (const auto& [hash, entry] : *kept) {
    if (entry->program.get() != program) continue;
    bytes -= entry->bytes;
    entry->bytes = entry->key->size() + held;
    bytes += entry->bytes;
  }
  if (bytes <= options.max_bytes) return;
  auto entries = std::make_shared<Entries>(*kept);
  while (!entries->empty() && bytes > options.max_bytes) {
    gone.push_back(TakeOldest(entries.get()));
  }
  programs.Store(std::move(entries));
}

void ProgramCache::State::Expire(std::string_view key,
                                 const Compilation* compilation,
                                 uint64_t waiter) {
  Waiter expired;
  {
    MutexLock lock(&mu);
    const auto it = compiling.find(key);
    if (it == compiling.end() || it->second.get() != compilation) return;
    const auto found = it->second->waiters.find(waiter);
    if (found == it->second->waiters.end()) return;
    expired = std::move(found->second);
    it->second->waiters.erase(found);
    --waiting;
  }
  expired.done(absl::DeadlineExceededError(
      "the deadline passed while the program was compiled"));
}

void ProgramCache::State::Work() {
  for (;;) {
    Job job;
    {
      MutexLock lock(&mu);
      while (queue.empty() && !stopping) work.Wait(&mu);
      if (stopping) return;
      job = std::move(queue.front());
      queue.pop_front();
      if (job.compilation != nullptr) {
        --compilations_queued;
        queued_key_bytes -= job.compilation->key->size();
      }
    }
    if (job.compilation != nullptr) {
      Compile(job.compilation);
    } else {
      MakePlan(job.planning);
    }
  }
}

// Callers that asked for the same plan while it was being made find it here.
void ProgramCache::State::MakePlan(Planning& planning) {
  if (auto plan = planning.program->FindPlan(planning.inputs)) {
    planning.done(std::move(plan));
  } else {
    PlanOr made = planning.program->MakePlan(planning.inputs);
    Recount(planning.program.get());
    planning.done(std::move(made));
  }
}

ProgramCache::ProgramCache(Device* device, const OpRegistry* registry,
                           TimerQueue* timers, ProgramCacheOptions options)
    : state_(std::make_shared<State>(device, registry, timers, options)) {
  for (int i = 0; i < options.threads; ++i) {
    // Joined by Stop, so that the bare pointer will do.
    state_->threads.emplace_back([state = state_.get()] { state->Work(); });
  }
}

ProgramCache::~ProgramCache() { Stop(); }

std::shared_ptr<const Program> ProgramCache::Find(KeyPieces key) {
  return state_->Find(key);
}

void ProgramCache::GetOrCompile(std::shared_ptr<const std::string> key,
                                GraphFactory factory, Nanos deadline,
                                absl::AnyInvocable<void(ProgramOr)> done) {
  const std::string_view whole = *key;
  if (auto program = Find(whole)) return done(std::move(program));
  State& state = *state_;
  std::shared_ptr<const Program> found;
  absl::Status refused;
  {
    MutexLock lock(&state.mu);
    // It may have been finished between the look-up and the lock.
    found = state.Find({&whole, 1});
    const auto running = state.compiling.find(whole);
    const bool fresh = running == state.compiling.end();
    const size_t queued_bytes = state.queued_key_bytes + key->size();
    if (found != nullptr) {
      refused = absl::OkStatus();
    } else if (state.stopping) {
      refused = Stopping();
    } else if (state.waiting >= state.options.max_waiters) {
      refused = QueueFull(state.options.max_waiters, "callers wait for");
    } else if (fresh && state.compilations_queued >= state.options.max_queued) {
      refused = QueueFull(state.options.max_queued, "graphs wait for");
    } else if (fresh && state.compilations_queued > 0 &&
               queued_bytes > state.options.max_queued_bytes) {
      refused =
          QueueFull(state.options.max_queued_bytes, "bytes of graphs wait for");
    } else {
      ++state.misses;
      std::shared_ptr<State::Compilation> compilation;
      if (fresh) {
        compilation = std::make_shared<State::Compilation>();
        compilation->key = key;
        compilation->factory = std::move(factory);
        state.compiling.emplace(whole, compilation);
        state.queue.push_back({compilation, {}});
        ++state.compilations_queued;
        state.queued_key_bytes = queued_bytes;
        state.work.NotifyOne();
      } else {
        compilation = running->second;
      }
      const uint64_t id = state.next_waiter++;
      State::Waiter& waiter = compilation->waiters[id];
      waiter.done = std::move(done);
      ++state.waiting;
      // The timer only takes the lock of the state it may outlive.
      waiter.timer = state.timers->Add(
          deadline, [weak = std::weak_ptr<State>(state_), key = std::move(key),
                     raw = compilation.get(), id] {
            if (const auto alive = weak.lock()) alive->Expire(*key, raw, id);
          });
      return;
    }
  }
  if (found != nullptr) return done(std::move(found));
  done(refused);
}

void ProgramCache::MakePlan(std::shared_ptr<const Program> program,
                            absl::Span<const HostTensor> inputs,
                            absl::AnyInvocable<void(PlanOr)> done) {
  absl::Status refused;
  {
    MutexLock lock(&state_->mu);
    if (state_->stopping) {
      refused = Stopping();
    } else if (state_->queue.size() >= state_->options.max_waiters) {
      refused = QueueFull(state_->options.max_waiters, "callers wait for");
    } else {
      // Most of these wait for the same few plans: they are bounded as waiters.
      state_->queue.push_back(
          {nullptr, {std::move(program), inputs, std::move(done)}});
      state_->work.NotifyOne();
      return;
    }
  }
  done(refused);
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
  stats.bytes = state_->bytes;
  stats.misses = state_->misses;
  stats.evicted = state_->evicted;
  stats.failed = state_->failed;
  return stats;
}

void ProgramCache::Stop() {
  std::deque<State::Job> dropped;
  std::vector<std::thread> threads;
  {
    MutexLock lock(&state_->mu);
    state_->stopping = true;
    dropped.swap(state_->queue);
    threads.swap(state_->threads);
    state_->work.NotifyAll();
  }
  for (State::Job& job : dropped) {
    if (job.compilation == nullptr) {
      job.planning.done(Stopping());
      continue;
    }
    std::map<uint64_t, State::Waiter> waiters;
    {
      MutexLock lock(&state_->mu);
      state_->compiling.erase(*job.compilation->key);
      waiters.swap(job.compilation->waiters);
      state_->waiting -= waiters.size();
    }
    for (auto& [id, waiter] : waiters) {
      state_->timers->Cancel(waiter.timer);
      waiter.done(Stopping());
    }
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace weir
