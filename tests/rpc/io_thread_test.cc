// An I/O thread by itself: what it does when it ends, and how one that hangs
// is seen.
#include "server/rpc/io_thread.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <functional>
#include <iterator>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/base/mutex.h"
#include "server/rpc/raw_service.h"
#include "server/rpc/socket_cork.h"
#include "server/rpc/unary_call.h"
#include "tests/base/event.h"
#include "tests/base/eventually.h"
#include "tests/rpc/raw_http2.h"
#include "tests/rpc/test_transport.h"

namespace weir {
namespace {

// Blocks of the heap that are as large as the object of a call: larger than
// most others.
std::atomic<int> call_objects{0};

bool IsCallObject(void* block) {
  static const size_t size = [] {
    void* const one = std::malloc(sizeof(UnaryCall));
    const size_t usable = malloc_usable_size(one);
    std::free(one);
    return usable;
  }();
  return malloc_usable_size(block) == size;
}

void* Take(size_t bytes) {
  void* const block = std::malloc(bytes);
  if (block == nullptr) std::abort();
  if (IsCallObject(block)) ++call_objects;
  return block;
}

// Not inlined: the compiler would take what it frees for a mismatch.
[[gnu::noinline]] void Give(void* block) {
  if (block != nullptr && IsCallObject(block)) --call_objects;
  std::free(block);
}

}  // namespace
}  // namespace weir

void* operator new(size_t bytes) { return weir::Take(bytes); }
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return weir::Take(bytes);
}
void operator delete(void* block) noexcept { weir::Give(block); }
void operator delete(void* block, size_t) noexcept { weir::Give(block); }

namespace weir {
namespace {

using testing::Eventually;
using testing::RawHttp2;

// Stands still until a test moves it.
std::atomic<Nanos> test_time{1'000'000'000};
Nanos TestTime() { return test_time.load(); }

// A gRPC server with one I/O thread, which the test ends itself.
class IoThreadTest : public ::testing::Test {
 protected:
  explicit IoThreadTest(Nanos receive_timeout = kNoDeadline)
      : policy_{.now = &TestTime, .receive_timeout = receive_timeout} {
    MethodTable table;
    table.Add("inference.GRPCInferenceService", "ModelInfer", Traffic::kHeavy,
              [this](ServerCall& call) { OnCall(call); });
    services_ = RawService::FromTable(table);
    grpc::ServerBuilder builder;
    for (const auto& service : services_) {
      builder.RegisterService(service.get());
    }
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port);
    io_ = std::make_unique<IoThread>(builder.AddCompletionQueue(), &policy_,
                                     &counts_);
    server_ = builder.BuildAndStart();
    io_->Start(server_->c_server(), services_);
    address_ = "127.0.0.1:" + std::to_string(port);
    stub_ = std::make_unique<InferStub>(Connect(address_));
  }
  ~IoThreadTest() override {
    io_->EndRequests();
    server_->Shutdown(std::chrono::system_clock::now());
    io_->Stop(absl::InfiniteDuration());
    for (std::thread& caller : callers_) caller.join();
  }

  // The first call holds the thread, the others are put aside, unless it
  // `echoes_`.
  void OnCall(ServerCall& call) {
    if (echoes_) return EchoCall(call);
    if (held_.count() == 0) {
      held_.Set();
      go_on_.Wait();
      EchoCall(call);
      return;
    }
    calls_.push_back(&call);
    if (on_put_aside_) on_put_aside_();
    put_aside_.Set();
  }

  void CallFromAnotherThread() {
    callers_.emplace_back([this] {
      grpc::ClientContext context;
      Infer(*stub_, "id", &context);
      answered_.Set();
    });
  }

  std::vector<std::unique_ptr<RawService>> services_;
  const CallPolicy policy_;
  CallCounts counts_;
  std::unique_ptr<IoThread> io_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
  std::unique_ptr<InferStub> stub_;
  std::vector<std::thread> callers_;
  std::vector<ServerCall*> calls_;
  std::function<void()> on_put_aside_;  // set while the thread is held
  std::atomic<bool> echoes_ = false;
  Event held_, go_on_, put_aside_, answered_;
};

// Holds the thread that runs it.
struct HoldNode : InboxNode {
  HoldNode() {
    run = [](InboxNode* node) { static_cast<HoldNode*>(node)->Hold(); };
  }
  void Hold() {
    held.Set();
    go_on.Wait();
  }
  Event held, go_on;
};

// A call is answered after the thread was told to end and before gRPC's word
// that the call is over was read: had the queue been shut down by then, gRPC
// would end the process.
TEST_F(IoThreadTest, AnswersWhileItEnds) {
  held_.Set();  // nobody is to be held by a call
  CallFromAnotherThread();
  CallFromAnotherThread();
  put_aside_.Wait(2);
  // Whichever of the two gRPC's word comes for first holds the thread then.
  struct Over : HoldNode {
    ServerCall* first = nullptr;
  } over;
  HoldNode hold;
  ASSERT_TRUE(io_->Post(&hold));
  hold.held.Wait();
  for (ServerCall* call : calls_) {
    call->OnCancel(
        [](ServerCall& of, void* arg) {
          auto* seen = static_cast<Over*>(arg);
          if (seen->first != nullptr) return;
          seen->first = &of;
          seen->Hold();
        },
        &over);
  }
  // The alarm rings before that word, and is heard after Stop.
  std::deque<InboxNode> probes(1);
  probes.back().run = [](InboxNode*) {};
  ASSERT_TRUE(io_->Post(&probes.back()));
  io_->EndRequests();
  server_->Shutdown(std::chrono::system_clock::now());
  answered_.Wait(2);
  std::thread stopper([this] { io_->Stop(absl::InfiniteDuration()); });
  // Whoever posts next finds the last one in `next`: another's is Stop's.
  EXPECT_TRUE(Eventually([&] {
    InboxNode* last = &probes.back();
    probes.emplace_back().run = last->run;
    return io_->Post(&probes.back()) && probes.back().next != last;
  }));
  hold.go_on.Set();
  over.held.Wait();
  const auto echo = [](ServerCall& call, void*) { EchoCall(call); };
  calls_[calls_[0] == over.first ? 1 : 0]->Resume(echo, nullptr);
  over.first->Resume(echo, nullptr);
  over.go_on.Set();
  stopper.join();
  EXPECT_EQ(io_->open_calls(), 0);
}

// gRPC may forget what it is asked for while it shuts down, for which the
// thread would wait. Calls that it was asked for before still come.
TEST_F(IoThreadTest, AsksForNoCallsOnceRequestsHaveEnded) {
  constexpr int kMost = 1000;
  echoes_ = true;
  io_->EndRequests();
  int answered = 0;
  while (answered < kMost) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() +
                         std::chrono::seconds(1));
    if (!Infer(*stub_, "id", &context).status.ok()) break;
    ++answered;
  }
  EXPECT_LT(answered, kMost);
}

TEST_F(IoThreadTest, ItsPulseTellsWhetherItRuns) {
  // Asked, it answers.
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(Eventually([&] { return io_->Pulse() == 0; }));
  }
  CallFromAnotherThread();
  held_.Wait();
  int missed = io_->Pulse();
  EXPECT_LE(missed, 1);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(io_->Pulse(), ++missed);
  go_on_.Set();
  EXPECT_TRUE(Eventually([&] { return io_->Pulse() == 0; }));
  // What it missed then is over: it is counted anew.
  HoldNode hold;
  ASSERT_TRUE(io_->Post(&hold));
  hold.held.Wait();
  EXPECT_EQ(io_->Pulse(), 0);
  EXPECT_EQ(io_->Pulse(), 1);
  hold.go_on.Set();
  EXPECT_TRUE(Eventually([&] { return io_->Pulse() == 0; }));
}

class IoThreadUploadsTest : public IoThreadTest {
 protected:
  static constexpr Nanos kTimeout = 30'000'000'000;
  IoThreadUploadsTest() : IoThreadTest(kTimeout) {}
};

// It never waits for an event then, which is when it looks otherwise.
TEST_F(IoThreadUploadsTest, AThreadThatAlwaysHasWorkCutsUploadsToo) {
  RawHttp2 client(address_, 1 << 16);
  client.Begin(1, "/inference.GRPCInferenceService/ModelInfer");
  ASSERT_TRUE(Eventually([&] { return io_->receiving() == 1; }));
  struct Busy : InboxNode {
    IoThread* io = nullptr;
    std::atomic<bool> stop = false;
    Event begun, over;
  } busy;
  busy.io = io_.get();
  busy.run = [](InboxNode* node) {
    auto* const self = static_cast<Busy*>(node);
    self->begun.Set();
    if (self->stop) return self->over.Set();
    self->io->AwaitTurn(node);
  };
  ASSERT_TRUE(io_->Post(&busy));
  busy.begun.Wait();
  test_time += 2 * kTimeout;
  EXPECT_TRUE(client.Await(1));
  busy.stop = true;
  busy.over.Wait();
}

// A handler that never answers its call: the thread gives it up.
TEST_F(IoThreadTest, EndsWithoutACallThatIsNeverAnswered) {
  // Stay for ever, as the calls themselves, one of each time that it runs.
  static std::vector<ServerCall*>& left = *new std::vector<ServerCall*>;
  held_.Set();  // nobody is to be held by a call
  CallFromAnotherThread();
  put_aside_.Wait();
  left.insert(left.end(), calls_.begin(), calls_.end());
  io_->EndRequests();
  server_->Shutdown(std::chrono::system_clock::now());
  io_->BeginStop(absl::ZeroDuration());
  EXPECT_TRUE(io_->AwaitEnd(absl::Seconds(20)));
  EXPECT_EQ(io_->open_calls(), 1);
}

TEST_F(IoThreadTest, ABurstOfCallsLeavesFewOfThemBehind) {
  constexpr int kCalls = 500, kKept = 64;
  held_.Set();  // nobody is to be held by a call
  const int before = call_objects;
  RawHttp2 client(address_, 1 << 16);
  for (uint32_t i = 0; i < kCalls; ++i) {
    client.Begin(1 + 2 * i, "/inference.GRPCInferenceService/ModelInfer");
    client.Send(1 + 2 * i, RawHttp2::Prefix(0), /*last=*/true);
  }
  put_aside_.Wait(kCalls);
  EXPECT_GE(call_objects, before + kCalls);
  for (ServerCall* call : calls_) {
    call->Resume([](ServerCall& of, void*) { EchoCall(of); }, nullptr);
  }
  EXPECT_TRUE(Eventually([&] { return call_objects <= before + kKept; }));
}

// Completions come in bursts, and what each of them takes adds up.
TEST_F(IoThreadTest, EventsAreHandledBetweenWhatWasPosted) {
  constexpr int kNodes = 100'000;
  held_.Set();  // the call is put aside
  struct Shared {
    int ran = 0;
    int out_of_order = 0;
    int before = 0;  // the call came
    Event over;
  } shared;
  struct Slow : InboxNode {
    Shared* shared = nullptr;
    int index = 0;
  };
  std::vector<Slow> nodes(kNodes);
  int index = 0;
  for (Slow& node : nodes) {
    node.shared = &shared;
    node.index = index++;
    node.run = [](InboxNode* self) {
      test_time += 50'000'000;
      const auto* const slow = static_cast<Slow*>(self);
      if (slow->index != slow->shared->ran++) ++slow->shared->out_of_order;
      if (slow->shared->ran == kNodes) slow->shared->over.Set();
    };
  }
  RawHttp2 client(address_, 1 << 16);
  client.Begin(1, "/no.such/Method");
  EXPECT_TRUE(client.Await(1));  // the connection is there
  HoldNode hold;
  ASSERT_TRUE(io_->Post(&hold));
  hold.held.Wait();
  client.Begin(3, "/inference.GRPCInferenceService/ModelInfer");
  client.Send(3, RawHttp2::Prefix(0), /*last=*/true);
  for (Slow& node : nodes) ASSERT_TRUE(io_->Post(&node));
  on_put_aside_ = [&] { shared.before = shared.ran; };
  hold.go_on.Set();
  shared.over.Wait();
  put_aside_.Wait();
  EXPECT_LT(shared.before, kNodes);
  EXPECT_EQ(shared.out_of_order, 0);
  calls_[0]->Resume([](ServerCall& call, void*) { EchoCall(call); }, nullptr);
}

// Replies are held while more are expected, but not longer than some events
// take, whatever these are: here of calls of which each that finds no reply
// held sends one, the others none.
TEST_F(IoThreadTest, AReplyWaitsForFewEventsWhateverTheyAre) {
  constexpr uint32_t kCalls = 60;
  held_.Set();  // nobody is to be held by a call
  RawHttp2 client(address_, 1 << 16);
  client.Begin(1, "/no.such/Method");
  EXPECT_TRUE(client.Await(1));  // the connection is there
  int in_a_row = 0, most_in_a_row = 0, sent = 0;
  on_put_aside_ = [&] {
    if (SocketCork::held() > 0) {
      most_in_a_row = std::max(most_in_a_row, ++in_a_row);
      return;
    }
    in_a_row = 0;
    ++sent;
    EchoCall(*calls_.back());
    calls_.pop_back();
  };
  HoldNode hold;
  ASSERT_TRUE(io_->Post(&hold));
  hold.held.Wait();
  for (uint32_t i = 0; i < kCalls; ++i) {
    const uint32_t stream = 3 + 2 * i;
    client.Begin(stream, "/inference.GRPCInferenceService/ModelInfer");
    client.Send(stream, RawHttp2::Prefix(0), /*last=*/true);
  }
  hold.go_on.Set();
  put_aside_.Wait(kCalls);
  EXPECT_LE(most_in_a_row, 16);
  EXPECT_GT(sent, 1);
  for (ServerCall* call : calls_) {
    call->Resume([](ServerCall& of, void*) { EchoCall(of); }, nullptr);
  }
}

// What takes long has its turns, and each of them costs whoever is served
// meanwhile one such turn at most, however many there are.
TEST_F(IoThreadTest, OneOfThoseThatAwaitTheirTurnRunsBetweenEvents) {
  constexpr int kLong = 16;
  constexpr int kProbes = 200;
  struct Shared {
    IoThread* io = nullptr;
    int turns = 0;  // that were had
    int ran[kLong] = {};
    int probes = 0;
    Event over;
  } shared;
  shared.io = io_.get();
  struct Long : InboxNode {
    Shared* shared = nullptr;
    int* ran = nullptr;
  };
  Long nodes[kLong];
  for (int i = 0; i < kLong; ++i) {
    nodes[i].shared = &shared;
    nodes[i].ran = &shared.ran[i];
    nodes[i].run = [](InboxNode* node) {
      auto* self = static_cast<Long*>(node);
      ++self->shared->turns;
      ++*self->ran;
      if (self->shared->probes < kProbes) {
        self->shared->io->AwaitTurn(node);
      } else {
        self->shared->over.Set();
      }
    };
  }
  struct Probe : InboxNode {
    Shared* shared = nullptr;
    Long* nodes = nullptr;
  } probe;
  probe.shared = &shared;
  probe.nodes = nodes;
  probe.run = [](InboxNode* node) {
    auto* self = static_cast<Probe*>(node);
    if (self->shared->probes == 0) {
      for (int i = 0; i < kLong; ++i) {
        self->shared->io->AwaitTurn(&self->nodes[i]);
      }
    }
    if (++self->shared->probes < kProbes) self->shared->io->Post(node);
  };
  ASSERT_TRUE(io_->Post(&probe));
  shared.over.Wait(kLong);
  EXPECT_GE(shared.turns, kProbes / 4);
  EXPECT_LE(shared.turns, 4 * kProbes);
  const auto [fewest, most] =
      std::minmax_element(std::begin(shared.ran), std::end(shared.ran));
  EXPECT_LE(*most - *fewest, 1);
}

}  // namespace
}  // namespace weir
