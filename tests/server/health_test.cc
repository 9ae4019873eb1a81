// grpc.health.v1.Health and server reflection over the wire: what probes, load
// balancers and tools such as grpcurl ask first.
#include "server/health.h"

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.pb.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/cpp/client.h"
#include "kernels/backend/devices.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "kernels/ops/registry.h"
#include "tests/device/fault_injecting_device.h"
#include "tests/observe/holding_log.h"
#include "tests/observe/log_capture.h"
#include "tests/server/raw_stream.h"

namespace weir::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// HealthCheckResponse.ServingStatus.
constexpr uint64_t kServing = 1;
constexpr uint64_t kNotServing = 2;
constexpr uint64_t kServiceUnknown = 3;

std::string HealthRequest(const std::string& service) {
  return WithField(1, service);
}

// Check is unary; as a stream it is a message each way.
grpc::Status Check(TestServer& server, const std::string& service,
                   uint64_t* state) {
  RawStream call(server, "/grpc.health.v1.Health/Check");
  call.Write(HealthRequest(service));
  call.WritesDone();
  if (const auto reply = call.Read()) *state = NumberOf(*reply, 1);
  return call.Finish();
}

class Watch {
 public:
  Watch(TestServer& server, const std::string& service)
      : stream_(server, "/grpc.health.v1.Health/Watch") {
    stream_.Write(HealthRequest(service));
    stream_.WritesDone();
  }
  // The next state; 0 if the stream has ended.
  uint64_t Next() {
    const auto reply = stream_.Read();
    return reply.has_value() ? NumberOf(*reply, 1) : 0;
  }

 private:
  RawStream stream_;
};

void ServeDigits(ServerOptions& options) {
  options.model_repository = TestData("data");
}

TEST(HealthTest, ChecksServerAndModels) {
  TestServer server(ServeDigits);
  for (const char* service : {"", "live", "model/digits"}) {
    uint64_t state = 0;
    const grpc::Status status = Check(server, service, &state);
    EXPECT_TRUE(status.ok()) << service << ": " << status.error_message();
    EXPECT_EQ(state, kServing) << service;
  }
  for (const char* service : {"model/letters", "digits", "model/", "Live"}) {
    uint64_t state = 0;
    EXPECT_TRUE(Refused(Check(server, service, &state),
                        grpc::StatusCode::NOT_FOUND, ""))
        << service;
  }
}

TEST(HealthTest, WatchesAnUnknownServiceToo) {
  TestServer server;
  Watch watch(server, "model/letters");
  EXPECT_EQ(watch.Next(), kServiceUnknown);
}

TEST(HealthTest, WatchSeesDraining) {
  TestServer server([](ServerOptions& o) {
    ServeDigits(o);
    // Until it is interrupted, so that the answers below are not hurried.
    o.drain_delay = absl::Hours(1);
  });
  std::promise<void> hurry;
  std::thread drain;
  {
    Watch ready(server, "");
    Watch live(server, "live");
    Watch model(server, "model/digits");
    EXPECT_EQ(ready.Next(), kServing);
    EXPECT_EQ(live.Next(), kServing);
    EXPECT_EQ(model.Next(), kServing);
    drain = std::thread([&, hurried = hurry.get_future()] {
      server.server().Drain([&](absl::Duration time) {
        return hurried.wait_for(absl::ToChronoNanoseconds(time)) ==
               std::future_status::ready;
      });
    });
    EXPECT_EQ(ready.Next(), kNotServing);
    EXPECT_EQ(model.Next(), kNotServing);
  }
  uint64_t state = 0;
  EXPECT_TRUE(Check(server, "", &state).ok());
  EXPECT_EQ(state, kNotServing);
  // Not ready is not dead: nobody should restart a server that drains.
  EXPECT_TRUE(Check(server, "live", &state).ok());
  EXPECT_EQ(state, kServing);
  EXPECT_TRUE(ServesOn(server));
  hurry.set_value();
  drain.join();
}

// Probes over HTTP are answered by no I/O thread. One over gRPC that meets the
// thread that hangs has no answer, which is one too.
TEST(HealthTest, AnIoThreadThatHangsIsNeitherReadyNorLive) {
  HoldingLog log;
  TestServer server(
      [](ServerOptions& o) {
        o.io_threads = 2;
        o.log_level = LogLevel::kInfo;
        o.pulse_interval = absl::Milliseconds(20);
      },
      log.stream());
  // A machine that is slow may look like one that hangs, for a while.
  const auto http_says = [&](const std::string& body) {
    return server.HttpGet("/healthz") == body &&
           server.HttpGet("/readyz") == body;
  };
  EXPECT_TRUE(Eventually([&] { return http_says("ok\n"); }));
  log.holds = true;
  v1::EvaluateRequest bad = IdentityRequest();
  bad.clear_inputs();
  PendingEvaluate call(server, bad);
  log.held.Wait();
  EXPECT_TRUE(
      Eventually([&] { return http_says("an I/O thread does not answer\n"); }));
  log.go_on.Set();
  EXPECT_TRUE(Eventually([&] { return http_says("ok\n"); }));
  for (const char* service : {"", "live"}) {
    EXPECT_TRUE(Eventually([&] {
      uint64_t state = 0;
      return Check(server, service, &state).ok() && state == kServing;
    })) << service;
  }
  EXPECT_EQ(call.Wait().status.error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_TRUE(ServesOn(server));
}

v1::EvaluateRequest DeviceFaultRequest() {
  v1::EvaluateRequest request = Program(R"(
      inputs { name: "x" }
      nodes { domain: "weir" op: "Fault" inputs: "x" outputs: "y"
              attributes { name: "mode" s: "trap" } }
      outputs: "y")");
  AddInput(&request, "x", v1::DATA_TYPE_FLOAT, {1}, Bytes<float>({1}));
  request.set_mode(v1::EVAL_MODE_SYNC_FULL);
  return request;
}

TEST(HealthTest, ALostDeviceIsNeitherReadyNorLive) {
  TestServer server(ServeDigits);
  {
    Watch ready(server, "");
    Watch live(server, "live");
    EXPECT_EQ(ready.Next(), kServing);
    EXPECT_EQ(live.Next(), kServing);
    EXPECT_TRUE(Refused(Evaluate(server, DeviceFaultRequest()).status,
                        grpc::StatusCode::UNAVAILABLE, "the device is lost"));
    EXPECT_EQ(ready.Next(), kNotServing);
    EXPECT_EQ(live.Next(), kNotServing);
  }
  // Who finds the device lost tells one after the other.
  EXPECT_TRUE(Eventually([&] {
    uint64_t state = 0;
    return Check(server, "model/digits", &state).ok() && state == kNotServing;
  }));
  for (const char* path : {"/healthz", "/readyz"}) {
    int code = 0;
    EXPECT_NE(server.HttpGet(path, &code).find("weir.Fault"),
              std::string::npos);
    EXPECT_EQ(code, 503) << path;
  }
  pollfd lost{server.server().device_lost_fd(), POLLIN, 0};
  EXPECT_EQ(poll(&lost, 1, /*timeout=*/10'000), 1);
}

// What a device says while the server goes reaches nobody, though a call on it
// holds the server up.
TEST(HealthTest, ADeviceFaultDuringTheTeardownReachesNobody) {
  LogCapture log;
  FaultInjectingDevice* device = nullptr;
  auto server = std::make_unique<TestServer>(
      [&](ServerOptions& o) {
        o.devices = {"cpu"};
        o.make_device = [&](std::string_view name, const DeviceOptions& options,
                            OpRegistry& registry)
            -> absl::StatusOr<std::unique_ptr<Device>> {
          WEIR_ASSIGN_OR_RETURN(auto cpu, MakeDevice(name, options, registry));
          auto made = std::make_unique<FaultInjectingDevice>(std::move(cpu));
          device = made.get();
          return made;
        };
      },
      log.stream());
  const std::string address = server->address();
  const int lost = dup(server->server().device_lost_fd());
  auto& launch = device->HoldCall(DeviceCall::kLaunch);
  const auto stub = v1::Evaluator::NewStub(server->Connect());
  std::thread caller([&] {
    grpc::ClientContext context;
    SetPatience(&context);
    v1::EvaluateResponse response;
    stub->Evaluate(&context, IdentityRequest(), &response);
  });
  launch.WaitUntilHeld();
  std::thread teardown([&] { server.reset(); });
  EXPECT_TRUE(Eventually([&] {  // it has closed its sockets
    return !client::Client({.address = address}).IsServing().ok();
  }));
  device->health().SetStalled(absl::UnavailableError("it stands still"));
  device->health().Poison(absl::UnavailableError("it is lost"));
  launch.Release();
  teardown.join();
  caller.join();
  EXPECT_THAT(log.Lines(), IsEmpty());
  pollfd told{lost, POLLIN, 0};
  EXPECT_EQ(poll(&told, 1, 0), 0);
  close(lost);
}

// A health without a server around it.
class FollowingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    registry_ = MakeOpRegistry({});
    auto device = MakeDevice("cpu", {}, *registry_);
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
    auto models = ModelRepository::Open({}, device_.get(), registry_.get());
    ASSERT_TRUE(models.ok()) << models.status();
    models_ = *std::move(models);
    auto transport =
        Transport::Start({.addresses = {"127.0.0.1:0"}, .io_threads = 1}, {});
    ASSERT_TRUE(transport.ok()) << transport.status();
    transport_ = *std::move(transport);
    health_.Tell(transport_.get(), models_.get(), {"a.Service"});
    health_.Set(Unready::kLoading, "");
  }

  std::unique_ptr<OpRegistry> registry_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<ModelRepository> models_;
  std::unique_ptr<Transport> transport_;
  Health health_;
  const Readiness& readiness_ = health_.readiness();
};

// A device that stands still is not ready; it may move again, or be lost.
TEST_F(FollowingTest, FollowsTheDevice) {
  client::Client client({.address = transport_->addresses()[0]});
  const auto states = [&] {
    return std::vector<bool>{*client.IsServing(), *client.IsServing("live"),
                             *client.IsServing("a.Service")};
  };
  EXPECT_THAT(states(), ElementsAre(true, true, true));
  DeviceHealth watched;
  std::vector<std::string> told;
  Health& health = health_;
  const Readiness& readiness = readiness_;
  health.Follow(&watched, [&](const absl::Status& status) {
    told.push_back(Reason(status));
  });

  watched.SetStalled(absl::UnavailableError("it stands still"));
  EXPECT_THAT(states(), ElementsAre(false, true, false));
  EXPECT_EQ(readiness.why_not(), "it stands still");
  watched.SetStalled(absl::OkStatus());
  EXPECT_THAT(states(), ElementsAre(true, true, true));
  watched.SetStalled(absl::UnavailableError("it stands still"));
  watched.Poison(absl::UnavailableError("CUDA error 719"));
  EXPECT_THAT(states(), ElementsAre(false, false, false));
  EXPECT_EQ(readiness.why_not(), "CUDA error 719");
  EXPECT_THAT(told, ElementsAre("DEVICE_STALLED", "", "DEVICE_STALLED",
                                "DEVICE_POISONED"));
  health.Unfollow();
  watched.SetStalled(absl::OkStatus());
  EXPECT_THAT(told, SizeIs(4));
}

// One of them moves again: the other does not.
TEST_F(FollowingTest, FollowsEachOfTwoDevices) {
  DeviceHealth first;
  DeviceHealth second;
  for (DeviceHealth* const device : {&first, &second}) {
    health_.Follow(device, [](const absl::Status&) {});
  }
  first.SetStalled(absl::UnavailableError("the first stands still"));
  second.SetStalled(absl::UnavailableError("the second stands still"));
  EXPECT_EQ(readiness_.why_not(), "the first stands still");
  first.SetStalled(absl::OkStatus());
  EXPECT_EQ(readiness_.why_not(), "the second stands still");
  first.SetStalled(absl::UnavailableError("the first stands still"));
  second.SetStalled(absl::OkStatus());
  EXPECT_EQ(readiness_.why_not(), "the first stands still");
  first.SetStalled(absl::OkStatus());
  EXPECT_EQ(readiness_.why_not(), "");
  health_.Unfollow();
}

// Whoever is told of a change finds that probes are.
TEST_F(FollowingTest, TellsOfAChangeOnceItIsMade) {
  DeviceHealth device;
  std::vector<std::string> told;
  health_.Follow(&device, [&](const absl::Status&) {
    told.push_back(readiness_.why_not() + "/" + readiness_.fault());
  });
  device.SetStalled(absl::UnavailableError("it stands still"));
  device.SetStalled(absl::OkStatus());
  device.SetStalled(absl::UnavailableError("it stands still"));
  device.Poison(absl::UnavailableError("it is lost"));
  EXPECT_THAT(told, ElementsAre("it stands still/", "/", "it stands still/",
                                "it is lost/it is lost"));
  // What is lost does not move again.
  device.SetStalled(absl::OkStatus());
  EXPECT_EQ(readiness_.why_not(), "it is lost");
  EXPECT_EQ(readiness_.fault(), "it is lost");
  health_.Unfollow();
}

// Whoever sets a cause learns whether that is news.
TEST_F(FollowingTest, SaysWhetherACauseCameOrWent) {
  EXPECT_TRUE(health_.Set(Unready::kDraining, "draining"));
  EXPECT_FALSE(health_.Set(Unready::kDraining, "draining still"));
  EXPECT_EQ(readiness_.why_not(), "draining still");
  EXPECT_EQ(readiness_.fault(), "") << "a restart would mend nothing";
  EXPECT_TRUE(health_.Set(Unready::kDraining, ""));
  EXPECT_FALSE(health_.Set(Unready::kDraining, ""));
  EXPECT_TRUE(readiness_.ready());
}

// Whichever came first: a thread may hang because the device does.
TEST_F(FollowingTest, ALostDeviceIsToldBeforeAThreadThatHangs) {
  const auto lose = [&] { health_.Set(Unready::kLost, "lost"); };
  const auto hang = [&] { health_.Set(Unready::kHangs, "hangs"); };
  for (const bool lost_first : {true, false}) {
    lost_first ? lose() : hang();
    EXPECT_EQ(readiness_.fault(), lost_first ? "lost" : "hangs");
    lost_first ? hang() : lose();
    EXPECT_EQ(readiness_.fault(), "lost");
    EXPECT_EQ(readiness_.why_not(), "lost");
    health_.Set(Unready::kLost, "");
    EXPECT_EQ(readiness_.fault(), "hangs");
    EXPECT_EQ(readiness_.why_not(), "hangs");
    health_.Set(Unready::kHangs, "");
    EXPECT_EQ(readiness_.fault(), "");
    EXPECT_TRUE(readiness_.ready());
  }
}

constexpr char kReflection[] =
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";

// ServerReflectionRequest and -Response.
constexpr int kFileContainingSymbol = 4;
constexpr int kListServices = 7;
constexpr int kFileDescriptors = 4;
constexpr int kServices = 6;
constexpr int kError = 7;

void OfferReflection(ServerOptions& options) { options.reflection = true; }

TEST(ReflectionTest, IsOfferedOnRequestAlone) {
  TestServer server;
  RawStream stream(server, kReflection);
  EXPECT_EQ(stream.Read(), std::nullopt);
  EXPECT_EQ(stream.Finish().error_code(), grpc::StatusCode::UNIMPLEMENTED);
}

TEST(ReflectionTest, ListsTheServices) {
  TestServer server(OfferReflection);
  RawStream stream(server, kReflection);
  ASSERT_TRUE(stream.Write(WithField(kListServices, "*")));
  const auto reply = stream.Read();
  ASSERT_TRUE(reply.has_value()) << stream.Finish().error_message();
  const auto lists = FieldsOf(*reply, kServices);
  ASSERT_THAT(lists, SizeIs(1));
  std::vector<std::string> names;
  for (const std::string& service : FieldsOf(lists[0], 1)) {
    for (const std::string& name : FieldsOf(service, 1)) names.push_back(name);
  }
  for (const char* name :
       {"weir.v1.Evaluator", "weir.v1.Catalog", "weir.v1.Spaces",
        "inference.GRPCInferenceService", "grpc.health.v1.Health"}) {
    EXPECT_THAT(names, Contains(name));
  }
  stream.WritesDone();
  EXPECT_TRUE(stream.Finish().ok());
}

TEST(ReflectionTest, GivesTheFileOfASymbol) {
  TestServer server(OfferReflection);
  RawStream stream(server, kReflection);
  const auto ask = [&](const std::string& symbol) {
    EXPECT_TRUE(stream.Write(WithField(kFileContainingSymbol, symbol)));
    return stream.Read().value_or("");
  };
  for (const auto& [symbol, file] :
       {std::pair("weir.v1.Evaluator", "weir/v1/evaluator.proto"),
        std::pair("inference.GRPCInferenceService.ModelInfer",
                  "inference/grpc_service.proto"),
        std::pair("weir.v1.SyncReport", "weir/v1/sync_report.proto")}) {
    const auto responses = FieldsOf(ask(symbol), kFileDescriptors);
    ASSERT_THAT(responses, SizeIs(1)) << symbol;
    std::vector<std::string> files;
    for (const std::string& bytes : FieldsOf(responses[0], 1)) {
      google::protobuf::FileDescriptorProto descriptor;
      ASSERT_TRUE(descriptor.ParseFromString(bytes));
      files.push_back(descriptor.name());
    }
    EXPECT_THAT(files, Contains(file));
  }
  const auto errors = FieldsOf(ask("weir.v1.Nothing"), kError);
  ASSERT_THAT(errors, SizeIs(1));
  EXPECT_EQ(NumberOf(errors[0], 1),
            static_cast<uint64_t>(grpc::StatusCode::NOT_FOUND));
}

}  // namespace
}  // namespace weir::testing
