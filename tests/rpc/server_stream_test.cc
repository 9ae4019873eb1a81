// Streams of messages each way, over the loopback interface: what is read and
// written when, how they end, and what they count for.
#include "server/rpc/server_stream.h"

#include <gmock/gmock.h>

#include <atomic>
#include <deque>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/base/error_info.h"
#include "kernels/base/mutex.h"
#include "tests/base/event.h"
#include "tests/base/eventually.h"
#include "tests/rpc/raw_stream_client.h"
#include "tests/rpc/test_transport.h"

namespace weir {
namespace {

using testing::Eventually;
using ::testing::HasSubstr;
using testing::RawStreamClient;

constexpr char kService[] = "test.Streams";
constexpr char kPath[] = "/test.Streams/Echo";

std::string TextOf(const StreamMessage& message) {
  std::string text(message.bytes().size(), '\0');
  message.bytes().CopyTo(reinterpret_cast<std::byte*>(text.data()));
  return text;
}

ReplyBuffer ReplyOf(const std::string& text) {
  ReplyBuffer reply;
  reply.AppendCopy(text);
  return reply;
}

// Sends back what it gets, in order; reads on while fewer than so many messages
// are not sent yet. Ends with its caller, or with OK when that has sent all and
// got it back.
class Echo {
 public:
  struct Counts {
    std::atomic<int> begun{0};
    std::atomic<int> read{0};
    std::atomic<int> written{0};
    std::atomic<int> gone{0};
    std::atomic<int> most_unsent{0};
  };

  Echo(ServerStream& call, size_t window, Counts* counts)
      : call_(call), window_(window), counts_(counts) {}

  void Begin() {
    ++counts_->begun;
    call_.OnCancel(
        [](ServerCall&, void* self) { static_cast<Echo*>(self)->Gone(); },
        this);
    GoOn();
  }

 private:
  void Gone() {
    const std::unique_ptr<Echo> self(this);
    ++counts_->gone;
    call_.Fail(absl::CancelledError("the caller has gone"));
  }

  void GoOn() {
    if (!writes_ && !unsent_.empty()) Write();
    if (!writes_ && ended_) {
      const std::unique_ptr<Echo> self(this);
      return call_.Finish();
    }
    if (reads_ || ended_ || unsent_.size() >= window_) return;
    reads_ = true;
    call_.Read(
        [](ServerStream&, ServerStream::MessageOr message, void* self) {
          static_cast<Echo*>(self)->Took(std::move(message));
        },
        this);
  }

  void Took(ServerStream::MessageOr message) {
    reads_ = false;
    if (!message.ok()) {
      const std::unique_ptr<Echo> self(this);
      return call_.Fail(message.status());
    }
    if (*message == nullptr) {
      ended_ = true;
    } else {
      ++counts_->read;
      unsent_.push_back(*std::move(message));
      counts_->most_unsent =
          std::max<int>(counts_->most_unsent, static_cast<int>(unsent_.size()));
    }
    GoOn();
  }

  void Write() {
    writes_ = true;
    call_.Write(
        ReplyOf(TextOf(*unsent_.front())),
        [](ServerCall&, void* arg) {
          auto* const self = static_cast<Echo*>(arg);
          ++self->counts_->written;
          self->writes_ = false;
          self->unsent_.pop_front();
          self->GoOn();
        },
        this);
  }

  ServerStream& call_;
  const size_t window_;
  Counts* const counts_;
  std::deque<std::shared_ptr<StreamMessage>> unsent_;
  bool reads_ = false;
  bool writes_ = false;
  bool ended_ = false;
};

StreamHandler EchoHandler(Echo::Counts* counts, size_t window = 4) {
  return [=](ServerStream& call) { (new Echo(call, window, counts))->Begin(); };
}

std::unique_ptr<Transport> StartStreams(StreamHandler handler,
                                        TransportOptions options = {
                                            .addresses = {"127.0.0.1:0"}}) {
  MethodTable table;
  table.AddBidi(kService, "Echo", std::move(handler));
  table.Add("inference.GRPCInferenceService", "ModelInfer", Traffic::kHeavy,
            EchoCall);
  if (options.io_threads == 0) options.io_threads = 2;
  auto transport = Transport::Start(std::move(options), table);
  EXPECT_TRUE(transport.ok()) << transport.status();
  return transport.ok() ? *std::move(transport) : nullptr;
}

std::shared_ptr<grpc::Channel> ConnectTo(const Transport& transport) {
  return Connect(transport.addresses()[0]);
}

bool Settles(const Transport& transport) {
  return Eventually([&] { return transport.open_calls() == 0; });
}

// Until `count` stays as it is while so many calls of the same connection are
// answered one after the other: whoever waits for nothing is through by then.
int StandsStill(const std::shared_ptr<grpc::Channel>& channel,
                const std::atomic<int>& count) {
  InferStub stub(channel);
  int before = -1;
  while (before != count) {
    before = count;
    for (int i = 0; i < 200; ++i) EXPECT_TRUE(Infer(stub, "x").status.ok());
  }
  return before;
}

TEST(ServerStreamTest, MessagesComeBackInOrder) {
  Echo::Counts counts;
  const auto transport = StartStreams(EchoHandler(&counts));
  RawStreamClient client(ConnectTo(*transport), kPath);
  client.Start();
  std::vector<std::string> messages = {"", "a", std::string(100, 'b')};
  messages.push_back(std::string(10'000, 'c'));
  messages.push_back(std::string(size_t{9} << 20, 'd'));
  messages.push_back("e");
  std::thread sender([&] {
    for (const std::string& message : messages) {
      EXPECT_TRUE(client.Send(message));
    }
    EXPECT_TRUE(client.EndSending());
  });
  for (const std::string& message : messages) {
    const std::optional<std::string> got = client.Receive();
    ASSERT_TRUE(got.has_value());
    EXPECT_TRUE(*got == message) << got->size();
  }
  EXPECT_EQ(client.Receive(), std::nullopt);
  sender.join();
  const grpc::Status status = client.Finish();
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_TRUE(Settles(*transport));
  EXPECT_EQ(counts.gone, 0);
}

TEST(ServerStreamTest, WhoSendsNothingGetsNothing) {
  Echo::Counts counts;
  const auto transport = StartStreams(EchoHandler(&counts));
  RawStreamClient client(ConnectTo(*transport), kPath);
  client.Start();
  EXPECT_TRUE(client.EndSending());
  EXPECT_EQ(client.Receive(), std::nullopt);
  EXPECT_TRUE(client.Finish().ok());
  EXPECT_TRUE(Settles(*transport));
}

TEST(ServerStreamTest, TheHandlerHasTheCallWithItsHeaders) {
  std::atomic<int> right{0};
  const auto transport = StartStreams([&](ServerStream& call) {
    if (call.Header("x-what") == "that" && call.request().empty()) ++right;
    call.Fail(WithReason(absl::NotFoundError("not here"), "NO_SUCH_THING"));
  });
  RawStreamClient client(ConnectTo(*transport), kPath);
  client.context().AddMetadata("x-what", "that");
  client.Start();
  EXPECT_EQ(client.Receive(), std::nullopt);
  const grpc::Status status = client.Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(status.error_message(), "not here");
  EXPECT_THAT(status.error_details(), HasSubstr("NO_SUCH_THING"));
  EXPECT_EQ(right, 1);
  EXPECT_TRUE(Settles(*transport));
}

// Of a caller whose messages nobody asks for there is what fits its window.
TEST(ServerStreamTest, NothingIsReadThatIsNotAskedFor) {
  std::promise<ServerStream*> held;
  const auto transport = StartStreams([&](ServerStream& call) {
    call.OnCancel(
        [](ServerCall& gone, void*) {
          gone.Fail(absl::CancelledError("the caller has gone"));
        },
        nullptr);
    held.set_value(&call);
  });
  const auto channel = ConnectTo(*transport);
  RawStreamClient client(channel, kPath);
  client.Start();
  std::atomic<int> sent{0};
  std::thread sender([&] {
    const std::string message(size_t{16} << 10, 'x');
    while (client.Send(message)) ++sent;
  });
  held.get_future().get();
  EXPECT_LE(StandsStill(channel, sent), 8);
  client.context().TryCancel();
  sender.join();
  EXPECT_TRUE(Settles(*transport));
}

// Nor does the server make more for one who does not read.
TEST(ServerStreamTest, OneWhoDoesNotReadIsNotRead) {
  Echo::Counts counts;
  const auto transport = StartStreams(EchoHandler(&counts, /*window=*/4));
  const auto channel = ConnectTo(*transport);
  RawStreamClient client(channel, kPath);
  client.Start();
  std::atomic<int> sent{0};
  std::thread sender([&] {
    const std::string message(size_t{64} << 10, 'x');
    while (client.Send(message)) ++sent;
  });
  StandsStill(channel, counts.written);
  StandsStill(channel, sent);
  EXPECT_LE(counts.most_unsent, 4);
  EXPECT_LE(counts.read - counts.written, 4);
  client.context().TryCancel();
  sender.join();
  EXPECT_TRUE(Settles(*transport));
  EXPECT_EQ(counts.gone, 1);
}

TEST(ServerStreamTest, AReaderThatStopsIsCut) {
  Echo::Counts counts;
  const auto transport = StartStreams(
      EchoHandler(&counts),
      {.addresses = {"127.0.0.1:0"}, .send_timeout = absl::Milliseconds(50)});
  RawStreamClient client(ConnectTo(*transport), kPath);
  client.Start();
  const std::string message(size_t{1} << 20, 'x');
  while (client.Send(message)) {
  }
  EXPECT_TRUE(Settles(*transport));
  EXPECT_EQ(counts.gone, 1);
  EXPECT_TRUE(
      Eventually([&] { return transport->counts().replies_cut == 1u; }));
}

// Stands still until a test moves it.
std::atomic<Nanos> test_time{1'000'000'000};
Nanos TestTime() { return test_time.load(); }

// A stream is there for its messages: whoever sends none has as long as for a
// call's. Who has begun may take any time.
TEST(ServerStreamTest, TheFirstMessageHasATime) {
  Echo::Counts counts;
  const auto transport =
      StartStreams(EchoHandler(&counts), {.addresses = {"127.0.0.1:0"},
                                          .io_threads = 1,
                                          .receive_timeout = absl::Seconds(1),
                                          .now = &TestTime});
  const auto channel = ConnectTo(*transport);
  RawStreamClient begun(channel, kPath);
  begun.Start();
  ASSERT_TRUE(begun.Send("x"));
  ASSERT_EQ(begun.Receive(), "x");
  RawStreamClient idle(channel, kPath);
  idle.Start();
  ASSERT_TRUE(Eventually([&] { return counts.begun == 2; }));
  std::thread waits([&] {
    EXPECT_EQ(idle.Receive(), std::nullopt);
    const grpc::Status status = idle.Finish();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
    EXPECT_THAT(status.error_details(), HasSubstr("RECEIVE_TIMEOUT"));
  });
  EXPECT_TRUE(Eventually([&] {
    test_time += 100'000'000;
    return transport->counts().uploads_timed_out == 1;
  }));
  waits.join();
  test_time += 1'000'000'000'000;
  ASSERT_TRUE(begun.Send("y"));
  EXPECT_EQ(begun.Receive(), "y");
  EXPECT_EQ(transport->counts().uploads_timed_out, 1u);
}

// Those that wait for their first messages are uploads among others.
TEST(ServerStreamTest, OneThatHasNotBegunMakesRoomForOthers) {
  Echo::Counts counts;
  const auto transport = StartStreams(
      EchoHandler(&counts),
      {.addresses = {"127.0.0.1:0"}, .io_threads = 1, .max_receiving = 1});
  const auto channel = ConnectTo(*transport);
  RawStreamClient first(channel, kPath);
  first.Start();
  ASSERT_TRUE(Eventually([&] { return counts.begun == 1; }));
  RawStreamClient second(channel, kPath);
  second.Start();
  EXPECT_EQ(first.Receive(), std::nullopt);
  EXPECT_THAT(first.Finish().error_details(), HasSubstr("TOO_MANY_UPLOADS"));
  ASSERT_TRUE(second.Send("x"));
  EXPECT_EQ(second.Receive(), "x");
}

TEST(ServerStreamTest, ACallerThatLeavesIsToldOf) {
  Echo::Counts counts;
  const auto transport = StartStreams(EchoHandler(&counts));
  for (int i = 0; i < 20; ++i) {
    RawStreamClient client(ConnectTo(*transport), kPath);
    client.Start();
    ASSERT_TRUE(client.Send("x"));
    ASSERT_EQ(client.Receive(), "x");
    client.context().TryCancel();
    EXPECT_EQ(client.Receive(), std::nullopt);
  }
  EXPECT_TRUE(Settles(*transport));
  EXPECT_EQ(counts.gone, 20);
}

TEST(ServerStreamTest, TheEndOfTheServerEndsStreams) {
  Echo::Counts counts;
  const auto transport = StartStreams(EchoHandler(&counts));
  std::vector<std::unique_ptr<RawStreamClient>> clients;
  for (int i = 0; i < 8; ++i) {
    clients.push_back(
        std::make_unique<RawStreamClient>(ConnectTo(*transport), kPath));
    clients.back()->Start();
    ASSERT_TRUE(clients.back()->Send("x"));
    ASSERT_EQ(clients.back()->Receive(), "x");
  }
  EXPECT_TRUE(transport->Shutdown(absl::ZeroDuration()));
  EXPECT_EQ(counts.gone, 8);
  for (const auto& client : clients) {
    EXPECT_EQ(client->Receive(), std::nullopt);
    EXPECT_FALSE(client->Finish().ok());
  }
}

TEST(ServerStreamTest, CompressedMessagesAreUndone) {
  Echo::Counts counts;
  const auto transport = StartStreams(EchoHandler(&counts));
  for (const auto algorithm : {GRPC_COMPRESS_GZIP, GRPC_COMPRESS_DEFLATE}) {
    RawStreamClient client(ConnectTo(*transport), kPath);
    client.context().set_compression_algorithm(algorithm);
    client.Start();
    for (const size_t size : {size_t{2000}, size_t{5} << 20, size_t{7}}) {
      const std::string message(size, 'x');
      ASSERT_TRUE(client.Send(message));
      const std::optional<std::string> got = client.Receive();
      ASSERT_TRUE(got.has_value());
      EXPECT_TRUE(*got == message) << got->size();
    }
    EXPECT_TRUE(client.EndSending());
    EXPECT_EQ(client.Receive(), std::nullopt);
    EXPECT_TRUE(client.Finish().ok());
  }
}

// A caller may go while its message is being undone.
TEST(ServerStreamTest, ACallerThatLeavesWhileItsMessageIsUndoneIsToldOf) {
  Echo::Counts counts;
  const auto transport = StartStreams(
      EchoHandler(&counts), {.addresses = {"127.0.0.1:0"}, .io_threads = 1});
  const std::string message(size_t{200} << 20, 'x');
  RawStreamClient client(ConnectTo(*transport), kPath);
  client.context().set_compression_algorithm(GRPC_COMPRESS_GZIP);
  client.Start();
  ASSERT_TRUE(client.Send(message));
  client.context().TryCancel();
  EXPECT_TRUE(Settles(*transport));
  EXPECT_EQ(counts.gone, 1);
}

TEST(ServerStreamTest, AMessageHasABound) {
  Echo::Counts counts;
  const auto transport = StartStreams(
      EchoHandler(&counts),
      {.addresses = {"127.0.0.1:0"}, .max_message_bytes = 100'000});
  for (const auto algorithm : {GRPC_COMPRESS_NONE, GRPC_COMPRESS_GZIP}) {
    RawStreamClient client(ConnectTo(*transport), kPath);
    client.context().set_compression_algorithm(algorithm);
    client.Start();
    ASSERT_TRUE(client.Send(std::string(100'000, 'x')));
    ASSERT_TRUE(client.Receive().has_value());
    ASSERT_TRUE(client.Send(std::string(100'001, 'x')));
    EXPECT_EQ(client.Receive(), std::nullopt);
    const grpc::Status status = client.Finish();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_THAT(status.error_details(), HasSubstr("MESSAGE_TOO_LARGE"));
  }
  EXPECT_TRUE(Settles(*transport));
}

// A stream takes no place in the queue; its messages count with the bytes, for
// as long as they are kept.
TEST(ServerStreamTest, MessagesCountAndStreamsDoNotQueue) {
  Admission admission(/*max_requests=*/1, /*max_bytes=*/1 << 20);
  std::vector<std::shared_ptr<StreamMessage>> kept;
  Mutex mu;
  struct Keeper {
    std::vector<std::shared_ptr<StreamMessage>>* kept;
    Mutex* mu;
  } keeper{&kept, &mu};
  const auto transport = StartStreams(
      [&](ServerStream& call) {
        static constexpr ServerStream::ReadFn kRead =
            [](ServerStream& stream, ServerStream::MessageOr message,
               void* arg) {
              if (!message.ok()) return stream.Fail(message.status());
              if (*message == nullptr) return stream.Finish();
              auto* const into = static_cast<Keeper*>(arg);
              {
                const MutexLock lock(into->mu);
                into->kept->push_back(*std::move(message));
              }
              stream.Write(
                  ReplyOf("kept"),
                  [](ServerCall& written, void* arg) {
                    static_cast<ServerStream&>(written).Read(kRead, arg);
                  },
                  arg);
            };
        call.OnCancel(
            [](ServerCall& gone, void*) {
              gone.Fail(absl::CancelledError("the caller has gone"));
            },
            nullptr);
        call.Read(kRead, &keeper);
      },
      {.addresses = {"127.0.0.1:0"}, .admission = &admission});
  const auto channel = ConnectTo(*transport);
  std::vector<std::unique_ptr<RawStreamClient>> clients;
  for (int i = 0; i < 5; ++i) {
    clients.push_back(std::make_unique<RawStreamClient>(channel, kPath));
    clients.back()->Start();
    ASSERT_TRUE(clients.back()->Send("x"));
    ASSERT_EQ(clients.back()->Receive(), "kept");
  }
  InferStub stub(channel);
  EXPECT_TRUE(Infer(stub, "x").status.ok());
  RawStreamClient& client = *clients.front();
  ASSERT_TRUE(client.Send(std::string(size_t{600} << 10, 'x')));
  ASSERT_EQ(client.Receive(), "kept");
  EXPECT_GE(admission.bytes(), 600 << 10);
  ASSERT_TRUE(client.Send(std::string(size_t{600} << 10, 'x')));
  EXPECT_EQ(client.Receive(), std::nullopt);
  const grpc::Status status = client.Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_details(), HasSubstr("QUEUE_BYTES_FULL"));
  // It may outlive its call, and be dropped anywhere.
  {
    const MutexLock lock(&mu);
    EXPECT_EQ(TextOf(*kept.back()).size(), size_t{600} << 10);
    kept.clear();
  }
  clients.clear();
  EXPECT_TRUE(Settles(*transport));
  EXPECT_TRUE(Eventually([&] { return admission.bytes() == 0; }));
}

// More than a message may have of pieces, or a stream would if it were one.
TEST(ServerStreamTest, AStreamOfSmallMessagesGoesOn) {
  Echo::Counts counts;
  const auto transport = StartStreams(EchoHandler(&counts, /*window=*/1000));
  RawStreamClient client(ConnectTo(*transport), kPath);
  client.Start();
  constexpr int kMessages = 20'000;
  std::thread sender([&] {
    for (int i = 0; i < kMessages; ++i) client.Send(std::to_string(i) + "abc");
    client.EndSending();
  });
  int got = 0;
  while (const auto message = client.Receive()) {
    ASSERT_EQ(*message, std::to_string(got++) + "abc");
  }
  sender.join();
  EXPECT_EQ(got, kMessages);
  EXPECT_TRUE(client.Finish().ok());
  EXPECT_EQ(transport->cuts().streams.count, 0u);
}

TEST(ServerStreamTest, ManyStreamsAtOnce) {
  Echo::Counts counts;
  const auto transport = StartStreams(EchoHandler(&counts));
  std::atomic<int> wrong{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 8; ++caller) {
    callers.emplace_back([&, caller] {
      const auto channel = ConnectTo(*transport);
      for (int round = 0; round < 8; ++round) {
        std::vector<std::unique_ptr<RawStreamClient>> clients;
        for (int i = 0; i < 8; ++i) {
          clients.push_back(std::make_unique<RawStreamClient>(channel, kPath));
          clients.back()->Start();
        }
        for (int n = 0; n < 10; ++n) {
          const std::string text = std::to_string(caller * 100 + n);
          for (const auto& client : clients) wrong += !client->Send(text);
          for (const auto& client : clients) {
            wrong += client->Receive() != text;
          }
        }
        for (size_t i = 0; i < clients.size(); i += 2) {
          clients[i]->EndSending();
          wrong += clients[i]->Receive().has_value();
          wrong += !clients[i]->Finish().ok();
        }
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_TRUE(Settles(*transport));
  EXPECT_EQ(counts.gone, 8 * 8 * 4);
}

// What is deferred runs once what is at hand is done, and not for a call that
// was answered.
TEST(ServerStreamTest, WhatIsDeferredComesAfterwards) {
  struct State {
    int at = 0;
    int deferred_at = 0;
  } state;
  Event done;
  struct Both {
    State* state;
    Event* done;
  } both{&state, &done};
  const auto transport = StartStreams([&](ServerStream& call) {
    call.Defer(
        [](ServerCall& deferred, void* arg) {
          auto* const of = static_cast<Both*>(arg);
          of->state->deferred_at = ++of->state->at;
          static_cast<ServerStream&>(deferred).Defer(
              [](ServerCall&, void* never) {
                static_cast<Both*>(never)->state->at = 100;
              },
              arg);
          static_cast<ServerStream&>(deferred).Finish();
          of->done->Set();
        },
        &both);
    ++state.at;
  });
  RawStreamClient client(ConnectTo(*transport), kPath);
  client.Start();
  EXPECT_EQ(client.Receive(), std::nullopt);
  EXPECT_TRUE(client.Finish().ok());
  done.Wait();
  EXPECT_TRUE(Settles(*transport));
  EXPECT_TRUE(transport->Shutdown(absl::ZeroDuration()));
  EXPECT_EQ(state.deferred_at, 2);
  EXPECT_EQ(state.at, 2);
}

}  // namespace
}  // namespace weir
