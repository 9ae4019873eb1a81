// What one call may hold, and for how long: messages that come slowly, are
// large or grow, and replies that nobody reads.
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/base/error_info.h"
#include "server/rpc/frame_meter.h"
#include "server/rpc/message_inflater.h"
#include "tests/base/event.h"
#include "tests/base/eventually.h"
#include "tests/rpc/raw_http2.h"
#include "tests/rpc/test_transport.h"

namespace weir {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using testing::Eventually;
using ::testing::HasSubstr;
using testing::RawHttp2;

constexpr char kInfer[] = "/inference.GRPCInferenceService/ModelInfer";
constexpr char kNobodys[] = "/no.such/Method";
constexpr absl::Duration kTimeout = absl::Milliseconds(40);
constexpr Nanos kTimeoutNanos = 40'000'000;

// Stands still until a test moves it.
std::atomic<Nanos> test_time{1'000'000'000};
Nanos TestTime() { return test_time.load(); }

// Remembers how calls ended.
class Endings final : public CallObserver {
 public:
  struct Ending {
    absl::StatusCode code;
    Delivery delivery;
    std::string reason;
    bool operator==(const Ending&) const = default;
  };

  void OnEnded(const ServerCall&, const Method&, const absl::Status& status,
               Delivery delivery) override {
    {
      const MutexLock lock(&mu_);
      endings_.push_back({status.code(), delivery, Reason(status)});
      longest_message_ = std::max(longest_message_, status.message().size());
    }
    ended_.Set();
  }

  // Waits for so many.
  std::vector<Ending> Wait(size_t count) {
    ended_.Wait(count);
    const MutexLock lock(&mu_);
    return endings_;
  }
  size_t count() const { return ended_.count(); }
  size_t longest_message() {
    const MutexLock lock(&mu_);
    return longest_message_;
  }

 private:
  Event ended_;
  Mutex mu_;
  size_t longest_message_ WEIR_GUARDED_BY(mu_) = 0;
  std::vector<Ending> endings_ WEIR_GUARDED_BY(mu_);
};

using Ending = Endings::Ending;

class CallBoundsTest : public ::testing::Test {
 protected:
  // gRPC's library ends with its last user, and waits ten seconds for a poller
  // of its own if a write was delayed.
  static void SetUpTestSuite() { grpc_init(); }

  // One I/O thread, so that the calls of a test meet in its lists.
  TransportOptions Options() {
    TransportOptions options;
    options.addresses = {"127.0.0.1:0"};
    options.io_threads = 1;
    options.admission = &admission_;
    options.now = &TestTime;
    options.receive_timeout = kTimeout;
    options.send_timeout = kTimeout;
    return options;
  }

  void Start(MethodHandler handler, TransportOptions options,
             Traffic traffic = Traffic::kHeavy) {
    MethodTable table;
    table.Add("inference.GRPCInferenceService", "ModelInfer", traffic,
              std::move(handler));
    table.set_observer(&endings_);
    auto transport = Transport::Start(std::move(options), table);
    ASSERT_TRUE(transport.ok()) << transport.status();
    transport_ = *std::move(transport);
    address_ = transport_->addresses()[0];
  }

  // As they are looked through, so that the calls that are there are in them.
  void PassTime(Nanos duration) { test_time += duration; }

  // Lets time pass until it is so: what passes while the I/O thread does not
  // wait for events is not the callers'.
  bool PassTimeUntil(Nanos step, const std::function<bool()>& is_so) {
    return Eventually([&] {
      PassTime(step);
      return is_so();
    });
  }

  static std::string UnixPath() {
    return "/tmp/weir-call-bounds-" + std::to_string(getpid()) + ".sock";
  }
  static int ConnectUnix() {
    const std::string path = UnixPath();
    sockaddr_un where = {};
    where.sun_family = AF_UNIX;
    path.copy(where.sun_path, sizeof(where.sun_path) - 1);
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&where), sizeof(where)),
              0);
    return fd;
  }
  // A call whose client grants all and reads nothing, once its reply is being
  // written.
  static void CallUnread(int fd) {
    const std::string bytes =
        RawHttp2::Opening(1 << 30) +
        RawHttp2::Encode(RawHttp2::kWindowUpdate, /*flags=*/0, /*stream=*/0,
                         std::string("\x3f\xff\0\1", 4)) +
        RawHttp2::EncodeCall(1, kInfer) +
        RawHttp2::EncodeData(1, RawHttp2::Prefix(0), /*last=*/true, 1 << 10);
    EXPECT_EQ(send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
    EXPECT_TRUE(Eventually([fd] {
      int unread = 0;
      return ioctl(fd, FIONREAD, &unread) == 0 && unread > 100 << 10;
    }));
  }

  bool NothingIsHeld() {
    return Eventually([&] {
      return admission_.bytes() == 0 && admission_.requests() == 0 &&
             transport_->sending() == 0 && transport_->receiving() == 0;
    });
  }

  Admission admission_{100, size_t{1} << 30};
  Endings endings_;
  std::unique_ptr<Transport> transport_;
  std::string address_;
};

// Memory that a reply references, and whether it was given back. gRPC may do
// that after all else of a call has ended, so who holds it keeps it alive.
class Lent {
 public:
  explicit Lent(size_t size) : state_(std::make_shared<State>(size)) {}
  ReplyBuffer Reply() {
    ReplyBuffer reply;
    reply.AppendForeign(
        state_->bytes.data(), state_->bytes.size(),
        [](void* held) {
          const std::unique_ptr<Holder> holder(static_cast<Holder*>(held));
          ++(*holder)->returned;
        },
        new Holder(state_));
    return reply;
  }
  int returned() const { return state_->returned; }

 private:
  struct State {
    explicit State(size_t size) : bytes(size, 'r') {}
    std::string bytes;
    std::atomic<int> returned{0};
  };
  using Holder = std::shared_ptr<State>;
  Holder state_;
};

// It counts with 8 KiB until it is sent, so no more of it may stay.
TEST_F(CallBoundsTest, NoMoreOfAnErrorIsKeptThanIsSent) {
  Start(
      [&](ServerCall& call) {
        call.Fail(WithReason(
            absl::NotFoundError(std::string(size_t{1} << 20, 'n')), "REASON",
            {{"name", std::string(size_t{1} << 20, 'm')}}));
      },
      Options());
  InferStub stub(Connect(address_));
  const grpc::Status status = Infer(stub, "x").status;
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(status.error_message(), std::string(1021, 'n') + "...");
  EXPECT_EQ(endings_.Wait(1)[0].code, absl::StatusCode::kNotFound);
  EXPECT_EQ(endings_.longest_message(), 1024u);
}

TEST_F(CallBoundsTest, AReplyThatIsTooLargeIsRefusedBeforeGrpcHasIt) {
  Lent lent(20'000);
  TransportOptions options = Options();
  options.max_message_bytes = 10'000;
  Start([&](ServerCall& call) { call.Reply(lent.Reply()); }, options);
  InferStub stub(Connect(address_));
  const grpc::Status status = Infer(stub, "x").status;
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("20000"));
  EXPECT_THAT(status.error_message(), HasSubstr("10000"));
  EXPECT_THAT(endings_.Wait(1),
              ElementsAre(Ending{absl::StatusCode::kResourceExhausted,
                                 Delivery::kSent, "REPLY_TOO_LARGE"}));
  EXPECT_EQ(lent.returned(), 1);
  EXPECT_TRUE(NothingIsHeld());
}

TEST_F(CallBoundsTest, AReplyCountsUntilItIsSent) {
  Lent lent(4 << 20);
  Start([&](ServerCall& call) { call.Reply(lent.Reply()); }, Options());
  RawHttp2 client(address_, 1 << 16);
  client.Begin(1, kInfer);
  client.Send(1, RawHttp2::Prefix(0), /*last=*/true);
  EXPECT_EQ(client.ReadData(1, 1 << 16), size_t{1} << 16);
  EXPECT_TRUE(Eventually([&] { return transport_->open_calls() == 0; }));
  // The request has its answer and no place in the queue; the reply is held.
  EXPECT_EQ(admission_.requests(), 0);
  EXPECT_GE(admission_.bytes(), 4 << 20);
  EXPECT_TRUE(Eventually([&] { return transport_->sending() == 1u; }));
  EXPECT_EQ(lent.returned(), 0);
  client.Grant(0, 4 << 20);
  client.Grant(1, 4 << 20);
  client.ReadData(1, 5 << 20);
  EXPECT_THAT(endings_.Wait(1),
              ElementsAre(Ending{absl::StatusCode::kOk, Delivery::kSent, ""}));
  EXPECT_TRUE(NothingIsHeld());
  EXPECT_TRUE(Eventually([&] { return lent.returned() == 1; }));
}

// A reply may stay unread for long; the message that it answers must not.
TEST_F(CallBoundsTest, ARequestGoesWhenItsAnswerBegins) {
  constexpr uint32_t kCalls = 12;
  constexpr size_t kMessage = size_t{4} << 20;
  Lent lent(1 << 20);
  TransportOptions options = Options();
  options.receive_timeout = options.send_timeout = absl::InfiniteDuration();
  options.memory_bytes = 4 * kMessage;  // gRPC ends calls beyond it
  Start([&](ServerCall& call) { call.Reply(lent.Reply()); }, options);
  RawHttp2 client(address_, 1 << 16);
  const std::string message =
      RawHttp2::Prefix(kMessage) + std::string(kMessage, 'x');
  for (uint32_t i = 0; i < kCalls; ++i) {
    client.Begin(2 * i + 1, kInfer);
    ASSERT_EQ(client.SendAsGranted(2 * i + 1, message, /*last=*/true),
              message.size());
    ASSERT_TRUE(Eventually([&] { return transport_->sending() == i + 1; }));
  }
  EXPECT_EQ(endings_.count(), 0u);
  transport_.reset();  // before what its calls refer to
}

// What callers have sent of their messages is held by gRPC, and has a bound of
// its own: beyond it gRPC ends some of the calls.
TEST_F(CallBoundsTest, WhatGrpcHoldsIsBounded) {
  constexpr uint32_t kCalls = 8;
  constexpr size_t kSent = size_t{4} << 20;
  TransportOptions options = Options();
  options.receive_timeout = absl::InfiniteDuration();
  options.ask_after = absl::Hours(1);  // whoever sends reads nothing then
  options.memory_bytes = 4 * kSent;
  Start(EchoCall, options);
  RawHttp2 client(address_, 1 << 16);
  const std::string part =
      RawHttp2::Prefix(2 * kSent) + std::string(kSent, 'x');
  for (uint32_t i = 0; i < kCalls; ++i) {
    client.Begin(2 * i + 1, kInfer);
    client.SendAsGranted(2 * i + 1, part, /*last=*/false);
  }
  ASSERT_TRUE(Eventually([&] { return endings_.count() > 0; }));
  EXPECT_EQ(endings_.Wait(1)[0].delivery, Delivery::kCallerGone);
}

// Of a message that nobody reads yet, whether or not its call has come.
TEST_F(CallBoundsTest, AMessageThatHasNotBegunIsGrantedLittle) {
  // With gRPC's five bytes before a message, once somebody awaits it.
  constexpr int64_t kWindow = (int64_t{64} << 10) + 5;
  Start(EchoCall, Options());
  RawHttp2 client(address_, 1 << 16);
  for (const uint32_t stream : {1u, 3u}) client.Begin(stream, kInfer);
  EXPECT_TRUE(Eventually([&] { return transport_->receiving() == 2; }));
  ASSERT_TRUE(client.Ping());
  for (const uint32_t stream : {1u, 3u, 5u}) {
    EXPECT_GT(client.granted(stream), 0);
    EXPECT_LE(client.granted(stream), kWindow);
  }
}

TEST_F(CallBoundsTest, AReplyWhoseCallerLeavesIsNotOk) {
  Lent lent(4 << 20);
  Start([&](ServerCall& call) { call.Reply(lent.Reply()); }, Options());
  RawHttp2 client(address_, 1 << 16);
  client.Begin(1, kInfer);
  client.Send(1, RawHttp2::Prefix(0), /*last=*/true);
  EXPECT_EQ(client.ReadData(1, 1 << 16), size_t{1} << 16);
  client.Reset(1);
  EXPECT_THAT(endings_.Wait(1), ElementsAre(Ending{absl::StatusCode::kCancelled,
                                                   Delivery::kCallerGone, ""}));
  EXPECT_TRUE(NothingIsHeld());
  EXPECT_TRUE(Eventually([&] { return lent.returned() == 1; }));
  EXPECT_EQ(transport_->counts().replies_abandoned, 1u);
}

// All of the reply fits into the windows: gRPC writes it in one go, and the
// connection breaks meanwhile.
TEST_F(CallBoundsTest, AReplyWhoseConnectionBreaksIsNotOk) {
  Lent lent(64 << 20);
  Start([&](ServerCall& call) { call.Reply(lent.Reply()); }, Options());
  {
    RawHttp2 client(address_, 1 << 30);
    client.Begin(1, kInfer);
    client.Send(1, RawHttp2::Prefix(0), /*last=*/true);
    EXPECT_GE(client.ReadData(1, 1 << 20), size_t{1} << 20);
  }
  EXPECT_THAT(endings_.Wait(1), ElementsAre(Ending{absl::StatusCode::kCancelled,
                                                   Delivery::kCallerGone, ""}));
  EXPECT_TRUE(NothingIsHeld());
  EXPECT_TRUE(Eventually([&] { return lent.returned() == 1; }));
}

TEST_F(CallBoundsTest, AReplyToNobodyIsNotOk) {
  ServerCall* held = nullptr;
  Event taken;
  Start(
      [&](ServerCall& call) {
        held = &call;
        taken.Set();
      },
      Options());
  {
    RawHttp2 client(address_, 1 << 16);
    client.Begin(1, kInfer);
    client.Send(1, RawHttp2::Prefix(0), /*last=*/true);
    taken.Wait();
  }
  EXPECT_TRUE(Eventually([&] { return held->cancelled(); }));
  held->Resume([](ServerCall& call, void*) { EchoCall(call); }, nullptr);
  EXPECT_THAT(endings_.Wait(1), ElementsAre(Ending{absl::StatusCode::kCancelled,
                                                   Delivery::kCallerGone, ""}));
  EXPECT_TRUE(NothingIsHeld());
}

TEST_F(CallBoundsTest, AReaderThatStopsIsCutAndItsMemoryIsBack) {
  Lent lent(4 << 20);
  Start([&](ServerCall& call) { call.Reply(lent.Reply()); }, Options());
  RawHttp2 client(address_, 1 << 16);
  client.Begin(1, kInfer);
  client.Send(1, RawHttp2::Prefix(0), /*last=*/true);
  EXPECT_EQ(client.ReadData(1, 1 << 16), size_t{1} << 16);
  EXPECT_TRUE(Eventually([&] { return transport_->sending() == 1; }));
  EXPECT_TRUE(PassTimeUntil(kTimeoutNanos + 4 * kSendTimePerMebibyte,
                            [&] { return endings_.count() == 1; }));
  EXPECT_THAT(endings_.Wait(1), ElementsAre(Ending{absl::StatusCode::kCancelled,
                                                   Delivery::kCut, ""}));
  EXPECT_TRUE(NothingIsHeld());
  EXPECT_TRUE(Eventually([&] { return lent.returned() == 1; }));
  EXPECT_EQ(transport_->counts().replies_cut, 1u);
  EXPECT_EQ(client.ReadData(1, 1), 0u);  // reset
  // The connection lives, and so do its other calls.
  client.Begin(3, "/no.Service/Method");
  EXPECT_TRUE(client.Await(3));
}

// gRPC holds all of a message until its last byte is written: the time is by
// its size, not by what is seen to leave.
TEST_F(CallBoundsTest, ALargeReplyHasASecondMoreForEachMebibyte) {
  constexpr int kMebibytes = 8;
  Lent lent(size_t{kMebibytes} << 20);
  Start([&](ServerCall& call) { call.Reply(lent.Reply()); }, Options());
  RawHttp2 client(address_, 1 << 16);
  client.Begin(1, kInfer);
  client.Send(1, RawHttp2::Prefix(0), /*last=*/true);
  EXPECT_TRUE(Eventually([&] { return transport_->sending() == 1; }));
  // Half a message: it is cut in the look that would cut the reply too.
  client.Begin(3, kInfer);
  EXPECT_TRUE(Eventually([&] { return transport_->receiving() == 1; }));
  PassTime(kTimeoutNanos + kMebibytes * kSendTimePerMebibyte - 1);
  EXPECT_THAT(endings_.Wait(1),
              ElementsAre(Ending{absl::StatusCode::kDeadlineExceeded,
                                 Delivery::kSent, "RECEIVE_TIMEOUT"}));
  EXPECT_EQ(transport_->counts().replies_cut, 0u);
  EXPECT_TRUE(Eventually([&] { return transport_->sending() == 1u; }));
  EXPECT_TRUE(PassTimeUntil(kTimeoutNanos + kMebibytes * kSendTimePerMebibyte,
                            [&] { return endings_.count() == 2; }));
  EXPECT_EQ(endings_.Wait(2).back(),
            (Ending{absl::StatusCode::kCancelled, Delivery::kCut, ""}));
  EXPECT_TRUE(NothingIsHeld());
}

// It grants the server all it wants and does not read its socket: only the
// kernel can tell.
TEST_F(CallBoundsTest, AConnectionThatNobodyReadsIsClosed) {
  Lent lent(64 << 20);
  TransportOptions options = Options();
  options.now = &NowNanos;
  options.receive_timeout = absl::InfiniteDuration();
  options.send_timeout = absl::Milliseconds(300);
  Start([&](ServerCall& call) { call.Reply(lent.Reply()); }, options);
  RawHttp2 client(address_, 1 << 30);
  client.Begin(1, kInfer);
  client.Send(1, RawHttp2::Prefix(0), /*last=*/true);
  EXPECT_EQ(endings_.Wait(1)[0].code, absl::StatusCode::kCancelled);
  EXPECT_TRUE(NothingIsHeld());
  EXPECT_TRUE(Eventually([&] { return lent.returned() == 1; }));
}

// So it is once it is late, however long the kernel would wait: what gRPC has
// begun to write to a socket it holds until that is done.
TEST_F(CallBoundsTest, AConnectionWhoseReplyIsLateIsEnded) {
  constexpr int kMebibytes = 64;
  Lent lent(size_t{kMebibytes} << 20);
  TransportOptions options = Options();
  options.send_timeout = absl::Minutes(10);
  Start([&](ServerCall& call) { call.Reply(lent.Reply()); }, options);
  RawHttp2 client(address_, 1 << 30, "127.0.0.1", /*receive_buffer=*/4096);
  client.Begin(1, kInfer);
  client.Send(1, RawHttp2::Prefix(0), /*last=*/true);
  RawHttp2 other(address_, 1 << 16);
  ASSERT_TRUE(Eventually([&] { return transport_->sending() == 1; }));
  ASSERT_TRUE(PassTimeUntil(kSendTimePerMebibyte,
                            [&] { return transport_->sending() == 0; }));
  ASSERT_TRUE(PassTimeUntil(kCutReplyGoesWithin / 2,
                            [&] { return endings_.count() == 1; }));
  EXPECT_THAT(endings_.Wait(1), ElementsAre(Ending{absl::StatusCode::kCancelled,
                                                   Delivery::kCut, ""}));
  EXPECT_TRUE(NothingIsHeld());
  EXPECT_TRUE(Eventually([&] { return lent.returned() == 1; }));
  EXPECT_TRUE(Eventually([&] { return transport_->open_connections() == 1; }));
  EXPECT_TRUE(other.Ping()) << "it was nobody else's fault";
}

// Its connections have one name, and the kernel no bound for them.
TEST_F(CallBoundsTest, AUnixConnectionWhoseReplyIsLateIsEnded) {
  Lent lent(64 << 20);
  TransportOptions options = Options();
  options.addresses = {"unix:" + UnixPath()};
  Start(
      [&](ServerCall& call) {
        if (call.request().size() > 0) return EchoCall(call);
        call.Reply(lent.Reply());
      },
      options);
  InferStub stub(Connect("unix:" + UnixPath()));
  EXPECT_TRUE(Infer(stub, "x").status.ok());
  const int fd = ConnectUnix();
  CallUnread(fd);
  ASSERT_TRUE(Eventually([&] { return transport_->sending() == 1; }));
  ASSERT_TRUE(PassTimeUntil(kSendTimePerMebibyte,
                            [&] { return transport_->sending() == 0; }));
  ASSERT_TRUE(PassTimeUntil(kCutReplyGoesWithin / 2,
                            [&] { return endings_.count() == 2; }));
  EXPECT_EQ(endings_.Wait(2)[1],
            (Ending{absl::StatusCode::kCancelled, Delivery::kCut, ""}));
  EXPECT_TRUE(NothingIsHeld());
  EXPECT_TRUE(Eventually([&] { return transport_->open_connections() == 1; }))
      << transport_->open_connections();
  EXPECT_TRUE(Infer(stub, "x").status.ok());
  close(fd);
}

TEST_F(CallBoundsTest, AReplyThatNobodyReadsDoesNotKeepTheServer) {
  Lent lent(64 << 20);
  TransportOptions options = Options();
  options.addresses = {"unix:" + UnixPath()};
  Start([&](ServerCall& call) { call.Reply(lent.Reply()); }, options);
  const int fd = ConnectUnix();
  CallUnread(fd);
  ASSERT_TRUE(Eventually([&] { return transport_->sending() == 1; }));
  EXPECT_TRUE(transport_->Shutdown(absl::ZeroDuration()));
  EXPECT_EQ(lent.returned(), 1);
  EXPECT_EQ(endings_.count(), 1u);
  close(fd);
}

// To the kernel no time at all would be its own default, of minutes.
TEST_F(CallBoundsTest, TheShortestSendTimeoutBoundsWhatTheKernelHoldsToo) {
  Lent lent(64 << 20);
  TransportOptions options = Options();  // whose clock stands still
  options.receive_timeout = absl::InfiniteDuration();
  options.send_timeout = absl::Microseconds(100);
  Start([&](ServerCall& call) { call.Reply(lent.Reply()); }, options);
  RawHttp2 client(address_, 1 << 30);
  client.Begin(1, kInfer);
  client.Send(1, RawHttp2::Prefix(0), /*last=*/true);
  EXPECT_EQ(endings_.Wait(1)[0].code, absl::StatusCode::kCancelled);
  EXPECT_TRUE(NothingIsHeld());
  EXPECT_TRUE(Eventually([&] { return lent.returned() == 1; }));
}

TEST_F(CallBoundsTest, AConnectionThatDoesNotAnswerIsClosed) {
  TransportOptions options = Options();
  options.ask_after = absl::Milliseconds(50);
  options.answer_within = absl::Milliseconds(50);
  Start(EchoCall, options);
  const RawHttp2 silent(address_, 1 << 16);
  EXPECT_TRUE(Eventually([&] { return transport_->open_connections() == 1; }));
  EXPECT_TRUE(Eventually([&] { return transport_->open_connections() == 0; }));
  // Stock clients answer.
  InferStub stub(Connect(address_));
  EXPECT_TRUE(Infer(stub, "x").status.ok());
}

TEST_F(CallBoundsTest, UnreadRepliesGoSoonWhenOthersNeedTheRoom) {
  Admission small(100, size_t{6} << 20);
  Lent first(4 << 20), second(4 << 20);
  TransportOptions options = Options();
  options.admission = &small;
  options.send_timeout = absl::Hours(1);
  options.receive_timeout = absl::Milliseconds(40);
  int calls = 0;
  Start(
      [&](ServerCall& call) {
        call.Reply(calls++ == 0 ? first.Reply() : second.Reply());
      },
      options);
  RawHttp2 client(address_, 1 << 16);
  client.Begin(1, kInfer);
  client.Send(1, RawHttp2::Prefix(0), /*last=*/true);
  EXPECT_TRUE(Eventually([&] { return transport_->sending() == 1; }));
  // Alone it hurts nobody. A message that does not come is cut in the same
  // look.
  client.Begin(3, kInfer);
  EXPECT_TRUE(Eventually([&] { return transport_->receiving() == 1; }));
  PassTime(kSendTimeoutUnderPressure + 4 * kSendTimePerMebibyteUnderPressure);
  EXPECT_EQ(endings_.Wait(1)[0].reason, "RECEIVE_TIMEOUT");
  EXPECT_EQ(transport_->counts().replies_cut, 0u);
  // With another, the older one goes, and then the other is alone.
  client.Begin(5, kInfer);
  client.Send(5, RawHttp2::Prefix(0), /*last=*/true);
  EXPECT_EQ(endings_.Wait(2)[1].delivery, Delivery::kCut);
  EXPECT_TRUE(Eventually([&] { return first.returned() == 1; }));
  EXPECT_EQ(second.returned(), 0);
  EXPECT_TRUE(Eventually([&] { return transport_->sending() == 1u; }));
  transport_.reset();  // before what its calls refer to
}

// Less than alone, but by its size all the same.
TEST_F(CallBoundsTest, UnreadRepliesHaveTimeByTheirSizeThoughOthersNeedIt) {
  constexpr int kMebibytes = 4;
  constexpr Nanos kTime = kSendTimeoutUnderPressure +
                          kMebibytes * kSendTimePerMebibyteUnderPressure;
  Admission small(100, size_t{6} << 20);
  Lent first(size_t{kMebibytes} << 20), second(size_t{kMebibytes} << 20);
  TransportOptions options = Options();
  options.admission = &small;
  options.send_timeout = absl::Hours(1);
  int calls = 0;
  Start(
      [&](ServerCall& call) {
        call.Reply(calls++ == 0 ? first.Reply() : second.Reply());
      },
      options);
  RawHttp2 client(address_, 1 << 16);
  // A message that does not come is cut in the look that would cut the replies.
  client.Begin(1, kInfer);
  EXPECT_TRUE(Eventually([&] { return transport_->receiving() == 1; }));
  for (const uint32_t stream : {3u, 5u}) {
    client.Begin(stream, kInfer);
    client.Send(stream, RawHttp2::Prefix(0), /*last=*/true);
  }
  EXPECT_TRUE(Eventually([&] { return transport_->sending() == 2; }));
  PassTime(kTime - 1);
  EXPECT_EQ(endings_.Wait(1)[0].reason, "RECEIVE_TIMEOUT");
  client.Begin(7, kNobodys);  // is answered after that look
  EXPECT_TRUE(client.Await(7));
  EXPECT_EQ(transport_->counts().replies_cut, 0u);
  EXPECT_TRUE(PassTimeUntil(
      kTime, [&] { return transport_->counts().replies_cut == 2; }));
  transport_.reset();  // before what its calls refer to
}

// While the I/O thread is elsewhere it sends nothing, however eagerly a caller
// reads.
TEST_F(CallBoundsTest, WhatHoldsUpTheServerIsNotTheTimeOfThoseWhoRead) {
  constexpr size_t kBytes = size_t{16} << 20;
  Admission small(100, size_t{24} << 20);
  Lent first(kBytes), second(kBytes);
  TransportOptions options = Options();
  options.admission = &small;
  options.send_timeout = absl::Hours(1);
  int calls = 0;
  Start(
      [&](ServerCall& call) {
        const bool last = calls++ == 1;
        call.Reply(last ? second.Reply() : first.Reply());
        if (last) PassTime(10 * kSendTimeoutUnderPressure);
      },
      options);
  RawHttp2 one(address_, 64 << 20), other(address_, 64 << 20);
  one.Begin(1, kInfer);
  one.Send(1, RawHttp2::Prefix(0), /*last=*/true);
  EXPECT_TRUE(Eventually([&] { return transport_->sending() == 1; }));
  other.Begin(1, kInfer);
  other.Send(1, RawHttp2::Prefix(0), /*last=*/true);
  // What would cut them has been looked at by then.
  EXPECT_TRUE(Eventually([&] { return transport_->sending() == 2; }));
  const int64_t taken = transport_->taken_calls();
  for (uint32_t i = 0; i < 200; ++i) {
    one.Begin(2 * i + 3, kNobodys);
    EXPECT_TRUE(Eventually(
        [&] { return transport_->taken_calls() == taken + 1 + int64_t{i}; }));
  }
  EXPECT_EQ(transport_->counts().replies_cut, 0u);
  EXPECT_GE(one.ReadData(1, kBytes), kBytes);
  EXPECT_GE(other.ReadData(1, kBytes), kBytes);
  EXPECT_EQ(transport_->counts().replies_cut, 0u);
  transport_.reset();  // before what its calls refer to
}

// What a client takes to send it is not the server's time.
TEST_F(CallBoundsTest, ARequestIsReceivedWhenItsMessageIsWhole) {
  std::atomic<Nanos> received{0}, oldest{0};
  Start(
      [&](ServerCall& call) {
        received = call.received();
        oldest = admission_.oldest_waiting();
        EchoCall(call);
      },
      Options());
  RawHttp2 client(address_, 1 << 16);
  client.Begin(1, kInfer);
  // {id: "abc"} without its last byte.
  client.Send(1, RawHttp2::Prefix(5) + "\x0a\x03" + "ab", /*last=*/false);
  EXPECT_TRUE(Eventually([&] { return transport_->receiving() == 1; }));
  PassTime(kTimeoutNanos / 2);
  client.Send(1, "c", /*last=*/true);
  EXPECT_THAT(endings_.Wait(1),
              ElementsAre(Ending{absl::StatusCode::kOk, Delivery::kSent, ""}));
  EXPECT_EQ(received, TestTime());
  EXPECT_EQ(oldest, TestTime());
}

TEST_F(CallBoundsTest, AWriterThatStopsIsCut) {
  Start(EchoCall, Options());
  RawHttp2 client(address_, 1 << 16);
  client.Begin(1, kInfer);
  client.Send(1, RawHttp2::Prefix(100) + std::string(50, 'x'), /*last=*/false);
  client.Begin(3, kInfer);  // headers alone
  EXPECT_TRUE(Eventually([&] { return transport_->receiving() == 2; }));
  PassTime(kTimeoutNanos);
  const Ending cut = {absl::StatusCode::kDeadlineExceeded, Delivery::kSent,
                      "RECEIVE_TIMEOUT"};
  EXPECT_THAT(endings_.Wait(2), ElementsAre(cut, cut));
  EXPECT_TRUE(NothingIsHeld());
  EXPECT_EQ(transport_->counts().uploads_timed_out, 2u);
  // The connection serves on.
  client.Begin(5, "/no.Service/Method");
  EXPECT_TRUE(client.Await(5));
}

// Stock clients leave at their deadline; this one waits for the rest.
TEST_F(CallBoundsTest, AMessageIsAwaitedUntilItsCallsDeadline) {
  TransportOptions options = Options();
  options.receive_timeout = absl::Minutes(1);
  Start(EchoCall, options);
  RawHttp2 client(address_, 1 << 16);
  client.BeginWithin(1, kInfer, "20S");
  EXPECT_TRUE(Eventually([&] { return transport_->receiving() == 1; }));
  client.BeginWithin(3, kInfer, "10S");
  EXPECT_TRUE(Eventually([&] { return transport_->receiving() == 2; }));
  PassTime(11'000'000'000);
  EXPECT_THAT(endings_.Wait(1),
              ElementsAre(Ending{absl::StatusCode::kDeadlineExceeded,
                                 Delivery::kSent, ""}));
  EXPECT_EQ(client.AwaitStatus(3), 4);
  EXPECT_EQ(transport_->counts().uploads_timed_out, 0u);
  // The other one has its time.
  client.Send(1, RawHttp2::Prefix(0), /*last=*/true);
  EXPECT_EQ(endings_.Wait(2)[1].code, absl::StatusCode::kOk);
}

TEST_F(CallBoundsTest, AMessageThatComesSlowlyButInTimeIsServed) {
  Start(EchoCall, Options());
  RawHttp2 client(address_, 1 << 16);
  client.Begin(1, kInfer);
  const std::string message = RawHttp2::Prefix(100) + std::string(100, 'x');
  for (size_t i = 0; i < message.size() - 1; ++i) {
    client.Send(1, message.substr(i, 1), /*last=*/false);
  }
  EXPECT_TRUE(Eventually([&] { return transport_->receiving() == 1; }));
  PassTime(kTimeoutNanos / 2);
  client.Send(1, "x", /*last=*/true);
  EXPECT_EQ(endings_.Wait(1)[0].code, absl::StatusCode::kOk);
}

TEST_F(CallBoundsTest, TooManyUploadsEndTheOldest) {
  TransportOptions options = Options();
  options.max_receiving = 3;
  Start(EchoCall, options);
  RawHttp2 client(address_, 1 << 16);
  // gRPC keeps no order among calls that come at once, nor among answers: each
  // is there before the next begins.
  const auto begin = [&](uint32_t stream) {
    const int64_t taken = transport_->taken_calls();
    client.Begin(stream, kInfer);
    client.Send(stream, RawHttp2::Prefix(100), /*last=*/false);
    EXPECT_TRUE(
        Eventually([&] { return transport_->taken_calls() == taken + 1; }));
  };
  for (const uint32_t stream : {1u, 3u, 5u}) begin(stream);
  EXPECT_TRUE(Eventually([&] { return transport_->receiving() == 3; }));
  EXPECT_EQ(endings_.count(), 0u);
  const Ending displaced = {absl::StatusCode::kResourceExhausted,
                            Delivery::kSent, "TOO_MANY_UPLOADS"};
  begin(7);
  EXPECT_THAT(endings_.Wait(1), ElementsAre(displaced));
  EXPECT_EQ(client.Next().stream, 1u);
  begin(9);
  EXPECT_THAT(endings_.Wait(2), ElementsAre(displaced, displaced));
  RawHttp2::Frame frame;
  do {
    frame = client.Next();  // gRPC resets the stream that it has answered
  } while (frame.ok && frame.stream == 1);
  EXPECT_EQ(frame.stream, 3u);
  EXPECT_TRUE(Eventually([&] { return transport_->receiving() == 3u; }));
  // Whoever sends its message at once is served meanwhile.
  InferStub stub(Connect(address_));
  EXPECT_TRUE(Infer(stub, "x").status.ok());
}

TEST_F(CallBoundsTest, APeersUploadsEndItsOwnAndNotAnothers) {
  TransportOptions options = Options();
  options.max_receiving = 3;
  Start(EchoCall, options);
  RawHttp2 slow(address_, 1 << 16, "127.0.0.2");
  slow.Begin(1, kInfer);
  slow.Send(1, RawHttp2::Prefix(4) + "xx", /*last=*/false);
  EXPECT_TRUE(Eventually([&] { return transport_->receiving() == 1; }));
  RawHttp2 greedy(address_, 1 << 16);
  for (uint32_t stream = 1; stream <= 9; stream += 2) {
    greedy.Begin(stream, kInfer);
    greedy.Send(stream, RawHttp2::Prefix(100), /*last=*/false);
  }
  const Ending displaced = {absl::StatusCode::kResourceExhausted,
                            Delivery::kSent, "TOO_MANY_UPLOADS"};
  EXPECT_THAT(endings_.Wait(3), ElementsAre(displaced, displaced, displaced));
  slow.Send(1, "xx", /*last=*/true);
  EXPECT_EQ(endings_.Wait(4)[3],
            (Ending{absl::StatusCode::kOk, Delivery::kSent, ""}));
}

// Many threads share the bounds of all; calls that come together on one of them
// must still fit. They are there before the thread that takes them looks.
class BurstOnOneOfManyThreadsTest : public CallBoundsTest {
 protected:
  static constexpr uint32_t kCalls = 100;

  TransportOptions ManyThreads() {
    TransportOptions options = Options();
    options.io_threads = 128;
    options.receive_timeout = options.send_timeout = absl::InfiniteDuration();
    return options;
  }

  void SendBurst(RawHttp2& client) {
    for (uint32_t i = 1; i <= kCalls; ++i) {
      client.Begin(2 * i + 1, kInfer);
      client.Send(2 * i + 1, RawHttp2::Prefix(1) + "x", /*last=*/true);
    }
  }

  Event begun_, may_go_on_;
};

TEST_F(BurstOnOneOfManyThreadsTest, MessagesThatAreThereAreNoSlowUploads) {
  std::atomic<bool> first{true};
  Start(
      [&](ServerCall& call) {
        if (first.exchange(false)) {
          begun_.Set();
          may_go_on_.Wait(1);
        }
        EchoCall(call);
      },
      ManyThreads());
  RawHttp2 client(address_, 1 << 20);
  client.Begin(1, kInfer);
  client.Send(1, RawHttp2::Prefix(1) + "x", /*last=*/true);
  begun_.Wait(1);
  SendBurst(client);
  may_go_on_.Set();
  const Ending served = {absl::StatusCode::kOk, Delivery::kSent, ""};
  EXPECT_THAT(endings_.Wait(kCalls + 1), Each(served));
  EXPECT_EQ(transport_->counts().uploads_displaced, 0u);
}

TEST_F(BurstOnOneOfManyThreadsTest, RefusalsAreTold) {
  Admission one(1, size_t{1} << 30);
  TransportOptions options = ManyThreads();
  options.admission = &one;
  ServerCall* held = nullptr;
  Start(
      [&](ServerCall& call) {
        held = &call;
        begun_.Set();
        may_go_on_.Wait(1);
      },
      options);
  RawHttp2 client(address_, 1 << 20);
  client.Begin(1, kInfer);
  client.Send(1, RawHttp2::Prefix(1) + "x", /*last=*/true);
  begun_.Wait(1);
  SendBurst(client);
  may_go_on_.Set();
  const Ending refused = {absl::StatusCode::kResourceExhausted, Delivery::kSent,
                          "QUEUE_FULL"};
  EXPECT_THAT(endings_.Wait(kCalls), Each(refused));
  EXPECT_EQ(transport_->counts().replies_cut, 0u);
  held->Resume([](ServerCall& call, void*) { EchoCall(call); }, nullptr);
  EXPECT_EQ(endings_.Wait(kCalls + 1).back().code, absl::StatusCode::kOk);
  transport_.reset();  // before its admission goes
}

// HTTP/2 lets the server state limits, and a client may leave them unread: this
// one reads nothing.
TEST_F(CallBoundsTest, ACallWithLargeHeadersIsRefused) {
  Start(EchoCall, Options());
  RawHttp2 client(address_, 1 << 16);
  client.Begin(1, kInfer, /*more_headers=*/140);  // 132 bytes each, to HTTP/2
  EXPECT_THAT(endings_.Wait(1),
              ElementsAre(Ending{absl::StatusCode::kResourceExhausted,
                                 Delivery::kSent, "HEADERS_TOO_LARGE"}));
  EXPECT_TRUE(NothingIsHeld());
  // The connection serves on.
  client.Begin(3, kInfer, /*more_headers=*/10);
  client.Send(3, RawHttp2::Prefix(1) + "x", /*last=*/true);
  EXPECT_EQ(endings_.Wait(2)[1].code, absl::StatusCode::kOk);
}

// Its socket is full of a reply, so that no error is written either. Refused
// calls count in nobody's bytes: few wait to be written, and others are reset.
TEST_F(CallBoundsTest, RefusalsThatNobodyReadsAreBounded) {
  constexpr uint32_t kMost = 2;
  constexpr uint32_t kMore = 3;
  Lent lent(64 << 20);
  TransportOptions options = Options();
  options.send_timeout = absl::Hours(1);
  options.max_refusals = 2 * kMost;  // one peer may have as many as it leaves
  Start([&](ServerCall& call) { call.Reply(lent.Reply()); }, options);
  {
    RawHttp2 client(address_, 1 << 30);
    client.Begin(1, kInfer);
    client.Send(1, RawHttp2::Prefix(0), /*last=*/true);
    EXPECT_TRUE(Eventually([&] { return transport_->sending() == 1; }));
    for (uint32_t i = 1; i <= kMost + kMore; ++i) {
      client.Begin(2 * i + 1, kInfer, /*more_headers=*/140);
    }
    ASSERT_TRUE(
        Eventually([&] { return transport_->counts().replies_cut == kMore; }));
    const Ending cut = {absl::StatusCode::kResourceExhausted, Delivery::kCut,
                        "HEADERS_TOO_LARGE"};
    EXPECT_THAT(endings_.Wait(kMore), ElementsAre(cut, cut, cut));
    EXPECT_TRUE(Eventually([&] { return transport_->sending() == 1 + kMost; }));
  }
  // What they held is back: others are told again why they are refused.
  EXPECT_TRUE(NothingIsHeld());
  for (uint32_t i = 0; i < kMost + kMore; ++i) {
    RawHttp2 other(address_, 1 << 16);
    other.Begin(1, kInfer, /*more_headers=*/140);
    EXPECT_TRUE(other.Await(1)) << i;
    // It may be read before gRPC has told the server that it is sent.
    EXPECT_TRUE(NothingIsHeld()) << i;
  }
  EXPECT_EQ(transport_->counts().replies_cut, kMore);
  EXPECT_TRUE(Eventually([&] { return lent.returned() == 1; }));
}

// The same of calls of methods that nobody registered.
TEST_F(CallBoundsTest, RefusalsOfUnknownMethodsAreBounded) {
  constexpr uint32_t kMost = 2;
  constexpr uint32_t kMore = 3;
  Lent lent(64 << 20);
  TransportOptions options = Options();
  options.send_timeout = absl::Hours(1);
  options.max_refusals = 2 * kMost;
  Start([&](ServerCall& call) { call.Reply(lent.Reply()); }, options);
  {
    RawHttp2 client(address_, 1 << 30);
    client.Begin(1, kInfer);
    client.Send(1, RawHttp2::Prefix(0), /*last=*/true);
    ASSERT_TRUE(Eventually([&] { return transport_->sending() == 1; }));
    for (uint32_t i = 1; i <= kMost + kMore; ++i) {
      client.Begin(2 * i + 1, kNobodys);
    }
    ASSERT_TRUE(
        Eventually([&] { return transport_->counts().replies_cut == kMore; }));
    const Ending cut = {absl::StatusCode::kUnimplemented, Delivery::kCut, ""};
    EXPECT_THAT(endings_.Wait(kMore), ElementsAre(cut, cut, cut));
    EXPECT_TRUE(Eventually([&] { return transport_->sending() == 1 + kMost; }));
    EXPECT_EQ(transport_->taken_calls(), 1 + kMost + kMore);
  }
  EXPECT_TRUE(NothingIsHeld());
  EXPECT_TRUE(Eventually([&] { return lent.returned() == 1; }));
}

TEST_F(CallBoundsTest, AnUnknownMethodsCallMeetsTheBoundsOfAll) {
  TransportOptions options = Options();
  options.max_header_bytes = 8 << 10;
  Start(EchoCall, options);
  RawHttp2 client(address_, 1 << 16);
  client.Begin(1, kNobodys, /*more_headers=*/140);
  const Ending large = {absl::StatusCode::kResourceExhausted, Delivery::kSent,
                        "HEADERS_TOO_LARGE"};
  EXPECT_THAT(endings_.Wait(1), ElementsAre(large));
  client.Begin(3, kNobodys);
  EXPECT_EQ(endings_.Wait(2)[1],
            (Ending{absl::StatusCode::kUnimplemented, Delivery::kSent, ""}));
  EXPECT_TRUE(NothingIsHeld());
  EXPECT_EQ(transport_->open_calls(), 0);
  // The connection serves on.
  client.Begin(5, kInfer);
  client.Send(5, RawHttp2::Prefix(1) + "x", /*last=*/true);
  EXPECT_EQ(endings_.Wait(3)[2].code, absl::StatusCode::kOk);
}

// While they come and are answered.
TEST_F(CallBoundsTest, AShutdownEndsCallsOfUnknownMethods) {
  constexpr size_t kCalls = 20;
  Start(EchoCall, Options());
  RawHttp2 client(address_, 1 << 16);
  std::thread caller([&] {
    uint32_t stream = 1;
    do {
      client.Begin(stream, kNobodys);
      stream += 2;
    } while (client.Await(stream - 2));
  });
  EXPECT_GE(endings_.Wait(kCalls).size(), kCalls);
  transport_->Shutdown(absl::ZeroDuration());
  caller.join();
  EXPECT_TRUE(Eventually([&] { return transport_->sending() == 0u; }));
  EXPECT_EQ(transport_->open_calls(), 0);
}

TEST_F(CallBoundsTest, RefusalsThatPeersLeaveUnreadTakeNotAllRoom) {
  constexpr size_t kMost = 4;
  Admission one(1, size_t{1} << 30);
  Lent lent(64 << 20);
  TransportOptions options = Options();
  options.admission = &one;
  options.send_timeout = absl::Hours(1);
  options.max_refusals = kMost;
  Start([&](ServerCall& call) { call.Reply(lent.Reply()); }, options);
  {
    RawHttp2 first(address_, 1 << 30), second(address_, 1 << 30, "127.0.0.2");
    size_t unsent = 0;
    for (RawHttp2* greedy : {&first, &second}) {
      greedy->Begin(1, kInfer);
      greedy->Send(1, RawHttp2::Prefix(0), /*last=*/true);
      ++unsent;
      ASSERT_TRUE(Eventually([&] { return transport_->sending() == unsent; }));
    }
    auto ticket = one.Admit(1, kNoDeadline, TestTime());
    ASSERT_TRUE(ticket.ok()) << ticket.status();
    // One has a half, the next a half of what is left.
    size_t cut = 0;
    size_t room = kMost;
    for (RawHttp2* greedy : {&first, &second}) {
      for (uint32_t i = 1; i <= kMost; ++i) greedy->Begin(2 * i + 1, kInfer);
      room /= 2;
      unsent += room;
      cut += kMost - room;
      ASSERT_TRUE(Eventually([&] { return endings_.count() >= cut; }));
      EXPECT_EQ(endings_.Wait(cut).back(),
                (Ending{absl::StatusCode::kResourceExhausted, Delivery::kCut,
                        "QUEUE_FULL"}));
      EXPECT_TRUE(Eventually([&] { return transport_->sending() == unsent; }));
    }
    // A third is told why, as often as it asks.
    RawHttp2 other(address_, 1 << 16, "127.0.0.3");
    for (uint32_t i = 0; i < kMost; ++i) {
      other.Begin(2 * i + 1, kInfer);
      EXPECT_EQ(endings_.Wait(cut + i + 1).back(),
                (Ending{absl::StatusCode::kResourceExhausted, Delivery::kSent,
                        "QUEUE_FULL"}));
    }
    EXPECT_EQ(transport_->counts().replies_cut, cut);
  }
  transport_.reset();  // before what its calls refer to
}

TEST_F(CallBoundsTest, AConnectionThatDoesNotHoldBackIsRefusedCalls) {
  constexpr uint32_t kCalls = 10;
  TransportOptions options = Options();
  options.max_streams = 3;
  Start(EchoCall, options);
  RawHttp2 client(address_, 1 << 16);
  for (uint32_t i = 0; i < kCalls; ++i) client.Begin(2 * i + 1, kInfer);
  const Ending refused = {absl::StatusCode::kResourceExhausted, Delivery::kSent,
                          "TOO_MANY_CALLS"};
  EXPECT_THAT(endings_.Wait(4),
              ElementsAre(refused, refused, refused, refused));
  EXPECT_TRUE(Eventually([&] { return transport_->receiving() == 6u; }));
  // Others have their own calls, and so has this one when some have ended.
  InferStub stub(Connect(address_));
  EXPECT_TRUE(Infer(stub, "x").status.ok());
  for (uint32_t i = 0; i < 6; ++i) {
    client.Send(2 * i + 1, RawHttp2::Prefix(1) + "x", /*last=*/true);
  }
  EXPECT_EQ(endings_.Wait(11)[10].code, absl::StatusCode::kOk);
  client.Begin(2 * kCalls + 1, kInfer);
  client.Send(2 * kCalls + 1, RawHttp2::Prefix(1) + "x", /*last=*/true);
  EXPECT_EQ(endings_.Wait(12)[11].code, absl::StatusCode::kOk);
}

TEST_F(CallBoundsTest, ACallerThatLeavesInTheMiddleOfItsMessageIsForgotten) {
  Start(EchoCall, Options());
  RawHttp2 client(address_, 1 << 16);
  client.Begin(1, kInfer);
  client.Send(1, RawHttp2::Prefix(100) + std::string(50, 'x'), /*last=*/false);
  EXPECT_TRUE(Eventually([&] { return transport_->receiving() == 1; }));
  client.Reset(1);
  EXPECT_THAT(endings_.Wait(1), ElementsAre(Ending{absl::StatusCode::kCancelled,
                                                   Delivery::kCallerGone, ""}));
  EXPECT_TRUE(NothingIsHeld());
}

// Wherever its client has ended it: that one is there, and is told.
TEST_F(CallBoundsTest, ACallWithoutAWholeMessageIsRefused) {
  Start(EchoCall, Options());
  RawHttp2 client(address_, 1 << 16);
  size_t calls = 0;
  for (const std::string& sent :
       {std::string(), std::string("\0\0", 2), RawHttp2::Prefix(100),
        RawHttp2::Prefix(100) + "half"}) {
    SCOPED_TRACE(sent.size());
    const auto stream = static_cast<uint32_t>(2 * calls + 1);
    client.Begin(stream, kInfer);
    client.Send(stream, sent, /*last=*/true);
    EXPECT_TRUE(client.Await(stream));
    EXPECT_EQ(
        endings_.Wait(++calls).back(),
        (Ending{absl::StatusCode::kInvalidArgument, Delivery::kSent, ""}));
  }
  EXPECT_TRUE(NothingIsHeld());
}

TEST_F(CallBoundsTest, AFullQueueRefusesBeforeTheMessageIsRead) {
  Admission full(1, size_t{1} << 30);
  auto ticket = full.Admit(1, kNoDeadline, TestTime());
  TransportOptions options = Options();
  options.admission = &full;
  Start(EchoCall, options);
  RawHttp2 client(address_, 1 << 16);
  client.Begin(1, kInfer);  // and not a byte of the message
  EXPECT_THAT(endings_.Wait(1),
              ElementsAre(Ending{absl::StatusCode::kResourceExhausted,
                                 Delivery::kSent, "QUEUE_FULL"}));
  EXPECT_EQ(client.Next().stream, 1u);
  ticket->Reset();
  InferStub stub(Connect(address_));
  EXPECT_TRUE(Infer(stub, "x").status.ok());
  transport_.reset();  // before its admission goes
}

TEST_F(CallBoundsTest, OtherMethodsAreAnsweredWhileTheQueueIsFull) {
  Admission full(0, 0);
  TransportOptions options = Options();
  options.admission = &full;
  Start(EchoCall, options, Traffic::kRare);
  InferStub stub(Connect(address_));
  EXPECT_TRUE(Infer(stub, "x").status.ok());
  const grpc::Status large =
      Infer(stub, std::string(kMaxSmallMessageBytes, 'x')).status;
  EXPECT_EQ(large.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(endings_.Wait(2)[1].reason, "MESSAGE_TOO_LARGE");
  transport_.reset();  // before its admission goes
}

// A message in frames of one byte takes gRPC a piece of its own for each.
TEST_F(CallBoundsTest, ThePiecesOfAMessageCount) {
  constexpr size_t kBytes = 100;
  // Room for all that the second call has, but for its pieces.
  Admission admission{100, kCallBytes + kBytes * kSliceBytes};
  // One request alone may have more.
  auto other = admission.Admit(1, kNoDeadline, TestTime());
  ASSERT_TRUE(other.ok()) << other.status();
  TransportOptions options = Options();
  options.admission = &admission;
  Start(EchoCall, options);
  RawHttp2 client(address_, 1 << 20);
  const std::string message =
      RawHttp2::Prefix(kBytes) + std::string(kBytes, 'x');
  client.Begin(1, kInfer);
  client.Send(1, message, /*last=*/true);
  EXPECT_EQ(client.ReadData(1, message.size()), message.size());
  endings_.Wait(1);
  client.Begin(3, kInfer);
  client.Send(3, message, /*last=*/true, /*frame_bytes=*/1);
  EXPECT_TRUE(client.Await(3));
  EXPECT_THAT(endings_.Wait(2),
              ElementsAre(Ending{absl::StatusCode::kOk, Delivery::kSent, ""},
                          Ending{absl::StatusCode::kResourceExhausted,
                                 Delivery::kSent, "QUEUE_BYTES_FULL"}));
  EXPECT_TRUE(Eventually([&] { return admission.bytes() == 1; }));
  transport_.reset();  // before its admission goes
}

// Each of them would keep all that was read from the connection with it.
TEST_F(CallBoundsTest, SmallPiecesOfAMessageAreCopiedTogether) {
  size_t pieces = 0;
  std::string seen;
  Start(
      [&](ServerCall& call) {
        pieces = call.request().pieces().size();
        seen.resize(call.request().size());
        call.request().CopyTo(reinterpret_cast<std::byte*>(seen.data()));
        EchoCall(call);
      },
      Options());
  RawHttp2 client(address_, 1 << 20);
  std::string message(250, '\0');
  for (size_t i = 0; i < message.size(); ++i) message[i] = static_cast<char>(i);
  client.Begin(1, kInfer);
  client.SendAsGranted(1, RawHttp2::Prefix(message.size()) + message,
                       /*last=*/true, /*frame_bytes=*/1);
  EXPECT_TRUE(client.Await(1));
  endings_.Wait(1);
  EXPECT_EQ(pieces, 1u);
  EXPECT_TRUE(seen == message);

  // Large ones stay where they are, between small ones.
  message.resize(100'000);
  for (size_t i = 0; i < message.size(); ++i) {
    message[i] = static_cast<char>(i * i >> 7);
  }
  const std::string bytes = RawHttp2::Prefix(message.size()) + message;
  client.Begin(3, kInfer);
  client.SendAsGranted(3, bytes.substr(0, 20), /*last=*/false,
                       /*frame_bytes=*/3);
  client.SendAsGranted(3, bytes.substr(20, 60'000), /*last=*/false);
  client.SendAsGranted(3, bytes.substr(60'020, 20), /*last=*/false,
                       /*frame_bytes=*/1);
  client.SendAsGranted(3, bytes.substr(60'040), /*last=*/true);
  EXPECT_EQ(endings_.Wait(2)[1].code, absl::StatusCode::kOk);
  EXPECT_GT(pieces, 1u);
  EXPECT_TRUE(seen == message);
  transport_.reset();  // before what its calls refer to
}

// Until a message is whole gRPC shows nothing of it, and holds some 42 bytes
// for each of its pieces. Behind a gateway others' calls are on its connection.
TEST_F(CallBoundsTest, AMessageInTooManyPiecesEndsItsCallAlone) {
  TransportOptions options = Options();
  options.receive_timeout = absl::InfiniteDuration();
  Start(EchoCall, options);
  RawHttp2 client(address_, 1 << 16);
  const std::string message = RawHttp2::Prefix(100) + std::string(100, 'm');
  client.Begin(1, kInfer);
  client.Send(1, message.substr(0, 50), /*last=*/false);
  client.Begin(3, kInfer);
  client.Send(3, RawHttp2::Prefix(1 << 20) + std::string(10'000, 'x'),
              /*last=*/false, /*frame_bytes=*/1);
  // It has a status as any other.
  const RawHttp2::Frame frame = client.Next();
  ASSERT_TRUE(frame.ok);
  EXPECT_EQ(frame.type, RawHttp2::kHeaders);
  EXPECT_EQ(frame.stream, 3u);
  EXPECT_THAT(frame.payload, HasSubstr("too many pieces"));
  EXPECT_THAT(endings_.Wait(1),
              ElementsAre(Ending{absl::StatusCode::kInvalidArgument,
                                 Delivery::kSent, ""}));
  // What comes on is passed over.
  EXPECT_TRUE(client.Send(3, std::string(10'000, 'x'), /*last=*/true,
                          /*frame_bytes=*/1));
  client.Send(1, message.substr(50), /*last=*/true);
  EXPECT_EQ(client.ReadData(1, message.size()), message.size());
  EXPECT_EQ(endings_.Wait(2).size(), 2u);
  const FrameGuard::Cuts cuts = transport_->cuts();
  EXPECT_EQ(cuts.streams.count, 1u);
  EXPECT_EQ(cuts.streams.peer, client.name());
  EXPECT_EQ(cuts.pieces.count, 0u);
  EXPECT_EQ(cuts.headers.count, 0u);
  EXPECT_TRUE(NothingIsHeld());
  // The next call is as good as any.
  client.Begin(5, kInfer);
  client.Send(5, message, /*last=*/true);
  EXPECT_EQ(client.ReadData(5, message.size()), message.size());
}

// A call that is being answered may send what nobody reads: gRPC holds it too.
// It has its answer all the same, and its client knows that it is open: whoever
// leaves it tells the server, so that it holds nothing longer than that.
TEST_F(CallBoundsTest, WhatFollowsAMessageMayNotComeInPiecesEither) {
  Event begun;
  Event may_end;
  TransportOptions options = Options();
  options.io_threads = 2;  // one reads the socket while the handler stands
  Start(
      [&](ServerCall& call) {
        begun.Set();
        may_end.Wait(1);
        EchoCall(call);
      },
      options);
  RawHttp2 client(address_, 1 << 16);
  client.Begin(1, kInfer);
  client.Send(1, RawHttp2::Prefix(1) + "m", /*last=*/false);
  begun.Wait(1);
  client.Send(1, std::string(1000, 'x'), /*last=*/false, /*frame_bytes=*/1);
  EXPECT_TRUE(
      Eventually([&] { return transport_->cuts().streams.count == 1; }));
  may_end.Set();
  EXPECT_EQ(client.ReadData(1, 6), 6u);
  EXPECT_THAT(endings_.Wait(1),
              ElementsAre(Ending{absl::StatusCode::kOk, Delivery::kSent, ""}));
  EXPECT_TRUE(NothingIsHeld());
  client.Begin(3, kInfer);
  client.Send(3, RawHttp2::Prefix(1) + "m", /*last=*/true);
  EXPECT_EQ(client.ReadData(3, 6), 6u);
}

// gRPC joins its pieces, again with each that comes, before it looks at its
// length: that took an I/O thread for seconds.
TEST_F(CallBoundsTest, AHeaderWithoutAnEndEndsItsConnection) {
  for (const size_t frame_bytes : {size_t{1}, size_t{16} << 10}) {
    Start(EchoCall, Options());
    RawHttp2 client(address_, 1 << 16);
    client.BeginEndless(1, kInfer);
    size_t sent = 0;
    constexpr size_t kPart = size_t{64} << 10;
    constexpr size_t kMost = size_t{64} << 20;
    while (sent < kMost && client.SendHeader(1, kPart, frame_bytes)) {
      sent += kPart;
    }
    EXPECT_LT(sent, kMost);
    EXPECT_TRUE(client.AwaitEnd());
    EXPECT_EQ(transport_->cuts().headers.count, 1u);
    EXPECT_EQ(transport_->cuts().headers.peer, client.name());
    EXPECT_EQ(transport_->cuts().pieces.count, 0u);
    // It does not linger, though its client is still there.
    EXPECT_TRUE(
        Eventually([&] { return transport_->open_connections() == 0; }));
    InferStub stub(Connect(address_));
    EXPECT_TRUE(Infer(stub, "x").status.ok());
  }
}

TEST_F(CallBoundsTest, ConnectionsOfUnixSocketsAreCutToo) {
  TransportOptions options = Options();
  options.addresses = {"unix:" + UnixPath()};
  Start(EchoCall, options);
  const int fd = ConnectUnix();
  std::string bytes = RawHttp2::Opening(1 << 16) +
                      RawHttp2::Encode(RawHttp2::kHeaders, /*flags=*/0, 1, "");
  for (size_t i = 0; i < FrameMeter::kHeaderPieces; ++i) {
    bytes += RawHttp2::Encode(RawHttp2::kContinuation, /*flags=*/0, 1, "");
  }
  ASSERT_EQ(send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(bytes.size()));
  char read[1024];
  while (recv(fd, read, sizeof(read), 0) > 0) {
  }
  close(fd);
  EXPECT_EQ(transport_->cuts().headers.count, 1u);
  EXPECT_EQ(transport_->cuts().headers.peer, "unix:");
}

TEST_F(CallBoundsTest, AnUploadOfManyFramesBesideSmallCallsIsServed) {
  constexpr size_t kBytes = size_t{64} << 20;
  TransportOptions options = Options();
  options.receive_timeout = absl::InfiniteDuration();
  Start(
      [](ServerCall& call) {
        if (call.request().size() > kBytes) return call.Reply(ReplyBuffer());
        EchoCall(call);
      },
      options);
  InferStub stub(Connect(address_));
  std::atomic<bool> done = false;
  std::atomic<int> failed = 0;
  std::thread small([&] {
    while (!done) failed += Infer(stub, "x").status.ok() ? 0 : 1;
  });
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(Infer(stub, std::string(kBytes, 'x')).status.ok());
  }
  done = true;
  small.join();
  EXPECT_EQ(failed, 0);
  const FrameGuard::Cuts cuts = transport_->cuts();
  EXPECT_EQ(cuts.streams.count + cuts.pieces.count + cuts.headers.count, 0u);
}

// gRPC's own services hold a thread for every stream.
TEST_F(CallBoundsTest, OpenReflectionStreamsHoldFewThreads) {
  constexpr uint32_t kStreams = 100;
  TransportOptions options = Options();
  options.reflection = true;
  Start(EchoCall, options);
  RawHttp2 client(address_, 1 << 16);
  const auto threads = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/task"),
                         std::filesystem::directory_iterator());
  };
  const auto before = threads();
  for (uint32_t i = 0; i < kStreams; ++i) {
    client.Begin(2 * i + 1,
                 "/grpc.reflection.v1alpha.ServerReflection/"
                 "ServerReflectionInfo");
  }
  std::set<uint32_t> refused;
  while (refused.size() < kStreams - 20) {
    const RawHttp2::Frame frame = client.Next();
    ASSERT_TRUE(frame.ok) << refused.size() << " of them were refused";
    refused.insert(frame.stream);
  }
  EXPECT_LE(threads(), before + 20);
}

TEST_F(CallBoundsTest, AConnectionHasABoundOnItsCalls) {
  std::vector<ServerCall*> held;
  Mutex mu;
  TransportOptions options = Options();
  options.max_streams = 3;
  Start(
      [&](ServerCall& call) {
        const MutexLock lock(&mu);
        held.push_back(&call);
      },
      options);
  InferStub stub(Connect(address_));
  std::vector<std::thread> callers;
  for (int i = 0; i < 5; ++i) {
    callers.emplace_back([&] {
      EXPECT_TRUE(Infer(stub, "held back by the client").status.ok());
    });
  }
  for (size_t answered = 0; answered < 5;) {
    EXPECT_TRUE(Eventually([&] {
      const MutexLock lock(&mu);
      return !held.empty();
    }));
    EXPECT_LE(transport_->open_calls(), 3);
    const MutexLock lock(&mu);
    for (ServerCall* call : held) {
      call->Resume([](ServerCall& c, void*) { EchoCall(c); }, nullptr);
      ++answered;
    }
    held.clear();
  }
  for (std::thread& caller : callers) caller.join();
}

grpc::Status InferCompressed(InferStub& stub, const std::string& id,
                             grpc_compression_algorithm algorithm,
                             std::string* reply = nullptr) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + testing::kPatience);
  context.set_compression_algorithm(algorithm);
  const Answer answer = Infer(stub, id, &context);
  if (reply != nullptr) *reply = answer.response.id();
  return answer.status;
}

TEST_F(CallBoundsTest, CompressedMessagesAreServed) {
  Start(EchoCall, Options());
  InferStub stub(Connect(address_));
  for (const auto algorithm : {GRPC_COMPRESS_GZIP, GRPC_COMPRESS_DEFLATE}) {
    for (size_t size :
         {size_t{1}, MessageInflater::kStepBytes, size_t{3'000'000}}) {
      const std::string id(size, 'z');
      std::string reply;
      const grpc::Status status = InferCompressed(stub, id, algorithm, &reply);
      EXPECT_TRUE(status.ok()) << status.error_message();
      EXPECT_EQ(reply, id);
    }
  }
  EXPECT_TRUE(NothingIsHeld());
}

// A stream may stay for days.
TEST_F(CallBoundsTest, WhatZlibHadIsFreeOnceAMessageIsWhole) {
  constexpr size_t kMessage = 20'000;
  std::atomic<int64_t> held{0};
  std::atomic<bool> inflated{false};
  TransportOptions options = Options();
  options.max_message_bytes = kMessage;
  Start(
      [&](ServerCall& call) {
        held = admission_.bytes();
        inflated = call.inflated();
        EchoCall(call);
      },
      options);
  InferStub stub(Connect(address_));
  const std::string id(kMessage - 100, 'z');
  EXPECT_TRUE(InferCompressed(stub, id, GRPC_COMPRESS_GZIP).ok());
  EXPECT_TRUE(inflated);
  EXPECT_GE(held, int64_t{kMessage});
  EXPECT_LT(held, int64_t{MessageInflater::kStateBytes});
}

TEST_F(CallBoundsTest, WhetherAMessageWasCompressedIsTold) {
  std::atomic<int> inflated{0};
  Start(
      [&](ServerCall& call) {
        inflated += call.inflated() ? 1 : 0;
        EchoCall(call);
      },
      Options());
  InferStub stub(Connect(address_));
  const std::string id(1000, 'z');
  EXPECT_TRUE(InferCompressed(stub, id, GRPC_COMPRESS_GZIP).ok());
  EXPECT_EQ(inflated, 1);
  for (int i = 0; i < 500; ++i) EXPECT_TRUE(Infer(stub, id).status.ok());
  EXPECT_EQ(inflated, 1);
}

// It may last for days.
TEST_F(CallBoundsTest, AStreamKeepsNoRequest) {
  std::atomic<size_t> read{0};
  struct Seen {
    const Admission* admission;
    std::atomic<size_t> kept{0};
    std::atomic<int64_t> held{0};
  } seen{.admission = &admission_};
  MethodTable table;
  table.AddStream("inference.GRPCInferenceService", "ModelInfer",
                  Traffic::kRare, [&](ServerCall& call) {
                    read += call.request().size();
                    call.Resume(
                        [](ServerCall& resumed, void* at) {
                          auto* const seen = static_cast<Seen*>(at);
                          seen->kept += resumed.request().size();
                          seen->held = seen->admission->bytes();
                          resumed.Fail(absl::CancelledError("the end"));
                        },
                        &seen);
                  });
  auto transport = Transport::Start(Options(), table);
  ASSERT_TRUE(transport.ok()) << transport.status();
  InferStub stub(Connect((*transport)->addresses()[0]));
  const std::string id(1000, 'z');
  for (const auto algorithm : {GRPC_COMPRESS_NONE, GRPC_COMPRESS_GZIP}) {
    const grpc::Status status = InferCompressed(stub, id, algorithm);
    EXPECT_EQ(status.error_message(), "the end");
    EXPECT_EQ(seen.held, int64_t{kCallBytes});
  }
  EXPECT_GT(read, 2 * id.size());
  EXPECT_EQ(seen.kept, 0u);
}

// Each look at it takes a second.
Nanos SlowTime() { return test_time += 1'000'000'000; }

// In steps, of which each may be one too many.
TEST_F(CallBoundsTest, AMessageIsInflatedNoLongerThanItsCallHasTime) {
  std::atomic<int> handled{0};
  TransportOptions options = Options();
  options.now = &SlowTime;
  options.receive_timeout = options.send_timeout = absl::InfiniteDuration();
  Start(
      [&](ServerCall& call) {
        ++handled;
        EchoCall(call);
      },
      options);
  InferStub stub(Connect(address_));
  // Of more steps than its deadline has seconds.
  constexpr size_t kBytes = 128 * MessageInflater::kStepBytes;
  static_assert(testing::kPatience < std::chrono::seconds(128));
  const grpc::Status status =
      InferCompressed(stub, std::string(kBytes, 'z'), GRPC_COMPRESS_GZIP);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(endings_.Wait(1)[0].code, absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(handled, 0);
  EXPECT_TRUE(NothingIsHeld());
}

// A megabyte that becomes a gigabyte: it grows to its bound and not further,
// and what it takes meanwhile is charged.
TEST_F(CallBoundsTest, AGzipBombIsRefusedAtTheBoundOfMessages) {
  TransportOptions options = Options();
  options.max_message_bytes = 1 << 20;
  Start(EchoCall, options);
  InferStub stub(Connect(address_));
  const grpc::Status status =
      InferCompressed(stub, std::string(64 << 20, '\0'), GRPC_COMPRESS_GZIP);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(endings_.Wait(1)[0].reason, "MESSAGE_TOO_LARGE");
  EXPECT_TRUE(NothingIsHeld());
  EXPECT_TRUE(InferCompressed(stub, "x", GRPC_COMPRESS_GZIP).ok());
}

TEST_F(CallBoundsTest, AGzipBombIsRefusedAtTheBoundOfAllBytes) {
  Admission small(100, size_t{4} << 20);
  auto other = small.Admit(1, kNoDeadline, TestTime());
  TransportOptions options = Options();
  options.admission = &small;
  Start(EchoCall, options);
  InferStub stub(Connect(address_));
  const grpc::Status status =
      InferCompressed(stub, std::string(64 << 20, '\0'), GRPC_COMPRESS_GZIP);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(endings_.Wait(1)[0].reason, "QUEUE_BYTES_FULL");
  EXPECT_TRUE(Eventually([&] { return small.bytes() == 1; }));
  transport_.reset();  // before what its calls refer to
}

}  // namespace
}  // namespace weir
