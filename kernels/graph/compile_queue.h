// Programs that callers wait for: one compilation for all who want the same
// key, on threads of its own, for one owner after the other, and bounded. What
// nobody waits for any more leaves the queue at once, with its bytes, and ends
// at its next step if it runs. A key may be a whole model: a large one is
// compared and freed on a thread of the queue. Thread-safe; made by
// ProgramCache, shared with timers, which may fire later.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/base/byte_account.h"
#include "kernels/base/clock.h"
#include "kernels/base/export.h"
#include "kernels/base/longest_wait.h"
#include "kernels/base/mutex.h"
#include "kernels/base/reclaimer.h"
#include "kernels/base/stop_token.h"
#include "kernels/base/thread.h"
#include "kernels/base/timer_queue.h"
#include "kernels/base/turn_queue.h"
#include "kernels/graph/graph.h"
#include "kernels/graph/program.h"

namespace weir {

// ProgramCacheOptions has its defaults from here, but for max_wait.
struct CompileQueueOptions {
  size_t max_queued = 256;
  size_t max_queued_bytes = size_t{1} << 30;
  size_t max_waiters = 65536;
  int threads = 1;
  absl::Duration max_wait = absl::Nanoseconds(kLongestWait);
};

class WEIR_EXPORT CompileQueue
    : public std::enable_shared_from_this<CompileQueue> {
 public:
  using Key = std::shared_ptr<const std::string>;
  using ProgramOr = absl::StatusOr<std::shared_ptr<const Program>>;
  using GraphFactory = absl::AnyInvocable<absl::StatusOr<Graph>()>;
  using Done = absl::AnyInvocable<void(ProgramOr)>;
  // A caller that waits. 0: it does not wait (any more).
  using WaitId = uint64_t;

  // Who makes programs and keeps them. Outlives the queue's Stop. Any thread.
  class Maker {
   public:
    // What is kept under the hash, of whichever key: another object once that
    // has changed. Null: nothing.
    virtual std::shared_ptr<const void> Kept(uint64_t hash) const = 0;
    // Null if it is not kept.
    virtual std::shared_ptr<const Program> Find(uint64_t hash,
                                                std::string_view key) = 0;
    // On a thread of the queue. What it keeps is found as soon as it returns.
    virtual ProgramOr Make(const Key& key, uint64_t hash, GraphFactory factory,
                           const StopToken& stop) = 0;

   protected:
    ~Maker() = default;
  };

  // Both outlive its Stop; the timers, the queue.
  CompileQueue(Maker* maker, TimerQueue* timers,
               const CompileQueueOptions& options);
  ~CompileQueue();  // Stop()

  // As ProgramCache::GetOrCompile, but for a small key that is kept, which was
  // looked for. `hash` is the key's.
  WaitId Get(Key key, uint64_t hash, GraphFactory factory, Nanos deadline,
             Done done, std::string owner);
  void Cancel(WaitId wait);

  // How long it took to compile what could be compiled, from the turn of each
  // to its program.
  struct Times {
    // Upper bounds of what `counts` counts; its last is above them all.
    static constexpr std::array<Nanos, 14> kBounds = {
        1'000'000,      5'000'000,      10'000'000,    25'000'000,
        50'000'000,     100'000'000,    250'000'000,   500'000'000,
        1'000'000'000,  2'500'000'000,  5'000'000'000, 10'000'000'000,
        30'000'000'000, 60'000'000'000,
    };
    std::array<uint64_t, kBounds.size() + 1> counts = {};
    uint64_t sum_ns = 0;
  };

  struct Stats {
    // That wait; bytes: as max_queued_bytes.
    size_t queued = 0, queued_bytes = 0;
    size_t running = 0;  // that are being compiled
    uint64_t misses = 0, failed = 0;
    Times times;
  };
  Stats stats() const;

  // Everybody is told: who waits at once, whose program is being compiled when
  // it has ended, which it does at its next step.
  void Close();
  void Stop();  // Close, and waits for that

 private:
  struct Waiter {
    Done done;
    TimerQueue::TimerId timer = 0;
  };
  struct Compilation;
  using Turns = TurnQueue<std::shared_ptr<Compilation>>;
  // One compilation and everyone who waits for it. Ends on the thread of
  // reader_ if its key is large.
  struct Compilation {
    enum class Stage : uint8_t { kArrives, kWaits, kRuns };

    uint64_t hash = 0;
    Key key;
    GraphFactory factory;
    StopSource stop;
    ByteCharge charge;  // for the key
    // Guarded by mu_.
    std::map<WaitId, Waiter> waiters;
    Stage stage = Stage::kArrives;
    std::string owner;   // of the first who asked
    Turns::Place place;  // while it waits
  };

  // Whether its one caller may wait: then under this id. Otherwise nothing was
  // done.
  absl::StatusOr<WaitId> Admit(const std::shared_ptr<Compilation>& arrival,
                               Nanos deadline, Done& done) WEIR_REQUIRES(mu_);
  // Reads the key of what has arrived: its caller is told of a program that is
  // there, or joins another compilation, or waits for this one. False: the
  // caller does not wait any more.
  bool Place(const std::shared_ptr<Compilation>& arrival, WaitId id);
  // Whether more bytes of keys may wait beside those of the queue and so many
  // others.
  absl::Status CheckBytes(size_t more, size_t others) const WEIR_REQUIRES(mu_);
  // Whether what has arrived, whose bytes are counted, may wait there.
  absl::Status CheckQueue(const Compilation& arrival) const WEIR_REQUIRES(mu_);
  // One more of that owner waits for it: it goes to the line where it is next
  // sooner.
  void MoveUp(Compilation& compilation, const std::string& owner)
      WEIR_REQUIRES(mu_);
  // Whom callers of that hash may join; null: nobody.
  std::shared_ptr<Compilation> Joinable(uint64_t hash) const WEIR_REQUIRES(mu_);
  void Run();  // a thread
  void Compile(std::shared_ptr<Compilation> compilation);
  void AddTime(Nanos took) WEIR_REQUIRES(mu_);
  // The caller alone gets `status`, and what nobody waits for then is given up.
  void Leave(WaitId id, absl::Status status);
  // Nobody waits for it: out of the queue, or to its end.
  void GiveUp(Compilation& compilation) WEIR_REQUIRES(mu_);

  Maker* const maker_;
  TimerQueue* const timers_;
  const CompileQueueOptions options_;
  // Compares and frees large keys, until Stop.
  std::unique_ptr<Reclaimer> reader_ = std::make_unique<Reclaimer>();
  const std::shared_ptr<ReclaimQueue> reading_ = reader_->queue();
  const std::shared_ptr<ByteAccount> keys_ = std::make_shared<ByteAccount>();

  mutable Mutex mu_;
  CondVar work_;
  bool stopping_ WEIR_GUARDED_BY(mu_) = false;
  WaitId next_wait_ WEIR_GUARDED_BY(mu_) = 1;
  std::unordered_map<WaitId, std::shared_ptr<Compilation>> waits_
      WEIR_GUARDED_BY(mu_);
  size_t arriving_ WEIR_GUARDED_BY(mu_) = 0;  // large keys, not yet read
  Turns queue_ WEIR_GUARDED_BY(mu_);
  // What callers may join, queued or running, by its key's hash. Who waits for
  // another key of that hash, waits alone.
  std::unordered_map<uint64_t, std::shared_ptr<Compilation>> compiling_
      WEIR_GUARDED_BY(mu_);
  uint64_t misses_ WEIR_GUARDED_BY(mu_) = 0;
  uint64_t failed_ WEIR_GUARDED_BY(mu_) = 0;
  size_t running_ WEIR_GUARDED_BY(mu_) = 0;
  Times times_ WEIR_GUARDED_BY(mu_);
  std::vector<Thread> threads_;  // until Stop
};

}  // namespace weir
