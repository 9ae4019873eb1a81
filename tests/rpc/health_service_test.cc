// grpc.health.v1.Health is bounded as other services are: what its messages
// take, for how long, and how many streams there are.
#include "server/rpc/health_service.h"

#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/base/eventually.h"
#include "tests/rpc/raw_http2.h"
#include "tests/rpc/test_transport.h"

namespace weir {
namespace {

using testing::Eventually;
using ::testing::HasSubstr;
using testing::RawHttp2;

constexpr char kCheck[] = "/grpc.health.v1.Health/Check";
constexpr char kWatch[] = "/grpc.health.v1.Health/Watch";
// States of a HealthCheckResponse.
constexpr int kServing = 1;
constexpr int kNotServing = 2;
constexpr uint8_t kEndStream = 1;  // of an HTTP/2 frame

// Stands still until a test moves it.
std::atomic<Nanos> test_time{1'000'000'000};
Nanos TestTime() { return test_time.load(); }

// A HealthCheckRequest.
std::string Request(const std::string& service) {
  EXPECT_LT(service.size(), 1u << 14);
  return std::string("\x0a") + static_cast<char>(service.size() | 0x80) +
         static_cast<char>(service.size() >> 7) + service;
}

class HealthServiceTest : public ::testing::Test {
 protected:
  // gRPC's library ends with its last user, and waits ten seconds for a poller
  // of its own if a write was delayed.
  static void SetUpTestSuite() { grpc_init(); }

  void SetUp() override {
    TransportOptions options;
    options.addresses = {"127.0.0.1:0"};
    options.now = &TestTime;
    options.receive_timeout = absl::Milliseconds(40);
    transport_ = StartTransport(&EchoCall, options);
    ASSERT_NE(transport_, nullptr);
    address_ = transport_->addresses()[0];
    transport_->SetServing("", true);
  }

  void SendWatch(RawHttp2& client, uint32_t stream) {
    const std::string request = Request("");
    client.Begin(stream, kWatch);
    client.Send(stream, RawHttp2::Prefix(request.size()) + request,
                /*last=*/true);
  }

  // Whether the server takes it: it says what the service is, in a message's
  // prefix and two bytes.
  bool IsWatched(RawHttp2& client, uint32_t stream) {
    SendWatch(client, stream);
    return client.ReadData(stream, 7) == 7;
  }

  // The state that the stream tells next, a HealthCheckResponse's, of the only
  // stream that the client reads; nullopt if it ends instead.
  std::optional<int> NextState(RawHttp2& client, uint32_t stream) {
    std::string& told = told_[&client];
    while (told.size() < 7) {
      const RawHttp2::Frame frame = client.Next();
      if (!frame.ok || frame.type == RawHttp2::kGoAway) return std::nullopt;
      if (frame.stream != stream) continue;
      if (frame.type == RawHttp2::kReset) return std::nullopt;
      if (frame.type == RawHttp2::kData) {
        told += frame.payload;
      } else if ((frame.flags & kEndStream) != 0) {
        return std::nullopt;
      }
    }
    const std::string message = told.substr(0, 7);
    told.erase(0, 7);
    EXPECT_EQ(message.substr(0, 6), RawHttp2::Prefix(2) + "\x08");
    return message[6];
  }

  grpc::Status Check(const std::string& request) {
    grpc::GenericStub stub(Connect(address_));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() +
                         std::chrono::seconds(20));
    grpc::CompletionQueue queue;
    const grpc::Slice slice(request);
    const auto call = stub.PrepareUnaryCall(
        &context, kCheck, grpc::ByteBuffer(&slice, 1), &queue);
    call->StartCall();
    grpc::ByteBuffer reply;
    grpc::Status status;
    call->Finish(&reply, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    return status;
  }

  std::unique_ptr<Transport> transport_;
  std::string address_;

 private:
  std::map<const RawHttp2*, std::string> told_;  // and not looked at
};

TEST_F(HealthServiceTest, AMessageThatIsTooLargeIsRefused) {
  EXPECT_TRUE(Check(Request("")).ok());
  EXPECT_EQ(Check(Request(std::string(16'000, 'x'))).error_code(),
            grpc::StatusCode::NOT_FOUND);
  const grpc::Status refused =
      Check(std::string("\x12\xa0\x9c\x01") + std::string(20'000, 'x'));
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.error_details(), HasSubstr("MESSAGE_TOO_LARGE"));
  // No flag moves this bound.
  EXPECT_THAT(refused.error_message(), HasSubstr("16384"));
  EXPECT_THAT(refused.error_message(), Not(HasSubstr("--max-message-bytes")));
  EXPECT_THAT(refused.error_details(), Not(HasSubstr("--max-message-bytes")));
  EXPECT_EQ(Check("\x0a\x05x").error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(HealthServiceTest, AMessageThatDoesNotComeIsNotAwaitedForever) {
  RawHttp2 client(address_, 1 << 16);
  client.Begin(1, kCheck);
  client.Send(1, RawHttp2::Prefix(100) + "half", /*last=*/false);
  client.Begin(3, kWatch);
  ASSERT_TRUE(Eventually([&] { return transport_->receiving() == 2; }));
  test_time += 40'000'000;
  EXPECT_TRUE(client.Await(1));
  EXPECT_TRUE(Eventually([&] { return transport_->receiving() == 0; }));
  EXPECT_EQ(transport_->counts().uploads_timed_out, 2u);
}

TEST_F(HealthServiceTest, StreamsOfAConnectionAreBounded) {
  constexpr auto kMost =
      static_cast<uint32_t>(HealthService::kMaxConnectionWatches);
  RawHttp2 client(address_, 1 << 16);
  for (uint32_t i = 0; i < kMost; ++i) {
    ASSERT_TRUE(IsWatched(client, 2 * i + 1));
  }
  SendWatch(client, 2 * kMost + 1);
  EXPECT_EQ(client.ReadData(2 * kMost + 1, 7), 0u);
  // Others are as free as before, and so is it once one of its own has ended.
  RawHttp2 other(address_, 1 << 16);
  SendWatch(other, 1);
  EXPECT_EQ(other.ReadData(1, 7), 7u);
  client.Reset(1);
  const uint32_t first = 2 * kMost + 3;
  uint32_t tries = 0;
  EXPECT_TRUE(
      Eventually([&] { return IsWatched(client, 2 * tries++ + first); }));
  // Each hears of a change.
  transport_->SetServing("", false);
  EXPECT_EQ(other.ReadData(1, 7), 7u);
  EXPECT_EQ(client.ReadData(3, 7), 7u);
}

// The server takes no more of what it sends, and the client, which knows of no
// end, hears of changes and says when it leaves.
TEST_F(HealthServiceTest, AStreamThatSendsOnLeavesItsPlace) {
  constexpr auto kMost =
      static_cast<uint32_t>(HealthService::kMaxConnectionWatches);
  const std::string request = Request("");
  RawHttp2 client(address_, 1 << 16);
  for (uint32_t i = 0; i < kMost; ++i) {
    const uint32_t stream = 2 * i + 1;
    client.Begin(stream, kWatch);
    client.Send(stream, RawHttp2::Prefix(request.size()) + request,
                /*last=*/false);
    ASSERT_EQ(client.ReadData(stream, 7), 7u);
  }
  for (uint32_t i = 0; i < kMost; ++i) {
    client.Send(2 * i + 1, std::string(300, 'x'), /*last=*/false,
                /*frame_bytes=*/1);
  }
  EXPECT_TRUE(
      Eventually([&] { return transport_->cuts().streams.count == kMost; }));
  transport_->SetServing("", false);
  for (uint32_t i = 0; i < kMost; ++i) {
    ASSERT_EQ(client.Next().type, RawHttp2::kData);
  }
  for (uint32_t i = 0; i < kMost; ++i) client.Reset(2 * i + 1);
  const uint32_t first = 2 * kMost + 1;
  uint32_t tries = 0;
  EXPECT_TRUE(
      Eventually([&] { return IsWatched(client, 2 * tries++ + first); }));
  EXPECT_EQ(transport_->cuts().pieces.count, 0u);
}

TEST_F(HealthServiceTest, StreamsAreBounded) {
  constexpr size_t kConnections =
      HealthService::kMaxPeerWatches / HealthService::kMaxConnectionWatches;
  std::vector<std::unique_ptr<RawHttp2>> clients;
  const auto fill = [&](const std::string& peer) {
    for (size_t c = 0; c < kConnections; ++c) {
      clients.push_back(std::make_unique<RawHttp2>(address_, 1 << 16, peer));
      for (uint32_t i = 0; i < HealthService::kMaxConnectionWatches; ++i) {
        ASSERT_TRUE(IsWatched(*clients.back(), 2 * i + 1)) << c << " " << i;
      }
    }
  };
  const auto has_room = [&](const std::string& peer) {
    RawHttp2 client(address_, 1 << 16, peer);
    return IsWatched(client, 1);
  };
  fill("127.0.0.1");
  // No peer takes them all.
  EXPECT_FALSE(has_room("127.0.0.1"));
  // Where one of its connections was, there is room for another.
  clients.front() = std::make_unique<RawHttp2>(address_, 1 << 16);
  uint32_t stream = 1;
  for (uint32_t i = 0; i < HealthService::kMaxConnectionWatches; ++i) {
    ASSERT_TRUE(Eventually([&] {
      stream += 2;
      return IsWatched(*clients.front(), stream);
    })) << i;
  }
  EXPECT_FALSE(has_room("127.0.0.1"));
  fill("127.0.0.2");
  static_assert(HealthService::kMaxWatches ==
                2 * HealthService::kMaxPeerWatches);
  EXPECT_FALSE(has_room("127.0.0.3"));
  // Who asks once is answered.
  EXPECT_TRUE(Check(Request("")).ok());
}

// A stream that nobody ends must not hold a drain.
TEST_F(HealthServiceTest, StreamsEndWhenTheListenersClose) {
  RawHttp2 client(address_, 1 << 16);
  SendWatch(client, 1);
  EXPECT_EQ(NextState(client, 1), kServing);
  transport_->SetServing("", false);
  transport_->CloseListeners();
  // It is told the last state first.
  EXPECT_EQ(NextState(client, 1), kNotServing);
  EXPECT_EQ(NextState(client, 1), std::nullopt);
  SendWatch(client, 3);
  EXPECT_EQ(client.ReadData(3, 7), 0u);
}

// What nobody reads is one message, whatever changes.
TEST_F(HealthServiceTest, AReaderThatStopsHearsTheLastState) {
  // What is being sent is told after the fact: a message counts here that is
  // known to wait, and then to be gone.
  RawHttp2 client(address_, 0);
  SendWatch(client, 1);
  EXPECT_TRUE(Eventually([&] { return transport_->sending() == 1; }));
  client.Grant(1, 7);
  EXPECT_EQ(NextState(client, 1), kServing);
  EXPECT_TRUE(Eventually([&] { return transport_->sending() == 0; }));
  transport_->SetServing("", false);
  EXPECT_TRUE(Eventually([&] { return transport_->sending() == 1; }));
  for (int i = 0; i < 1001; ++i) transport_->SetServing("", i % 2 == 0);
  client.Grant(1, 1 << 16);
  EXPECT_EQ(NextState(client, 1), kNotServing);
  EXPECT_EQ(NextState(client, 1), kServing);
  EXPECT_TRUE(Eventually([&] { return transport_->sending() == 0; }));
  // Nothing came in between.
  transport_->SetServing("", false);
  EXPECT_EQ(NextState(client, 1), kNotServing);
}

TEST_F(HealthServiceTest, ChangesAndStreamsMeet) {
  std::atomic<bool> ends = false;
  std::vector<std::thread> changers;
  for (int i = 0; i < 2; ++i) {
    changers.emplace_back([&] {
      for (bool serving = false; !ends; serving = !serving) {
        transport_->SetServing("", serving);
      }
    });
  }
  for (int round = 0; round < 50; ++round) {
    RawHttp2 client(address_, 1 << 16);
    for (uint32_t i = 0; i < 10; ++i) SendWatch(client, 2 * i + 1);
    EXPECT_EQ(client.ReadData(1, 7), 7u);
    client.Reset(3);
  }
  transport_->Shutdown(absl::ZeroDuration());
  ends = true;
  for (std::thread& changer : changers) changer.join();
}

}  // namespace
}  // namespace weir
