// What scenarios are made of: an engine on a SimDevice, or several such,
// contexts, and works whose results a sequential model knows. Everything that a
// scenario does goes through here, so that the invariants (invariants.cc names
// each with its source) hold for all of them.
//
// A work computes one 64-bit number from its salt and up to two others' results
// (or nothing): whoever reads nonsense, too early, or what was freed, ends with
// another number than the model.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "kernels/base/atomic.h"
#include "kernels/eval/engine.h"
#include "kernels/eval/eval_context.h"
#include "tests/sim/sim_device.h"

namespace weir::sim {

class World;

// Which program a work runs.
struct ProgramKind {
  int launches = 1;
  bool two_outputs = false;
  friend auto operator<=>(const ProgramKind&, const ProgramKind&) = default;
};

// One work from its making to its end, and what is known of it.
class SimWork final : public WorkObserver {
 public:
  enum class Result : uint8_t { kInline, kKept, kDropped };

  SimWork(World* world, uint64_t salt);
  ~SimWork() override;

  // What it is to be, before it is submitted.
  void ReadProducer(SimWork& producer);  // of the same context
  void ReadTensor(SimWork& producer);    // that has launched, of any context
  void After(Point point) { work_->request.after.push_back(std::move(point)); }
  void After(SimWork& other);  // that was accepted
  // It comes after a point that has the other's outcome.
  void Follow(SimWork& other) { follows_.push_back(&other); }
  // A timeline of the caller's at 1, when it is done.
  Point Signal();
  void set_result(Result result) { result_ = result; }
  void set_mode(EvalMode mode) { work_->request.mode = mode; }
  void set_deadline(Nanos deadline) { work_->request.deadline = deadline; }
  // Its kernel finds a fault.
  void set_faulty() { faulty_ = true; }
  // It reads what lies on another device: if all goes well up to there it is
  // refused, by that name.
  void set_misplaced() { misplaced_ = true; }
  // With so many launches (of 64 that a lane has room for).
  void set_launches(int launches) { program_.launches = launches; }
  // It has a second output, the same number again, which is kept too if the
  // first is.
  void set_two_outputs() { program_.two_outputs = true; }

  void Submit(Activation& activation);
  void Defer(Activation& activation);
  void Cancel();

  void WaitScheduled();
  void WaitReturned();
  void WaitDone();
  bool launched() const { return launched_ > 0; }
  // When done.
  const absl::Status& status() const { return status_; }
  bool keeps() const { return result_ == Result::kKept; }
  bool accepted() const { return !end_->is_null(); }
  EvalMode mode() const {
    return work_->request.mode.value_or(EvalMode::kEager);
  }
  Point point() const { return work_->point(); }
  const std::shared_ptr<Work>& work() const { return work_; }
  // Nobody but the context holds the work from here on.
  void Abandon();

 private:
  friend class World;
  friend class MixPlan;
  void Fill(EvalContext& context);
  void BeginKernel(const std::array<uint64_t, 3>& in);
  void EndKernel(const std::array<uint64_t, 3>& in);
  void CheckThread() const;
  std::string Describe() const;
  void OnReturn(Work& work) override;
  absl::Status OnPlanned(Work& work) override;
  void OnLaunch(Work& work) override;
  void OnDone(Work& work) override;

  World* const world_;
  const uint64_t salt_;
  std::shared_ptr<Work> work_;
  std::vector<SimWork*> reads_;  // whose results it reads
  std::vector<SimWork*>
      follows_;  // whose failure it inherits: those, and after
  Result result_ = Result::kInline;
  bool faulty_ = false;
  bool misplaced_ = false;
  ProgramKind program_;
  Nanos deadline_ = kNoDeadline;
  std::array<uint64_t, 3> bytes_ = {};  // its inputs
  std::vector<std::pair<std::shared_ptr<Timeline>, uint64_t>> signals_;
  HeldPoint end_;  // its own point, once accepted

  bool submitted_ = false;
  size_t engine_ = 0;
  uint64_t context_ = 0;  // its number
  bool deferred_ = false;
  bool droppable_ = false;  // deferred, and nobody is going to run it
  bool cancelled_ = false;
  Atomic<int> returned_{0};
  Atomic<bool> done_{false};
  int launched_ = 0;
  Atomic<bool> computes_{false};     // its kernel has begun
  std::array<uint64_t, 3> in_ = {};  // what that has read
  int runs_ = 0;                     // of it
  size_t joined_works_ = 0;  // when done: with which it ran as one; 0: alone
  absl::Status status_;
};

struct WorldOptions {
  size_t engines = 1;  // each has a device of its own
  size_t lanes = 2;
  // On the tree's own CPU device, whose workers are logical threads then, in
  // place of a SimDevice.
  bool cpu = false;
  DeviceFaults faults = {};
  size_t tensor_bytes = size_t{1} << 20;
  size_t pinned_bytes = size_t{1} << 20;
  size_t max_parked = 64;
  // Whether idle lanes go in time; else no timer of a pool's is left at the
  // end.
  bool trims = false;
  // Whether works bring their graphs, so that Flush joins them.
  bool graphs = false;
};

class World {
 public:
  explicit World(const WorldOptions& options = {});
  // What is left must be done; then the invariants of an end are looked at.
  ~World();

  // REQUIRES: it is not the CPU.
  SimDevice& device(size_t engine = 0) { return *sites_[engine].device; }
  std::shared_ptr<EvalContext> MakeContext(EvalMode mode = EvalMode::kEager,
                                           size_t engine = 0);
  // As a handler of its own; a failure if somebody is inside.
  Activation Enter(EvalContext& context);
  void Leave(Activation& activation);
  // Lets go of a context: deferred works that nobody flushed for are dropped
  // with it.
  void Close(std::shared_ptr<EvalContext>& context);
  // Those that hold the context, for whoever enters otherwise.
  void NoteEntered(const EvalContext& context);
  void NoteLeft(const EvalContext& context);
  // Lives as long as the world.
  SimWork& MakeWork();
  // Of the host, at 0; the world holds it, too.
  std::shared_ptr<Timeline> MakeTimeline();

  // The scenario begins: from here on its threads are switched at every step,
  // and the invariants are looked at after each.
  // The programs of the works that were made are compiled before.
  void Begin();
  // It is over: everything goes on to its end.
  void End();

  // That the device, or memory, may fail works at any time.
  void ExpectErrors() { errors_expected_ = true; }

 private:
  friend class SimWork;
  friend class MixPlan;

  // An engine, and what is its own.
  struct Site {
    SimDevice* device = nullptr;  // null: it is the CPU
    std::unique_ptr<Engine> engine;
    std::map<ProgramKind, std::shared_ptr<const Program>> programs;
  };

  void CheckStep();
  void CheckEnd();
  void CheckEnd(const SimWork& work) const;
  void CheckNoWaits(const Timeline& timeline) const;
  bool HasCause(const SimWork& work) const;
  bool MayRunTwice(const SimWork& work) const;
  uint64_t Expected(const SimWork& work) const;
  // Null: no work's, so what a kernel reads is nonsense.
  SimWork* WorkOf(uint64_t salt) const;
  Site MakeSite();
  size_t SiteOf(const Engine& engine) const;
  std::shared_ptr<const Program> ProgramFor(const ProgramKind& kind,
                                            size_t engine);
  const std::shared_ptr<const Graph>& GraphFor(const ProgramKind& kind);

  const WorldOptions options_;
  OpRegistry registry_;
  std::vector<Site> sites_;
  std::map<ProgramKind, std::shared_ptr<const Graph>> graphs_;
  std::vector<std::unique_ptr<SimWork>> works_;
  std::vector<std::shared_ptr<Timeline>> timelines_;
  std::map<uint64_t, int> inside_;  // handlers, by context
  std::map<std::pair<size_t, uint64_t>, std::pair<uint64_t, uint64_t>>
      leases_;  // generation and context, by engine and stream
  bool errors_expected_ = false;
};

// The next result of a chain, in kernels and in the model.
uint64_t MixResult(uint64_t salt, uint64_t a, uint64_t b);

}  // namespace weir::sim
