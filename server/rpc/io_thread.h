// One thread with a completion queue of its own. It takes calls, runs handlers,
// writes replies, and runs what other threads post to it. Calls never move to
// another thread, and I/O threads share little. Made and stopped by Transport;
// Post and the counts from any thread, the rest from the thread itself.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/completion_queue.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "kernels/base/mutex.h"
#include "kernels/base/thread.h"
#include "server/rpc/call_list.h"
#include "server/rpc/call_policy.h"
#include "server/rpc/inbox.h"
#include "server/rpc/key_counts.h"

struct grpc_server;

namespace weir {

class RawService;
class UnaryCall;
struct Method;

// What a completion queue returns: who waits for it. A tag of gRPC's core and
// of its C++ classes alike.
class IoEvent final : public grpc::internal::CompletionQueueTag {
 public:
  using HandleFn = void (*)(void* owner, bool ok);

  IoEvent(HandleFn handle, void* owner) : handle_(handle), owner_(owner) {}

  void Handle(bool ok) const { handle_(owner_, ok); }
  bool FinalizeResult(void** tag, bool*) override {
    *tag = this;
    return true;
  }

 private:
  const HandleFn handle_;
  void* const owner_;
};

class IoThread {
 public:
  // `policy` and `counts` outlive the thread.
  IoThread(std::unique_ptr<grpc::ServerCompletionQueue> queue,
           const CallPolicy* policy, CallCounts* counts);
  ~IoThread();
  IoThread(const IoThread&) = delete;
  IoThread& operator=(const IoThread&) = delete;

  // Asks `server` for the first calls of every method and starts the thread.
  void Start(grpc_server* server,
             const std::vector<std::unique_ptr<RawService>>& services);

  // Asks for no calls any more, which nobody may while the server is shut down:
  // gRPC 1.51 may forget such a call, and never says that it does not come. Any
  // thread; when it returns none is being asked for.
  void EndRequests() WEIR_EXCLUDES(requests_mu_);

  // Has the thread run what is posted until every handler has answered its
  // call, or for `patience` at most, and then end. Only after EndRequests and
  // after the server was shut down, which cancels all calls. With handlers
  // left, what they post is refused, and the object must stay. Once.
  void BeginStop(absl::Duration patience);
  // Waits for its end, for so long at most. False if it is in something that
  // does not end: the object must stay.
  bool AwaitEnd(absl::Duration limit);
  void Stop(absl::Duration patience) {
    BeginStop(patience);
    AwaitEnd(absl::InfiniteDuration());
  }

  // Runs node->run(node) on this thread, oldest first. Where that takes long,
  // events are handled in between. False after Stop.
  bool Post(InboxNode* node);

  // The same for what takes long, from the thread itself: such nodes run one
  // at a time, oldest first, and events and what was posted in between.
  void AwaitTurn(InboxNode* node);

  // Something that is not a call of gRPC's runs here and counts as an open one:
  // the thread does not end before EndGuest, or not sooner than for a call.
  // From the thread itself.
  void BeginGuest() { open_calls_.fetch_add(1, std::memory_order_relaxed); }
  void EndGuest() { open_calls_.fetch_sub(1, std::memory_order_relaxed); }

  // Asks the thread to show that it runs. How many times in a row it was asked
  // and had not done so when it was asked again: 0 for one that runs. For one
  // asking thread.
  int Pulse();

  // Calls that came, and those that were not answered, guests among these.
  int64_t taken_calls() const {
    return taken_calls_.load(std::memory_order_relaxed);
  }
  int64_t open_calls() const {
    return open_calls_.load(std::memory_order_relaxed);
  }
  // Calls whose message is not whole, and those whose answer is not sent, when
  // the thread last began to wait for events.
  size_t receiving() const { return receiving_.published_size(); }
  size_t sending() const { return sending_.published_size(); }

 private:
  friend class UnaryCall;

  // Free calls kept for later, each with up to CallArena::kKeptBytes.
  static constexpr size_t kMaxFreeCalls = 64;

  void Run();
  // Runs the oldest of what was posted: all, or for kNodeSlice.
  void RunNodes();
  // Whether more replies will be given soon, so that one may wait for them: to
  // calls that have just come, or what was posted.
  bool ExpectsReplies(Nanos now) const;
  // Something is to be run whether or not events come.
  bool has_work() const { return !nodes_.empty() || !turns_.empty(); }
  // Runs the oldest of those that await their turn.
  void RunTurn();
  void AwaitAnswers();
  void OnAlarm();
  void MayShutDown();
  // Until when to wait for an event before the lists are looked through.
  gpr_timespec WaitUntil() const;
  bool awaits_readers() const { return !sending_.empty() || !cut_.empty(); }
  // Around each wait for events. Nothing is sent but in it: where the thread
  // was elsewhere for long, that is not the time of those who read.
  void BeginWait();
  void EndWait();
  // Cuts calls that have waited too long for their clients.
  void Sweep(Nanos now);

  // Asks the server for the next call of the service's method `index`, unless
  // requests have ended.
  void RequestCall(RawService* service, int index) WEIR_EXCLUDES(requests_mu_);
  void Recycle(UnaryCall* call);

  const CallPolicy& policy_;
  CallCounts& counts_;
  const Nanos sweep_period_;
  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  grpc_server* server_ = nullptr;
  Thread thread_;
  std::atomic<int64_t> taken_calls_{0};  // written by the thread alone
  std::atomic<int64_t> open_calls_{0};

  CallList receiving_;
  CallList sending_;
  CallList cut_;         // of those that were being sent
  size_t refusals_ = 0;  // that are being sent, see CallPolicy::max_refusals
  // Calls by connection, gRPC's name of it; receiving_ and refusals by PeerKey.
  KeyCounts calls_of_;
  KeyCounts uploads_of_;
  KeyCounts refusals_of_;
  Nanos waited_until_ = 0;  // if replies are on their way, or go
  Nanos sweep_at_ = 0;
  gpr_timespec sweep_time_ = {};  // the same, for gRPC

  NodeQueue nodes_;         // posted
  Nanos events_until_ = 0;  // with nodes_: events alone until then
  NodeQueue turns_;         // see AwaitTurn

  Inbox inbox_;
  grpc::Alarm alarm_;  // whoever has to ring sets it
  IoEvent alarm_event_;
  struct CloseNode : InboxNode {
    IoThread* io = nullptr;
  };
  CloseNode close_node_;
  struct PulseNode : InboxNode {
    std::atomic<bool> asked{false};
  };
  PulseNode pulse_node_;
  int pulses_missed_ = 0;  // of those that ask
  bool closing_ = false;
  bool shut_down_ = false;  // the queue
  Mutex requests_mu_;       // held while gRPC is asked
  bool requests_ended_ WEIR_GUARDED_BY(requests_mu_) = false;
  // Calls that gRPC was asked for and has not said to be over.
  int64_t owed_ = 0;
  absl::Duration patience_ = absl::InfiniteDuration();  // set before closing
  Mutex end_mu_;
  CondVar end_;
  bool ended_ WEIR_GUARDED_BY(end_mu_) = false;

  std::vector<UnaryCall*> free_calls_;
};

}  // namespace weir
