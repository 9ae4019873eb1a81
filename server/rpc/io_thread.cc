#include "server/rpc/io_thread.h"

#include <grpc/support/time.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/time/clock.h"
#include "kernels/base/steady_time.h"
#include "kernels/base/thread_role.h"
#include "server/rpc/raw_service.h"
#include "server/rpc/socket_cork.h"
#include "server/rpc/unary_call.h"

namespace weir {
namespace {

constexpr int kRareCalls = 2;
constexpr int kHeavyCalls = 64;

// A call whose message has not come so long after its headers may take long.
constexpr Nanos kSoon = 1'000'000;
// Events that are handled at most while a reply waits for others.
constexpr int kCorkedEvents = 16;

constexpr Nanos kLongestSweep = 1'000'000'000;
constexpr Nanos kShortestSweep = 5'000'000;
// A thread that always has events looks at the clock after so many.
constexpr uint32_t kEventsPerLook = 64;
// So long it runs what was posted before it looks for events, and so long it
// handles those before it goes on with the rest.
constexpr Nanos kNodeSlice = 1'000'000;
// Shorter ones between two waits for events are what it is to be busy: replies
// are sent in each of those.
constexpr Nanos kShortestStall = 10'000'000;

Nanos SweepPeriod(const CallPolicy& policy) {
  const Nanos shortest = std::min(policy.receive_timeout, policy.send_timeout);
  return std::clamp(shortest / 8, kShortestSweep, kLongestSweep);
}

}  // namespace

IoThread::IoThread(std::unique_ptr<grpc::ServerCompletionQueue> queue,
                   const CallPolicy* policy, CallCounts* counts)
    : policy_(*policy),
      counts_(*counts),
      sweep_period_(SweepPeriod(*policy)),
      queue_(std::move(queue)),
      alarm_event_(
          [](void* self, bool) { static_cast<IoThread*>(self)->OnAlarm(); },
          this) {
  close_node_.io = this;
  close_node_.run = [](InboxNode* node) {
    static_cast<CloseNode*>(node)->io->closing_ = true;
  };
  pulse_node_.run = [](InboxNode* node) {
    static_cast<PulseNode*>(node)->asked.store(false,
                                               std::memory_order_release);
  };
}

IoThread::~IoThread() {
  for (UnaryCall* call : free_calls_) delete call;
}

void IoThread::Start(grpc_server* server,
                     const std::vector<std::unique_ptr<RawService>>& services) {
  server_ = server;
  for (const std::unique_ptr<RawService>& service : services) {
    for (size_t i = 0; i < service->methods().size(); ++i) {
      const bool heavy = service->methods()[i].traffic == Traffic::kHeavy;
      for (int n = heavy ? kHeavyCalls : kRareCalls; n > 0; --n) {
        RequestCall(service.get(), static_cast<int>(i));
      }
    }
  }
  thread_ = Thread("weir-io", [this] {
    Run();
    const MutexLock lock(&end_mu_);
    ended_ = true;
    end_.NotifyAll();
  });
}

void IoThread::EndRequests() {
  const MutexLock lock(&requests_mu_);
  requests_ended_ = true;
}

// Closing begins on the thread itself: see MayShutDown.
void IoThread::BeginStop(absl::Duration patience) {
  patience_ = patience;
  Post(&close_node_);
}

bool IoThread::AwaitEnd(absl::Duration limit) {
  if (!thread_.Joinable()) return true;
  if (limit != absl::InfiniteDuration()) {
    const auto until =
        std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(limit);
    const MutexLock lock(&end_mu_);
    while (!ended_) {
      if (!end_.WaitUntil(&end_mu_, until) && !ended_) return false;
    }
  }
  thread_.Join();
  return true;
}

bool IoThread::Post(InboxNode* node) {
  return inbox_.Post(node, [this] {
    alarm_.Set(queue_.get(), gpr_time_0(GPR_CLOCK_MONOTONIC), &alarm_event_);
  });
}

int IoThread::Pulse() {
  if (pulse_node_.asked.load(std::memory_order_acquire)) {
    return ++pulses_missed_;
  }
  pulses_missed_ = 0;
  pulse_node_.asked.store(true, std::memory_order_relaxed);
  if (!Post(&pulse_node_)) {  // it has ended
    pulse_node_.asked.store(false, std::memory_order_relaxed);
  }
  return 0;
}

void IoThread::Run() {
  const ScopedThreadRole role(ThreadRole::kIo);
  using Next = grpc::CompletionQueue::NextStatus;
  void* tag = nullptr;
  bool ok = false;
  int corked = 0;  // events since a reply waits
  for (uint32_t rounds = 0;;) {
    BeginWait();
    const bool holds = SocketCork::held() > 0;
    if (!holds) corked = 0;
    Next next = queue_->AsyncNext(
        &tag, &ok, holds ? gpr_inf_past(GPR_CLOCK_MONOTONIC) : WaitUntil());
    if (holds && (next == Next::TIMEOUT || ++corked == kCorkedEvents)) {
      SocketCork::Pull();
      corked = 0;
    }
    if (holds && next == Next::TIMEOUT && !has_work()) {
      next = queue_->AsyncNext(&tag, &ok, WaitUntil());
    }
    EndWait();
    if (next == Next::SHUTDOWN) break;
    if (next == Next::TIMEOUT && !has_work()) {
      Sweep(policy_.now());
      continue;
    }
    if (next == Next::GOT_EVENT) {
      static_cast<const IoEvent*>(tag)->Handle(ok);
      if (!nodes_.empty() && policy_.now() < events_until_) continue;
    }
    if (!inbox_.empty()) nodes_.Append(inbox_.TakeAll());
    RunNodes();
    RunTurn();
    if (closing_) MayShutDown();
    const bool look = has_work() || ++rounds % kEventsPerLook == 0;
    if (look && policy_.now() >= sweep_at_) {
      BeginWait();
      Sweep(policy_.now());
    }
  }
  SocketCork::Pull();
  AwaitAnswers();
  nodes_.Append(inbox_.Close());
  while (has_work()) {
    RunNodes();
    RunTurn();
  }
}

void IoThread::AwaitTurn(InboxNode* node) {
  node->next = nullptr;
  turns_.Append(node);
}

void IoThread::RunTurn() {
  if (turns_.empty()) return;
  InboxNode* const node = turns_.Pop();
  SocketCork::Pull();
  node->run(node);
}

bool IoThread::ExpectsReplies(Nanos now) const {
  return !nodes_.empty() ||
         (!receiving_.empty() && now - receiving_.newest()->since() < kSoon);
}

gpr_timespec IoThread::WaitUntil() const {
  if (has_work()) return gpr_inf_past(GPR_CLOCK_MONOTONIC);
  const bool nobody = receiving_.empty() && !awaits_readers();
  return nobody ? gpr_inf_future(GPR_CLOCK_MONOTONIC) : sweep_time_;
}

void IoThread::BeginWait() {
  if (awaits_readers()) {
    const Nanos now = policy_.now();
    for (CallList* const list : {&sending_, &cut_}) {
      if (list->empty()) continue;
      const Nanos from = std::max(waited_until_, list->oldest()->since());
      if (now - from >= kShortestStall) list->PutOff(waited_until_, now);
    }
    waited_until_ = now;
  }
  receiving_.PublishSize();
  sending_.PublishSize();
}

void IoThread::EndWait() {
  if (awaits_readers()) waited_until_ = policy_.now();
}

void IoThread::Sweep(Nanos now) {
  UnaryCall::CutUploads(*this, now);
  UnaryCall::CutReplies(*this, now);
  UnaryCall::EndStuck(*this, now);
  sweep_at_ = now + sweep_period_;
  sweep_time_ = gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                             gpr_time_from_nanos(sweep_period_, GPR_TIMESPAN));
}

// Work that was launched drains even if its call was cancelled, and posts here
// when it is done. Nothing rings any more: the queue is gone.
void IoThread::AwaitAnswers() {
  const absl::Duration limit = SteadyNow() + patience_;
  while (open_calls() > 0 && SteadyNow() < limit) {
    if (inbox_.empty() && !has_work()) {
      absl::SleepFor(absl::Milliseconds(1));
    }
    nodes_.Append(inbox_.TakeAll());
    RunNodes();
    RunTurn();
  }
}

void IoThread::RunNodes() {
  Nanos until = 0;
  while (!nodes_.empty()) {
    InboxNode* const node = nodes_.Pop();
    // One alone is not worth a look at the clock.
    if (!nodes_.empty() && until == 0) until = policy_.now() + kNodeSlice;
    node->run(node);
    if (nodes_.empty()) return;
    if (const Nanos now = policy_.now(); now >= until) {
      events_until_ = now + kNodeSlice;
      return;
    }
  }
}

// The nodes are run after it.
void IoThread::OnAlarm() { inbox_.Heard(); }

// A queue that is shut down takes neither an alarm nor an answer. So nobody may
// be about to ring, and no call may be left of which gRPC has yet to say that
// it is over: from then on UnaryCall sends no answer.
void IoThread::MayShutDown() {
  if (shut_down_ || owed_ > 0 || !inbox_.Mute()) return;
  shut_down_ = true;
  queue_->Shutdown();
}

void IoThread::RequestCall(RawService* service, int index) {
  const MutexLock lock(&requests_mu_);
  if (requests_ended_) return;
  UnaryCall* call = nullptr;
  if (free_calls_.empty()) {
    call = new UnaryCall(this);
  } else {
    call = free_calls_.back();
    free_calls_.pop_back();
  }
  if (!call->Request(service, index)) Recycle(call);
}

void IoThread::Recycle(UnaryCall* call) {
  call->Clear();
  if (free_calls_.size() < kMaxFreeCalls) {
    free_calls_.push_back(call);
  } else {
    delete call;
  }
}

}  // namespace weir
