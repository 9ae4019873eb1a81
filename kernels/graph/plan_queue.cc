#include "kernels/graph/plan_queue.h"

#include <algorithm>
#include <utility>

#include "kernels/base/holders.h"
#include "kernels/graph/wait_limits.h"

namespace weir {

PlanQueue::PlanQueue(TimerQueue* timers, const PlanQueueOptions& options)
    : timers_(timers), options_(options) {
  for (int i = 0; i < options.threads; ++i) {
    const Kind most = i == 0 ? kDear
                      : i + 1 == options.threads && options.threads > 2
                          ? kQuick
                          : kUnknown;
    threads_.emplace_back("weir-plan", [this, most] { Run(most); });
  }
}

PlanQueue::~PlanQueue() { Stop(); }

PlanQueue::WaitId PlanQueue::Make(std::shared_ptr<const Program> program,
                                  std::vector<HostTensor> inputs,
                                  Nanos deadline, Done done,
                                  std::string owner) {
  auto planning = std::make_shared<Planning>();
  planning->inputs = std::move(inputs);
  for (size_t i = 0; i < program->inputs().size(); ++i) {
    if (program->InputOnHost(i)) planning->reads_inputs = true;
  }
  planning->program = std::move(program);
  absl::Status refused;
  {
    MutexLock lock(&mu_);
    refused = CheckRoom(owner);
    if (refused.ok()) {
      const WaitId id = next_wait_++;
      planning->id = id;
      planning->done = std::move(done);
      planning->timer =
          EndWaitLater(*timers_, deadline, options_.max_wait,
                       [weak = weak_from_this(), id](absl::Status status) {
                         const auto alive = HoldIfThere(weak);
                         if (alive != nullptr) {
                           alive->Leave(id, std::move(status));
                         }
                       });
      Enqueue(planning, owner);
      waits_[id] = std::move(planning);
      return id;
    }
  }
  done(refused);
  return 0;
}

// Most of these wait for the same few plans: they are bounded as waiters.
absl::Status PlanQueue::CheckRoom(const std::string& owner) const {
  if (stopping_) return CompileQueueStopping();
  if (queued_ >= options_.max_waiters) {
    return CompileQueueFull("callers wait for plans", "max_waiters",
                            options_.max_waiters);
  }
  const size_t share = turns_.ShareOf(owner).weight;
  if (owner.empty() || share == 0) return absl::OkStatus();
  if (share < options_.max_waiters - queued_) return absl::OkStatus();
  return CompileQueueFull("calls of one client wait for plans", "max_waiters",
                          share);
}

PlanQueue::Kind PlanQueue::KindOf(const Program& program) const {
  const Nanos made = program.last_plan_ns();
  const Nanos longest = std::max(made, program.failed_plan_ns());
  if (absl::Nanoseconds(longest) > options_.quick_plan) return kDear;
  if (made != 0) return kQuick;
  return program.nodes() > kSmallPlanNodes ? kDear : kUnknown;
}

void PlanQueue::Enqueue(const std::shared_ptr<Planning>& planning,
                        const std::string& owner) {
  const uint64_t number = planning->program->number();
  const auto [entry, is_new] = programs_.try_emplace(number);
  Planned& program = entry->second;
  if (is_new) {
    program.number = number;
    program.kind = KindOf(*planning->program);
  }
  Group& group = program.groups[owner];
  planning->group = &group;
  planning->place = group.waiting.insert(group.waiting.end(), planning);
  if (group.of == nullptr) {
    group.of = &program;
    group.place = turns_.Push(owner, &group, 1, program.kind);
  } else {
    turns_.SetWeight(group.place, group.waiting.size());
  }
  ++queued_;
  if (!program.running) work_.NotifyAll();  // not every thread takes it
}

void PlanQueue::Dequeue(Planning& planning) {
  Group& group = *planning.group;
  group.waiting.erase(planning.place);
  --queued_;
  if (!group.waiting.empty()) {
    turns_.SetWeight(group.place, group.waiting.size());
    return;
  }
  Planned& program = *group.of;
  const std::string owner = turns_.owner(group.place);
  turns_.Remove(group.place);
  program.groups.erase(owner);
  if (!program.running && program.groups.empty()) {
    programs_.erase(program.number);
  }
}

std::optional<PlanQueue::Taken> PlanQueue::Take(Kind most) {
  // What an owner waits for of one program is one item, so that few are passed
  // over.
  auto next = turns_.TakeIf({.kinds = most + 1}, [](const Group* group) {
    return !group->of->running;
  });
  if (!next.has_value()) return std::nullopt;
  auto& [group, owner] = *next;
  Planned& program = *group->of;
  Taken taken = {std::move(group->waiting.front()), owner, program.number};
  group->waiting.pop_front();
  --queued_;
  taken.planning->group = nullptr;
  program.running = true;
  if (group->waiting.empty()) {
    program.groups.erase(owner->first);
  } else {
    group->place =
        turns_.Push(owner->first, group, group->waiting.size(), program.kind);
  }
  return taken;
}

void PlanQueue::Ended(const Taken& taken, Kind kind) {
  turns_.Done(taken.owner);
  const auto found = programs_.find(taken.program_number);
  Planned& program = found->second;
  program.running = false;
  if (program.groups.empty()) {
    programs_.erase(found);
    return;
  }
  if (std::exchange(program.kind, kind) != kind) {
    for (auto& [owner, group] : program.groups) {
      turns_.SetKind(group.place, kind);
    }
  }
  work_.NotifyAll();
}

void PlanQueue::Run(Kind most) {
  for (;;) {
    std::optional<Taken> taken;
    {
      MutexLock lock(&mu_);
      for (;;) {
        if (stopping_) return;
        taken = Take(most);
        if (taken.has_value()) break;
        work_.Wait(&mu_);
      }
    }
    MakePlan(*taken);
  }
}

// Callers that asked for the same plan while it was being made find it here.
void PlanQueue::MakePlan(const Taken& taken) {
  Planning& planning = *taken.planning;
  PlanOr plan = planning.program->FindPlan(planning.inputs);
  if (*plan == nullptr) {
    plan =
        planning.program->MakePlan(planning.inputs, planning.stop.get_token());
  }
  const Kind kind = KindOf(*planning.program);
  // Whoever is told may be the last who holds it.
  planning.program = nullptr;
  Done done;
  {
    MutexLock lock(&mu_);
    waits_.erase(planning.id);
    Ended(taken, kind);
    done = std::move(planning.done);
    planning.done = nullptr;
    if (!planning.left.ok()) {
      plan = std::move(planning.left);
    } else if (stopping_ && absl::IsCancelled(plan.status())) {
      plan = CompileQueueStopping();
    }
  }
  timers_->Cancel(planning.timer);
  if (done) done(std::move(plan));
}

void PlanQueue::Leave(WaitId id, absl::Status status) {
  std::shared_ptr<Planning> planning;
  Done done;
  {
    MutexLock lock(&mu_);
    const auto found = waits_.find(id);
    if (found == waits_.end()) return;
    planning = std::move(found->second);
    waits_.erase(found);
    planning->stop.request_stop();
    const bool waits = planning->group != nullptr;
    if (waits) Dequeue(*planning);
    if (waits || !planning->reads_inputs) {
      done = std::move(planning->done);
      planning->done = nullptr;
    } else {
      planning->left = std::move(status);
    }
  }
  timers_->Cancel(planning->timer);
  // Where it was moved from there is nobody to tell.
  if (done) done(std::move(status));  // NOLINT(bugprone-use-after-move)
}

void PlanQueue::Cancel(WaitId wait) { Leave(wait, LeftWhileWaiting()); }

size_t PlanQueue::queued() const {
  MutexLock lock(&mu_);
  return queued_;
}

void PlanQueue::Close() {
  std::vector<WaitId> waiting;
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    for (const auto& [id, planning] : waits_) {
      if (planning->group != nullptr) {
        waiting.push_back(id);
      } else {
        planning->stop.request_stop();
      }
    }
    work_.NotifyAll();
  }
  for (const WaitId id : waiting) Leave(id, CompileQueueStopping());
}

void PlanQueue::Stop() {
  Close();
  std::vector<Thread> threads;
  {
    MutexLock lock(&mu_);
    threads.swap(threads_);
  }
  for (Thread& thread : threads) thread.Join();
}

}  // namespace weir
