#include "server/rpc/transport.h"

#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <deque>
#include <filesystem>
#include <future>
#include <latch>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "kernels/base/mutex.h"
#include "kernels/device/cpu/host_limits.h"
#include "server/rpc/default_io_threads.h"
#include "tests/base/event.h"
#include "tests/base/eventually.h"
#include "tests/rpc/raw_http2.h"
#include "tests/rpc/test_transport.h"

namespace weir {
namespace {

using testing::Eventually;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::RawHttp2;

constexpr auto kPatience = std::chrono::seconds(20);

// Calls that a handler has put aside for the test to answer.
class HeldCalls {
 public:
  void Hold(ServerCall& call, void* arg = nullptr) {
    const MutexLock lock(&mu_);
    calls_.emplace_back(&call, arg);
    changed_.NotifyAll();
  }

  std::pair<ServerCall*, void*> TakeBoth() {
    const MutexLock lock(&mu_);
    while (calls_.empty()) changed_.Wait(&mu_);
    const auto oldest = calls_.front();
    calls_.pop_front();
    return oldest;
  }

  ServerCall* Take() { return TakeBoth().first; }

 private:
  Mutex mu_;
  CondVar changed_;
  std::deque<std::pair<ServerCall*, void*>> calls_ WEIR_GUARDED_BY(mu_);
};

// Sends raw bytes to any unary method.
grpc::Status CallRaw(const std::shared_ptr<grpc::Channel>& channel,
                     const std::string& method, const std::string& request,
                     std::string* reply) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
  grpc::CompletionQueue queue;
  const grpc::Slice slice(request);
  auto call = stub.PrepareUnaryCall(&context, method,
                                    grpc::ByteBuffer(&slice, 1), &queue);
  call->StartCall();
  grpc::ByteBuffer buffer;
  grpc::Status status;
  call->Finish(&buffer, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  if (grpc::Slice whole; status.ok() && buffer.DumpToSingleSlice(&whole).ok()) {
    reply->assign(whole.begin(), whole.end());
  }
  return status;
}

TEST(TransportTest, Answers64CallersAtOnce) {
  const auto transport = StartTransport(EchoCall);
  Mutex mu;
  std::vector<std::string> wrong;
  std::vector<std::thread> callers;
  for (int i = 0; i < 64; ++i) {
    callers.emplace_back([&, i] {
      InferStub stub(Connect(transport->addresses()[0]));
      for (int n = 0; n < 20; ++n) {
        const std::string id =
            std::to_string(i) + "/" + std::string(static_cast<size_t>(n), 'x');
        grpc::ClientContext context;
        context.set_deadline(std::chrono::system_clock::now() + kPatience);
        // gRPC's client fails now and then to connect when many do at once.
        context.set_wait_for_ready(true);
        const Answer answer = Infer(stub, id, &context);
        if (answer.status.ok() && answer.response.id() == id) continue;
        MutexLock lock(&mu);
        wrong.push_back(id + ": " + answer.status.error_message());
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_THAT(wrong, IsEmpty());
  EXPECT_TRUE(
      Eventually([&] { return transport->open_calls() == 0; }, kPatience));
}

TEST(TransportTest, TakesMoreCallsThanItAskedFor) {
  HeldCalls held;
  const auto transport =
      StartTransport([&](ServerCall& call) { held.Hold(call); });
  constexpr int kCalls = 2000;
  InferStub stubs[] = {InferStub(Connect(transport->addresses()[0])),
                       InferStub(Connect(transport->addresses()[0]))};
  grpc::CompletionQueue queue;
  struct Pending {
    grpc::ClientContext context;
    inference::ModelInferResponse response;
    grpc::Status status;
  };
  std::vector<Pending> pending(kCalls);
  inference::ModelInferRequest request;
  std::vector<std::unique_ptr<
      grpc::ClientAsyncResponseReader<decltype(Pending::response)>>>
      readers;
  for (Pending& p : pending) {
    readers.push_back(
        stubs[readers.size() % 2].AsyncModelInfer(&p.context, request, &queue));
    readers.back()->Finish(&p.response, &p.status, &p);
  }
  EXPECT_TRUE(
      Eventually([&] { return transport->open_calls() == kCalls; }, kPatience));
  for (int i = 0; i < kCalls; ++i) {
    held.Take()->Resume([](ServerCall& call, void*) { EchoCall(call); },
                        nullptr);
  }
  for (int i = 0; i < kCalls; ++i) {
    void* tag = nullptr;
    bool ok = false;
    ASSERT_TRUE(queue.Next(&tag, &ok));
    EXPECT_TRUE(static_cast<Pending*>(tag)->status.ok());
  }
  EXPECT_EQ(transport->open_calls(), 0);
}

// Work that another thread completes never writes a reply on that thread.
TEST(TransportTest, ResumesOnTheCallsOwnThread) {
  struct Seen {
    std::thread::id arrived;
    std::atomic<int>* wrong;
  };
  HeldCalls held;
  std::atomic<int> wrong = 0;
  const auto transport = StartTransport([&](ServerCall& call) {
    const auto seen = call.arena().AllocateSpan<Seen>(1);
    seen[0] = {std::this_thread::get_id(), &wrong};
    held.Hold(call, seen.data());
  });
  std::thread completer([&] {
    for (int i = 0; i < 400; ++i) {
      const auto [call, arg] = held.TakeBoth();
      call->Resume(
          [](ServerCall& resumed, void* seen_arg) {
            const Seen* seen = static_cast<Seen*>(seen_arg);
            if (seen->arrived != std::this_thread::get_id()) ++*seen->wrong;
            EchoCall(resumed);
          },
          arg);
    }
  });
  std::vector<std::thread> callers;
  for (int i = 0; i < 8; ++i) {
    callers.emplace_back([&] {
      InferStub stub(Connect(transport->addresses()[0]));
      for (int n = 0; n < 50; ++n) {
        if (!Infer(stub, "x").status.ok()) ++wrong;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  completer.join();
  EXPECT_EQ(wrong, 0);
}

TEST(TransportTest, TellsAHandlerThatItsCallWasCancelled) {
  HeldCalls held;
  std::promise<bool> told;
  const auto transport = StartTransport([&](ServerCall& call) {
    EXPECT_FALSE(call.cancelled());
    call.OnCancel(
        [](ServerCall& cancelled, void* promise) {
          static_cast<std::promise<bool>*>(promise)->set_value(
              cancelled.cancelled());
          cancelled.Fail(absl::CancelledError("the caller has gone"));
        },
        &told);
    held.Hold(call);
  });
  InferStub stub(Connect(transport->addresses()[0]));
  grpc::ClientContext context;
  std::thread caller([&] {
    EXPECT_EQ(Infer(stub, "x", &context).status.error_code(),
              grpc::StatusCode::CANCELLED);
  });
  held.Take();
  context.TryCancel();
  EXPECT_TRUE(told.get_future().get());
  caller.join();
  EXPECT_TRUE(
      Eventually([&] { return transport->open_calls() == 0; }, kPatience));
}

TEST(TransportTest, AnswersACancelledCallLater) {
  HeldCalls held;
  const auto transport =
      StartTransport([&](ServerCall& call) { held.Hold(call); });
  InferStub stub(Connect(transport->addresses()[0]));
  grpc::ClientContext context;
  std::thread caller([&] { Infer(stub, "x", &context); });
  ServerCall* call = held.Take();
  context.TryCancel();
  caller.join();
  EXPECT_TRUE(Eventually([&] { return call->cancelled(); }, kPatience));
  EXPECT_EQ(transport->open_calls(), 1);
  // The callback runs at once, for the call is cancelled already.
  call->Resume(
      [](ServerCall& resumed, void*) {
        resumed.OnCancel(
            [](ServerCall& cancelled, void*) {
              cancelled.Fail(absl::CancelledError("late"));
            },
            nullptr);
      },
      nullptr);
  EXPECT_TRUE(
      Eventually([&] { return transport->open_calls() == 0; }, kPatience));
}

// The objects of calls are used again: none knows what became of the caller
// before.
TEST(TransportTest, ACallKnowsNothingOfTheOneBefore) {
  HeldCalls held;
  std::atomic<bool> hold{true};
  std::atomic<int> wrong{0};
  const auto transport = StartTransport(
      [&](ServerCall& call) {
        if (call.cancelled()) ++wrong;
        if (hold) {
          held.Hold(call);
        } else {
          EchoCall(call);
        }
      },
      {.addresses = {"127.0.0.1:0"}, .io_threads = 1});
  InferStub stub(Connect(transport->addresses()[0]));
  for (int i = 0; i < 3; ++i) {
    grpc::ClientContext context;
    std::thread caller([&] { Infer(stub, "x", &context); });
    ServerCall* const call = held.Take();
    context.TryCancel();
    caller.join();
    EXPECT_TRUE(Eventually([&] { return call->cancelled(); }, kPatience));
    call->Resume(
        [](ServerCall& late, void*) { late.Fail(absl::CancelledError("")); },
        nullptr);
    EXPECT_TRUE(
        Eventually([&] { return transport->open_calls() == 0; }, kPatience));
  }
  hold = false;
  // More than the transport keeps ready.
  for (int i = 0; i < 300; ++i) EXPECT_TRUE(Infer(stub, "x").status.ok());
  EXPECT_EQ(wrong, 0);
}

TEST(TransportTest, KnowsTheDeadlineAndEndsWithIt) {
  // One that passes before the call has come says nothing.
  bool came = false;
  for (int64_t patience_ms = 300; !came; patience_ms *= 2) {
    std::promise<Nanos> left;
    std::promise<bool> told;
    const auto transport = StartTransport([&](ServerCall& call) {
      left.set_value(call.deadline() - call.received());
      call.OnCancel(
          [](ServerCall& late, void* arg) {
            static_cast<std::promise<bool>*>(arg)->set_value(late.cancelled());
            late.Fail(absl::DeadlineExceededError("too late"));
          },
          &told);
    });
    InferStub stub(Connect(transport->addresses()[0]));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() +
                         std::chrono::milliseconds(patience_ms));
    EXPECT_EQ(Infer(stub, "x", &context).status.error_code(),
              grpc::StatusCode::DEADLINE_EXCEEDED);
    std::future<Nanos> of_call = left.get_future();
    if (of_call.wait_for(std::chrono::seconds(0)) !=
        std::future_status::ready) {
      continue;
    }
    const Nanos seen = of_call.get();
    came = seen > 0;
    // gRPC rounds up to a millisecond, at either side.
    EXPECT_LE(seen, (patience_ms + 2) * 1'000'000);
    EXPECT_TRUE(told.get_future().get());
  }
}

TEST(TransportTest, NoDeadlineIsNone) {
  std::promise<Nanos> deadline;
  const auto transport = StartTransport([&](ServerCall& call) {
    deadline.set_value(call.deadline());
    EchoCall(call);
  });
  InferStub stub(Connect(transport->addresses()[0]));
  grpc::ClientContext context;
  EXPECT_TRUE(Infer(stub, "x", &context).status.ok());
  EXPECT_EQ(deadline.get_future().get(), kNoDeadline);
}

TEST(TransportTest, GivesHeadersAndPeer) {
  std::promise<std::string> seen;
  const auto transport = StartTransport([&](ServerCall& call) {
    seen.set_value(std::string(call.Header("x-test").value_or("none")) + " " +
                   std::string(call.Header("x-absent").value_or("none")) + " " +
                   call.Connection());
    EchoCall(call);
  });
  InferStub stub(Connect(transport->addresses()[0]));
  grpc::ClientContext context;
  context.AddMetadata("x-test", "value");
  EXPECT_TRUE(Infer(stub, "x", &context).status.ok());
  EXPECT_THAT(seen.get_future().get(),
              ::testing::StartsWith("value none ipv4:127.0.0.1:"));
}

// They share what peers share, and pass by nothing of it.
TEST(TransportTest, CallersOfUnixSocketsAreOnePeer) {
  const std::string path =
      "/tmp/weir-transport-test-" + std::to_string(getpid()) + ".sock";
  std::string seen;
  const auto transport = StartTransport(
      [&](ServerCall& call) {
        seen = call.peer();
        EchoCall(call);
      },
      {.addresses = {"unix:" + path, "127.0.0.1:0"}, .io_threads = 1});
  std::set<std::string> peers;
  for (const std::string& address :
       {"unix:" + path, "unix:" + path, transport->addresses()[1]}) {
    InferStub stub(Connect(address));
    EXPECT_TRUE(Infer(stub, "x").status.ok());
    EXPECT_FALSE(seen.empty());
    peers.insert(seen);
  }
  EXPECT_EQ(peers.size(), 2u);
}

TEST(TransportTest, RefusesMessagesOverTheLimit) {
  const auto transport = StartTransport(
      EchoCall, {.addresses = {"127.0.0.1:0"}, .max_message_bytes = 10000});
  InferStub stub(Connect(transport->addresses()[0]));
  EXPECT_EQ(Infer(stub, std::string(20000, 'x')).status.error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(Infer(stub, std::string(9000, 'x')).status.ok());
}

TEST(TransportTest, CarriesLargeMessagesInSlices) {
  const auto transport = StartTransport(EchoCall);
  InferStub stub(Connect(transport->addresses()[0]));
  const std::string id(3 << 20, 'x');
  const Answer answer = Infer(stub, id);
  EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.response.id(), id);
}

TEST(TransportTest, HasAQuarterMoreThreadsThanCpusButNoMoreThan16ForThat) {
  const std::pair<int, int> counts[] = {{1, 1},   {2, 2},   {3, 3},
                                        {4, 5},   {8, 10},  {12, 15},
                                        {14, 16}, {16, 16}, {64, 64}};
  for (const auto& [cpus, threads] : counts) {
    EXPECT_EQ(DefaultIoThreads(cpus), threads) << cpus;
  }
  const auto transport = Transport::Start({.addresses = {"127.0.0.1:0"}}, {});
  ASSERT_TRUE(transport.ok()) << transport.status();
  EXPECT_EQ((*transport)->io_threads(), DefaultIoThreads(CpuQuota()));
}

TEST(TransportTest, APortInUseIsAnErrorThatNamesTheAddress) {
  const auto transport = StartTransport(EchoCall);
  const std::string address = transport->addresses()[0];
  const auto second =
      Transport::Start({.addresses = {address}, .io_threads = 1}, {});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(address));
}

TEST(TransportTest, ServesUnixSocketsAndRemovesThem) {
  const std::string path =
      "/tmp/weir-transport-test-" + std::to_string(getpid()) + ".sock";
  const std::string address = "unix:" + path;
  {
    const auto transport = StartTransport(EchoCall, {.addresses = {address}});
    InferStub stub(Connect(address));
    EXPECT_EQ(Infer(stub, "over a file").response.id(), "over a file");
    EXPECT_EQ(Transport::Start({.addresses = {address}, .io_threads = 1}, {})
                  .status()
                  .code(),
              absl::StatusCode::kAlreadyExists);
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(TransportTest, UnknownMethodsAreUnimplemented) {
  for (const bool reflection : {false, true}) {
    TransportOptions options = {.addresses = {"127.0.0.1:0"}};
    options.reflection = reflection;
    const auto transport = StartTransport(EchoCall, options);
    const auto channel = Connect(transport->addresses()[0]);
    for (const std::string method :
         {"/inference.GRPCInferenceService/Method", "/no.Service/Method"}) {
      std::string reply;
      const grpc::Status unary =
          CallRaw(channel, method, std::string(100'000, 'x'), &reply);
      EXPECT_EQ(unary.error_code(), grpc::StatusCode::UNIMPLEMENTED);
      EXPECT_THAT(unary.error_message(), HasSubstr(method));

      grpc::GenericStub stub(channel);
      grpc::ClientContext context;
      context.set_deadline(std::chrono::system_clock::now() + kPatience);
      grpc::CompletionQueue queue;
      const auto stream = stub.PrepareCall(&context, method, &queue);
      void* tag = nullptr;
      bool ok = false;
      stream->StartCall(nullptr);
      queue.Next(&tag, &ok);
      grpc::ByteBuffer buffer;
      stream->Read(&buffer, nullptr);
      queue.Next(&tag, &ok);
      EXPECT_FALSE(ok);
      grpc::Status streamed;
      stream->Finish(&streamed, nullptr);
      queue.Next(&tag, &ok);
      EXPECT_EQ(streamed.error_code(), grpc::StatusCode::UNIMPLEMENTED);
      EXPECT_THAT(streamed.error_message(), HasSubstr(method));
    }
    // However long it is, the error is short.
    std::string reply;
    const std::string error =
        CallRaw(channel, "/" + std::string(1000, 'm') + "/\n", "", &reply)
            .error_message();
    EXPECT_THAT(error, HasSubstr("1003 bytes"));
    EXPECT_LT(error.size(), 300u);
  }
}

TEST(TransportTest, HealthSaysWhatItWasTold) {
  const auto transport = StartTransport(EchoCall);
  const auto channel = Connect(transport->addresses()[0]);
  // HealthCheckRequest{service = 1}, HealthCheckResponse{status = 1}.
  const auto check = [&](const std::string& service) -> std::string {
    std::string reply;
    const grpc::Status status = CallRaw(
        channel, "/grpc.health.v1.Health/Check",
        "\x0a" + std::string(1, static_cast<char>(service.size())) + service,
        &reply);
    if (!status.ok()) return "code " + std::to_string(status.error_code());
    return reply == "\x08\x01" ? "SERVING" : "NOT_SERVING";
  };
  EXPECT_EQ(check(""), "NOT_SERVING");
  EXPECT_EQ(check("live"), "NOT_SERVING");
  EXPECT_EQ(check("model/x"), "code 5");
  transport->SetServing("", true);
  transport->SetServing("live", true);
  transport->SetServing("model/x", true);
  EXPECT_EQ(check(""), "SERVING");
  EXPECT_EQ(check("live"), "SERVING");
  EXPECT_EQ(check("model/x"), "SERVING");
  transport->SetServing("", false);
  EXPECT_EQ(check(""), "NOT_SERVING");
  EXPECT_EQ(check("live"), "SERVING");
}

TEST(TransportTest, ReflectionListsTheServices) {
  const auto transport = StartTransport(
      EchoCall, {.addresses = {"127.0.0.1:0"}, .reflection = true});
  grpc::GenericStub stub(Connect(transport->addresses()[0]));
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  const auto next = [&] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  auto stream = stub.PrepareCall(
      &context,
      "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", &queue);
  stream->StartCall(nullptr);
  ASSERT_TRUE(next());
  const grpc::Slice list_services("\x3a\x01*", 3);  // field 7
  stream->Write(grpc::ByteBuffer(&list_services, 1), nullptr);
  ASSERT_TRUE(next());
  grpc::ByteBuffer reply;
  stream->Read(&reply, nullptr);
  ASSERT_TRUE(next());
  grpc::Slice whole;
  ASSERT_TRUE(reply.DumpToSingleSlice(&whole).ok());
  const std::string text(whole.begin(), whole.end());
  EXPECT_THAT(text, HasSubstr("inference.GRPCInferenceService"));
  EXPECT_THAT(text, HasSubstr("grpc.health.v1.Health"));
  stream->WritesDone(nullptr);
  ASSERT_TRUE(next());
  grpc::Status status;
  stream->Finish(&status, nullptr);
  ASSERT_TRUE(next());
  EXPECT_TRUE(status.ok());
}

TEST(TransportTest, ClosingListenersKeepsConnections) {
  const auto transport = StartTransport(EchoCall);
  const std::string address = transport->addresses()[0];
  auto channel = Connect(address);
  auto stub = std::make_unique<InferStub>(channel);
  ASSERT_TRUE(Infer(*stub, "before").status.ok());
  EXPECT_EQ(transport->open_connections(), 1u);
  transport->CloseListeners();
  EXPECT_TRUE(Infer(*stub, "after").status.ok());
  InferStub late(Connect(address));
  EXPECT_EQ(Infer(late, "x").status.error_code(),
            grpc::StatusCode::UNAVAILABLE);
  stub.reset();
  channel.reset();
  EXPECT_TRUE(Eventually([&] { return transport->open_connections() == 0; },
                         kPatience));
}

// Clients in a closed loop while connections age out and the server drains: no
// call may be lost once the server has accepted its connection.
TEST(TransportTest, DrainingLosesNoCall) {
  auto transport =
      StartTransport(EchoCall, {.addresses = {"127.0.0.1:0"},
                                .max_connection_age = absl::Milliseconds(300)});
  const std::string address = transport->addresses()[0];
  std::atomic<int> answered = 0;
  std::atomic<int> lost = 0;
  std::latch warm(8);
  std::vector<std::thread> callers;
  for (int i = 0; i < 8; ++i) {
    callers.emplace_back([&] {
      InferStub stub(Connect(address));
      for (int n = 0;; ++n) {
        const Answer answer = Infer(stub, "x");
        if (n == 20) warm.count_down();
        if (answer.status.ok()) {
          ++answered;
          continue;
        }
        // Nobody listens any more: the only way to be refused.
        if (answer.status.error_code() != grpc::StatusCode::UNAVAILABLE ||
            answer.status.error_message().find("connect") ==
                std::string::npos) {
          ADD_FAILURE() << answer.status.error_code() << ": "
                        << answer.status.error_message();
          ++lost;
        }
        if (n <= 20) warm.count_down();
        return;
      }
    });
  }
  warm.wait();
  transport->CloseListeners();
  EXPECT_TRUE(Eventually([&] { return transport->open_connections() == 0; },
                         kPatience));
  transport->Shutdown(absl::Seconds(5));
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(lost, 0);
  EXPECT_GE(answered, 160);
}

TEST(TransportTest, ShutdownCancelsWhatIsLeft) {
  std::promise<void> held;
  const auto transport = StartTransport([&](ServerCall& call) {
    call.OnCancel(
        [](ServerCall& cancelled, void*) {
          cancelled.Fail(absl::UnavailableError("shutting down"));
        },
        nullptr);
    held.set_value();
  });
  InferStub stub(Connect(transport->addresses()[0]));
  std::thread caller([&] { EXPECT_FALSE(Infer(stub, "x").status.ok()); });
  held.get_future().wait();
  transport->Shutdown(absl::ZeroDuration());
  caller.join();
  EXPECT_EQ(transport->open_calls(), 0);
}

// Calls come, and are asked for, until gRPC takes none any more.
TEST(TransportTest, ShutdownEndsAmidCalls) {
  constexpr int kRounds = 20;
  constexpr size_t kCallers = 8;
  for (int round = 0; round < kRounds; ++round) {
    Event answered;
    const auto transport = StartTransport(EchoCall);
    std::vector<std::thread> callers;
    for (size_t i = 0; i < kCallers; ++i) {
      callers.emplace_back(
          [&answered, channel = Connect(transport->addresses()[0])] {
            InferStub stub(channel);
            while (Infer(stub, "x").status.ok()) answered.Set();
          });
    }
    answered.Wait(kCallers);
    EXPECT_TRUE(transport->Shutdown(absl::ZeroDuration()));
    for (std::thread& caller : callers) caller.join();
    EXPECT_EQ(transport->open_calls(), 0);
  }
}

// What a handler has launched may outlast its call.
TEST(TransportTest, ShutdownWaitsForHandlersOfCancelledCalls) {
  HeldCalls held;
  const auto transport =
      StartTransport([&](ServerCall& call) { held.Hold(call); });
  InferStub stub(Connect(transport->addresses()[0]));
  std::thread caller([&] { EXPECT_FALSE(Infer(stub, "x").status.ok()); });
  ServerCall* call = held.Take();
  std::thread stopper([&] { transport->Shutdown(absl::ZeroDuration()); });
  caller.join();
  EXPECT_EQ(transport->open_calls(), 1);
  call->Resume([](ServerCall& resumed, void*) { EchoCall(resumed); }, nullptr);
  stopper.join();
  EXPECT_EQ(transport->open_calls(), 0);
}

TEST(TransportTest, AHandshakeHasItsTime) {
  const auto transport =
      StartTransport(EchoCall, {.addresses = {"127.0.0.1:0"},
                                .handshake_timeout = absl::Milliseconds(100)});
  const std::string& address = transport->addresses()[0];
  sockaddr_in where = {};
  where.sin_family = AF_INET;
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  where.sin_port = htons(
      static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  const int silent = socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_EQ(connect(silent, reinterpret_cast<sockaddr*>(&where), sizeof(where)),
            0);
  timeval patience = {.tv_sec = 20, .tv_usec = 0};
  setsockopt(silent, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  // gRPC says its settings, and then nothing more.
  char bytes[4096];
  ssize_t got = 0;
  do got = read(silent, bytes, sizeof(bytes));
  while (got > 0);
  EXPECT_TRUE(got == 0 || errno == ECONNRESET) << errno;
  close(silent);
  InferStub stub(Connect(address));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
  // On a busy machine a handshake may take longer: then there is another one.
  context.set_wait_for_ready(true);
  EXPECT_TRUE(Infer(stub, "x", &context).status.ok());
}

constexpr char kInfer[] = "/inference.GRPCInferenceService/ModelInfer";

// Stock clients ask so, while a call takes long, whether the server is there.
TEST(TransportTest, ALongCallOutlastsPings) {
  HeldCalls held;
  const auto transport =
      StartTransport([&](ServerCall& call) { held.Hold(call); },
                     {.addresses = {"127.0.0.1:0"},
                      .min_ping_interval = absl::Milliseconds(1)});
  RawHttp2 client(transport->addresses()[0], 1 << 16);
  client.Begin(1, kInfer);
  client.Send(1, RawHttp2::Prefix(0), /*last=*/true);
  ServerCall* const call = held.Take();
  int pings = 0;
  for (; pings < 10 && client.Ping(); ++pings) {
    const auto answered = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - answered <
           std::chrono::milliseconds(2)) {
      std::this_thread::yield();
    }
  }
  EXPECT_EQ(pings, 10);
  call->Resume([](ServerCall& there, void*) { EchoCall(there); }, nullptr);
  for (uint8_t flags = 0; (flags & 1) == 0;) {  // END_STREAM
    const RawHttp2::Frame frame = client.Next();
    ASSERT_TRUE(frame.ok);
    ASSERT_NE(frame.type, RawHttp2::kGoAway) << frame.payload;
    if (frame.stream == 1) flags = frame.flags;
  }
}

TEST(TransportTest, PingsAreBounded) {
  EXPECT_LE(TransportOptions().min_ping_interval, absl::Seconds(10));
  const auto transport = StartTransport(
      EchoCall,
      {.addresses = {"127.0.0.1:0"}, .min_ping_interval = absl::Hours(1)});
  RawHttp2 client(transport->addresses()[0], 1 << 16);
  int answered = 0;
  while (answered < 100 && client.Ping()) ++answered;
  // The first may come at any time, and two more too early.
  EXPECT_GE(answered, 3);
  EXPECT_LT(answered, 100);
  const RawHttp2::Frame last = client.Next();
  ASSERT_TRUE(last.ok);
  EXPECT_EQ(last.type, RawHttp2::kGoAway);
  EXPECT_THAT(last.payload, HasSubstr("too_many_pings"));
}

TEST(TransportTest, HeadersAreBounded) {
  const auto transport = StartTransport(EchoCall);
  InferStub stub(Connect(transport->addresses()[0]));
  for (const size_t size : {size_t{6} << 10, size_t{10} << 10}) {
    grpc::ClientContext context;
    context.AddMetadata("x-long", std::string(size, 'x'));
    const Answer answer = Infer(stub, "x", &context);
    EXPECT_EQ(answer.status.error_code(),
              size < size_t{8} << 10 ? grpc::StatusCode::OK
                                     : grpc::StatusCode::RESOURCE_EXHAUSTED);
  }
}

TEST(TransportTest, ShutdownLetsCallsEnd) {
  HeldCalls held;
  const auto transport =
      StartTransport([&](ServerCall& call) { held.Hold(call); });
  InferStub stub(Connect(transport->addresses()[0]));
  std::thread caller([&] { EXPECT_TRUE(Infer(stub, "x").status.ok()); });
  ServerCall* call = held.Take();
  auto told = std::make_unique<RawHttp2>(transport->addresses()[0], 1 << 16);
  ASSERT_TRUE(told->Ping());
  std::atomic<int> looks = 0;
  std::thread stopper([&] {
    transport->Shutdown(absl::Hours(1), absl::InfiniteDuration(), [&] {
      ++looks;
      std::this_thread::yield();
      return false;
    });
  });
  // What would cut the call comes next, and it has looked a while longer.
  EXPECT_TRUE(told->AwaitGoAway());
  EXPECT_TRUE(
      Eventually([&looks, seen = looks + 100] { return looks > seen; }));
  told = nullptr;
  call->Resume([](ServerCall& resumed, void*) { EchoCall(resumed); }, nullptr);
  stopper.join();
  caller.join();
}

// Answers a call that asks which thread it has come to.
bool ToldItsThread(ServerCall& call) {
  std::string bytes(call.request().size(), '\0');
  call.request().CopyTo(reinterpret_cast<std::byte*>(bytes.data()));
  inference::ModelInferRequest request;
  EXPECT_TRUE(request.ParseFromString(bytes));
  if (request.id() != "who") return false;
  inference::ModelInferResponse response;
  response.set_id(std::to_string(gettid()));
  bytes = response.SerializeAsString();
  ReplyBuffer reply;
  bytes.copy(reply.AppendUninitialized(bytes.size()), bytes.size());
  call.Reply(std::move(reply));
  return true;
}

// A connection to each I/O thread: all calls of one come to one thread.
std::map<int, std::unique_ptr<InferStub>> ConnectToEach(
    const Transport& transport) {
  std::map<int, std::unique_ptr<InferStub>> stubs;
  while (stubs.size() < static_cast<size_t>(transport.io_threads())) {
    auto stub = std::make_unique<InferStub>(Connect(transport.addresses()[0]));
    const Answer answer = Infer(*stub, "who");
    EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
    if (!answer.status.ok()) break;
    stubs.emplace(std::stoi(answer.response.id()), std::move(stub));
  }
  return stubs;
}

bool Runs(int thread) {
  return std::filesystem::exists("/proc/self/task/" + std::to_string(thread));
}

// The patience with handlers is that of all threads together: each ends when
// its own calls are answered, whatever becomes of another's.
TEST(TransportTest, AThreadThatIsCutWaitsForNoOther) {
  for (const bool older : {true, false}) {
    Mutex mu;
    std::map<int, ServerCall*> held;  // by thread
    const auto transport = StartTransport([&](ServerCall& call) {
      if (ToldItsThread(call)) return;
      const MutexLock lock(&mu);
      held[gettid()] = &call;
    });
    const auto stubs = ConnectToEach(*transport);
    ASSERT_EQ(stubs.size(), 2u);
    std::vector<std::thread> callers;
    for (const auto& stub : stubs) {
      callers.emplace_back([&stub = *stub.second] { Infer(stub, "hold"); });
    }
    EXPECT_TRUE(Eventually([&] {
      const MutexLock lock(&mu);
      return held.size() == 2;
    }));
    std::thread stopper([&] {
      EXPECT_TRUE(transport->Shutdown(absl::ZeroDuration(), absl::Hours(1)));
    });
    // Threads are made in the order of their numbers.
    const auto& [ends, its_call] = older ? *held.begin() : *held.rbegin();
    const auto& [stays, other_call] = older ? *held.rbegin() : *held.begin();
    const auto answer = [](ServerCall& call, void*) { EchoCall(call); };
    its_call->Resume(answer, nullptr);
    EXPECT_TRUE(Eventually([thread = ends] { return !Runs(thread); }));
    EXPECT_TRUE(Runs(stays));
    other_call->Resume(answer, nullptr);
    stopper.join();
    for (std::thread& caller : callers) caller.join();
  }
}

// Nor are threads that hang given up one after another.
TEST(TransportTest, ThreadsThatHangAreGivenUpTogether) {
  constexpr int kThreads = 16;
  Event held, go_on;
  const auto transport = StartTransport(
      [&](ServerCall& call) {
        if (ToldItsThread(call)) return;
        held.Set();
        go_on.Wait();
        EchoCall(call);
      },
      {.addresses = {"127.0.0.1:0"}, .io_threads = kThreads});
  const auto stubs = ConnectToEach(*transport);
  ASSERT_EQ(stubs.size(), size_t{kThreads});
  std::vector<std::thread> callers;
  for (const auto& stub : stubs) {
    callers.emplace_back([&stub = *stub.second] { Infer(stub, "hold"); });
  }
  held.Wait(kThreads);
  const absl::Time begun = absl::Now();
  EXPECT_FALSE(transport->Shutdown(absl::ZeroDuration(), absl::ZeroDuration()));
  EXPECT_LT(absl::Now() - begun, kThreads * Transport::kHangPatience / 2);
  go_on.Set();
  for (std::thread& caller : callers) caller.join();
}

}  // namespace
}  // namespace weir
