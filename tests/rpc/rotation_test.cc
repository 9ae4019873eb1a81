// Connections that are asked to leave (--max-connection-age) take no call with
// them.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdarg>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "kernels/base/mutex.h"
#include "server/rpc/lingering_sockets.h"
#include "tests/base/event.h"
#include "tests/base/eventually.h"
#include "tests/rpc/raw_http2.h"
#include "tests/rpc/test_transport.h"

namespace {

// All that was written to sockets is on its way for ever.
std::atomic<bool> bytes_stay_unsent = false;

}  // namespace

// The C library's, for this program.
int ioctl(int fd, unsigned long request, ...) noexcept {
  va_list arguments;
  va_start(arguments, request);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  if (request == SIOCOUTQ && bytes_stay_unsent) {
    *static_cast<int*>(argument) = 1;
    return 0;
  }
  return static_cast<int>(syscall(SYS_ioctl, fd, request, argument));
}

namespace weir {
namespace {

using testing::Eventually;
using ::testing::IsEmpty;
using testing::RawHttp2;

constexpr char kInfer[] = "/inference.GRPCInferenceService/ModelInfer";

// gRPC closes the connection with the end of its last call. What the client
// writes then (a stock one: pings and windows) must not be answered with a
// reset: it would lose what it has not read.
TEST(RotationTest, AClientMayWriteWhenItsConnectionHasEnded) {
  Event arrived;
  std::atomic<ServerCall*> held = nullptr;
  const auto transport = StartTransport(
      [&](ServerCall& call) {
        held = &call;
        arrived.Set();
      },
      {.addresses = {"127.0.0.1:0"},
       .max_connection_age = absl::Milliseconds(100)});
  auto client = std::make_unique<RawHttp2>(transport->addresses()[0], 1 << 20);
  client->Begin(1, kInfer);
  client->Send(1, RawHttp2::Prefix(2) + "hi", /*last=*/true);
  arrived.Wait(1);
  // The warning, which it answers, and the last word.
  EXPECT_EQ(client->Next().type, RawHttp2::kGoAway);
  EXPECT_EQ(client->Next().type, RawHttp2::kGoAway);
  held.load()->Resume([](ServerCall& call, void*) { EchoCall(call); }, nullptr);
  EXPECT_EQ(client->ReadData(1, 7), 7u);
  while (client->Next().ok) {
  }
  EXPECT_TRUE(client->MayWriteOn());
  EXPECT_EQ(transport->open_connections(), 1u);
  client.reset();
  EXPECT_TRUE(Eventually([&] { return transport->open_connections() == 0; }));
}

// A reply that nobody reads has send_timeout, and so has what was written of it
// before the connection ended.
TEST(RotationTest, AnEndedConnectionWaitsForItsReaderAsAReplyDoes) {
  constexpr auto kLess = std::chrono::seconds(20);
  ASSERT_LT(absl::FromChrono(kLess), LingeringSockets::Bounds().limit);
  const auto transport =
      StartTransport(EchoCall, {.addresses = {"127.0.0.1:0"},
                                .send_timeout = absl::Milliseconds(40),
                                .max_connection_age = absl::Milliseconds(100)});
  bytes_stay_unsent = true;
  RawHttp2 client(transport->addresses()[0], 1 << 20);
  while (client.Next().ok) {
  }
  EXPECT_TRUE(
      Eventually([&] { return transport->open_connections() == 0; }, kLess));
  bytes_stay_unsent = false;
}

// Stock clients whose connections leave every 20 ms, each with several calls
// whose replies take several reads.
TEST(RotationTest, LosesNoCall) {
  constexpr int kConnections = 4;
  constexpr int kCallers = 4;  // of each
  constexpr int kCalls = 300;  // of each caller
  constexpr absl::Duration kAge = absl::Milliseconds(20);
  const auto transport = StartTransport(
      EchoCall, {.addresses = {"127.0.0.1:0"}, .max_connection_age = kAge});
  const std::string id(100'000, 'x');
  Mutex mu;
  std::map<std::string, int> lost;
  std::vector<std::thread> callers;
  std::shared_ptr<grpc::Channel> channel;
  for (int i = 0; i < kConnections * kCallers; ++i) {
    if (i % kCallers == 0) channel = Connect(transport->addresses()[0]);
    callers.emplace_back([&, channel] {
      InferStub stub(channel);
      for (int n = 0; n < kCalls; ++n) {
        grpc::ClientContext context;
        // While there is no connection a call waits for one.
        context.set_wait_for_ready(true);
        context.set_deadline(std::chrono::system_clock::now() +
                             std::chrono::minutes(1));
        const Answer answer = Infer(stub, id, &context);
        if (answer.status.ok() && answer.response.id().size() == id.size()) {
          continue;
        }
        const MutexLock lock(&mu);
        ++lost[answer.status.error_message()];
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_THAT(lost, IsEmpty());
}

}  // namespace
}  // namespace weir
