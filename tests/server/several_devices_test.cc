// A server with several devices in one process: which one a request runs on,
// what each has of its own, and what all of them share. Two CPU devices
// everywhere; a GPU beside the CPU and two GPUs where there are any.
#include <gmock/gmock.h>
#include <poll.h>

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/error_info.h"
#include "kernels/ops/registry.h"
#include "server/device_list.h"
#include "tests/graph/plan_runner.h"
#include "tests/observe/log_capture.h"
#include "tests/server/lane_hold.h"
#include "tests/server/model_folder.h"
#include "tests/server/server_fixture.h"

namespace weir::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

// A CPU for each GPU that is asked for: "cpu", "cpu:1".
absl::StatusOr<std::unique_ptr<Device>> MakeCpus(std::string_view which,
                                                 const DeviceOptions& options,
                                                 OpRegistry&) {
  DeviceOptions cpu = options;
  cpu.cpu_ordinal = which.back() - '0';
  return MakeCpuDevice(cpu);
}

struct Case {
  const char* name;
  const char* list;  // of --device
  std::vector<std::string> devices;
  bool cpus;  // instead of the GPUs that it names
};

// Why the devices of the list cannot be had here; "" if they can.
std::string Missing(const Case& wanted) {
  if (wanted.cpus) return "";
  const auto registry = MakeOpRegistry();
  for (const std::string& name : wanted.devices) {
    const absl::Status status = MakeDevice(name, {}, *registry).status();
    if (Reason(status) == "NO_CUDA_DEVICE")
      return std::string(status.message());
    if (name == "cuda:1" && absl::IsInvalidArgument(status)) {
      return absl::StrCat("needs two GPUs: ", status.message());
    }
  }
  return "";
}

class SeveralDevices : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (const std::string missing = Missing(GetParam()); !missing.empty()) {
      GTEST_SKIP() << missing;
    }
    models_.Write("floats", IdentityModel(onnx::TensorProto::FLOAT));
  }

  std::unique_ptr<TestServer> MakeServer(
      const std::function<void(ServerOptions&)>& change = nullptr) {
    auto server = std::make_unique<TestServer>([&](ServerOptions& o) {
      o.devices = *ParseDeviceList(GetParam().list);
      o.model_repository = models_.path();
      if (GetParam().cpus) o.make_device = MakeCpus;
      if (change) change(o);
      hold_.AddTo(o);
    });
    v1::ListDevicesResponse response;
    grpc::ClientContext context;
    SetPatience(&context);
    EXPECT_TRUE(server->catalog().ListDevices(&context, {}, &response).ok());
    listed_ = {response.devices().begin(), response.devices().end()};
    return server;
  }

  const std::vector<std::string>& names() const { return GetParam().devices; }
  const v1::Device& Listed(const std::string& name) const {
    static const v1::Device* const kNone = new v1::Device();
    for (const v1::Device& device : listed_) {
      if (device.name() == name) return device;
    }
    ADD_FAILURE() << "no device " << name;
    return *kNone;
  }

  // The UUID of the device that it ran on, as the reply tells twice.
  static std::string RanOn(TestServer& server, v1::EvaluateRequest request) {
    request.set_report_settings(true);
    request.set_report(v1::REPORT_LEVEL_FULL);
    const EvaluateAnswer answer = Evaluate(server, request);
    EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
    EXPECT_EQ(answer.response.report().details().stream().device_uuid(),
              answer.response.settings().device_uuid());
    return answer.response.settings().device_uuid();
  }

  static double Leases(TestServer& server, const std::string& device) {
    return server.Metric(
        absl::StrCat("weir_stream_pool_leases_total{device=\"", device, "\"}"));
  }

  ModelFolder models_;
  LaneHold hold_;
  std::vector<v1::Device> listed_;
};

INSTANTIATE_TEST_SUITE_P(
    Devices, SeveralDevices,
    ::testing::Values(
        Case{"cpus", "cuda:0,1", {"cpu", "cpu:1"}, true},
        Case{"cuda_cpu", "cuda:0,cpu", {"cuda:0", "cpu"}, false},
        Case{"cpu_cuda", "cpu,cuda:0", {"cpu", "cuda:0"}, false},
        Case{"two_cudas", "cuda:0,1", {"cuda:0", "cuda:1"}, false}),
    [](const auto& info) { return std::string(info.param.name); });

TEST_P(SeveralDevices, TheCatalogListsThemAndTheFirstIsTheDefault) {
  const auto server = MakeServer();
  EXPECT_EQ(server->server().device_names(), absl::StrJoin(names(), ","));
  std::set<std::string> uuids;
  for (const v1::Device& device : listed_) {
    EXPECT_EQ(device.is_default(), device.name() == names()[0]);
    EXPECT_EQ(device.failure(), "");
    EXPECT_GT(device.memory_free_bytes(), 0u) << device.name();
    uuids.insert(device.uuid());
  }
  for (const std::string& name : names()) Listed(name);
  EXPECT_EQ(uuids.size(), listed_.size());
}

TEST_P(SeveralDevices, ARequestChoosesByNameOrUuid) {
  const auto server = MakeServer();
  EXPECT_EQ(RanOn(*server, IdentityRequest()), Listed(names()[0]).uuid());
  for (const std::string& name : names()) {
    const std::string uuid = Listed(name).uuid();
    for (const std::string& device : {name, uuid}) {
      v1::EvaluateRequest request = IdentityRequest();
      request.set_device(device);
      const double before = Leases(*server, name);
      EXPECT_EQ(RanOn(*server, request), uuid);
      EXPECT_EQ(Leases(*server, name), before + 1);

      v1::ExplainRequest explain;
      *explain.mutable_graph() = request.graph();
      explain.set_device(device);
      v1::NamedTensorSpec& input = *explain.add_inputs();
      input.set_name("x");
      *input.mutable_spec() = request.inputs(0).value().spec();
      v1::ExplainResponse explained;
      grpc::ClientContext context;
      SetPatience(&context);
      const grpc::Status status =
          server->catalog().Explain(&context, explain, &explained);
      EXPECT_TRUE(status.ok()) << status.error_message();
      EXPECT_EQ(explained.device_uuid(), uuid);
    }
  }
}

TEST_P(SeveralDevices, AnUnknownDeviceIsToldWhichThereAre) {
  const auto server = MakeServer();
  v1::EvaluateRequest request = IdentityRequest();
  request.set_device("cuda:7");
  const grpc::Status status = Evaluate(*server, request).status;
  EXPECT_TRUE(Refused(status, grpc::StatusCode::NOT_FOUND, "\"cuda:7\""));
  EXPECT_EQ(Field(FromGrpcStatus(status)), "device");
  for (const std::string& name : names()) {
    EXPECT_THAT(status.error_message(), HasSubstr(name));
  }
}

// Nobody looks for a model on another device.
TEST_P(SeveralDevices, ModelsAreOnTheDefaultOne) {
  const auto server = MakeServer();
  v1::EvaluateRequest request;
  request.mutable_graph()->mutable_model()->set_name("floats");
  AddInput(&request, "x", v1::DATA_TYPE_FLOAT, {2}, Bytes<float>({1, 2}));
  EXPECT_EQ(RanOn(*server, request), Listed(names()[0]).uuid());
  request.set_device(names()[0]);
  EXPECT_EQ(RanOn(*server, request), Listed(names()[0]).uuid());
  request.set_device(names()[1]);
  const grpc::Status elsewhere = Evaluate(*server, request).status;
  EXPECT_TRUE(Refused(elsewhere, grpc::StatusCode::UNIMPLEMENTED, names()[1]));
  EXPECT_EQ(Field(FromGrpcStatus(elsewhere)), "device");

  inference::ModelInferRequest infer;
  infer.set_model_name("floats");
  AddInput(&infer, "x", "FP32", {2}, Bytes<float>({1, 2}));
  const double before = Leases(*server, names()[0]);
  EXPECT_TRUE(Infer(*server, infer).status.ok());
  EXPECT_EQ(Leases(*server, names()[0]), before + 1);

  v1::ListModelsResponse models;
  grpc::ClientContext context;
  SetPatience(&context);
  ASSERT_TRUE(server->catalog().ListModels(&context, {}, &models).ok());
  ASSERT_EQ(models.models_size(), 1);
  EXPECT_EQ(models.models(0).versions(0).device_uuid(),
            Listed(names()[0]).uuid());
}

// None of them is a quarter, as the CPU that nobody asked for is.
TEST_P(SeveralDevices, EachHasPoolsAndBudgetsOfItsOwn) {
  const auto server = MakeServer([](ServerOptions& o) {
    o.host_bytes = size_t{64} << 20;
    o.tensor_bytes = size_t{32} << 20;
    o.arena_bytes = size_t{128} << 20;
    o.streams = 3;
  });
  for (const std::string& name : names()) {
    const auto budget = [&](const char* pool) {
      return server->Metric(absl::StrCat("weir_memory_budget_bytes{device=\"",
                                         name, "\",pool=\"", pool, "\"}"));
    };
    EXPECT_EQ(budget("host"), 64 << 20) << name;
    EXPECT_EQ(budget("tensor"), 32 << 20) << name;
    EXPECT_EQ(budget("arena"), 128 << 20) << name;
    const std::string label = absl::StrCat("{device=\"", name, "\"}");
    EXPECT_EQ(server->Metric("weir_stream_pool_max_lanes" + label), 3);
    EXPECT_EQ(server->Metric("weir_device_healthy" + label), 1);
  }
  EXPECT_THAT(server->HttpGet("/metrics"),
              HasSubstr(absl::StrCat("device=\"", absl::StrJoin(names(), ","),
                                     "\"} 1")));
}

// What is right for the one may be too much for the other.
TEST_P(SeveralDevices, NoneComputesOnMoreThanHalfOfItsMemory) {
  constexpr size_t kEndless = size_t{1} << 62;
  for (const size_t arena_bytes : {size_t{0}, kEndless}) {
    const auto server =
        MakeServer([&](ServerOptions& o) { o.arena_bytes = arena_bytes; });
    for (const std::string& name : names()) {
      EXPECT_EQ(
          server->Metric(absl::StrCat("weir_memory_budget_bytes{device=\"",
                                      name, "\",pool=\"arena\"}")),
          static_cast<double>(Listed(name).memory_bytes() / 2))
          << name << " " << arena_bytes;
    }
  }
}

// Half of the host's memory is for the works of the CPU; a quarter of as much
// is for what works of all GPUs compute on there.
TEST(SeveralDevicesTest, GpusShareWhatTheyComputeOnOnTheHost) {
  constexpr size_t kArena = size_t{1} << 20;
  const auto scratch_bytes = [](const char* list, size_t arena_bytes) {
    std::vector<size_t> each;
    TestServer server([&](ServerOptions& o) {
      o.devices = *ParseDeviceList(list);
      o.arena_bytes = arena_bytes;
      o.make_device = [&each](std::string_view which,
                              const DeviceOptions& options,
                              OpRegistry& registry) {
        each.push_back(options.host_scratch_bytes);
        return MakeCpus(which, options, registry);
      };
    });
    v1::ListDevicesResponse devices;
    grpc::ClientContext context;
    SetPatience(&context);
    EXPECT_TRUE(server.catalog().ListDevices(&context, {}, &devices).ok());
    each.push_back(devices.devices(0).memory_bytes() / 2);
    return each;
  };
  std::vector<size_t> found = scratch_bytes("cuda:0", 0);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0], found[1] / 4);
  found = scratch_bytes("cuda:0,1", 0);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0], found[2] / 2 / 4);
  EXPECT_EQ(found[1], found[0]);
  found = scratch_bytes("cuda:0,1", kArena);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0], kArena / 4);
}

// With 8 MiB of memory, of which nobody uses so many; negative: it does not
// say.
class RoomyDevice final : public FarDevice {
 public:
  RoomyDevice(int ordinal, int64_t megabytes)
      : FarDevice(ordinal), free_bytes_(megabytes << 20) {
    info_.total_memory = int64_t{8} << 20;
  }
  absl::StatusOr<int64_t> QueryFreeMemory() override {
    if (free_bytes_ < 0) return absl::UnavailableError("no answer");
    return free_bytes_;
  }

 private:
  const int64_t free_bytes_;
};

TEST(SeveralDevicesTest, TheCatalogTellsWhatIsFreeOnEach) {
  TestServer server([&](ServerOptions& o) {
    o.devices = {"cuda:0", "cuda:1"};
    o.make_device = [](std::string_view which, const DeviceOptions&,
                       OpRegistry&) -> absl::StatusOr<std::unique_ptr<Device>> {
      if (which == "cuda:0") return std::make_unique<RoomyDevice>(0, 3);
      return std::make_unique<RoomyDevice>(1, 5);
    };
  });
  v1::ListDevicesResponse devices;
  grpc::ClientContext context;
  SetPatience(&context);
  ASSERT_TRUE(server.catalog().ListDevices(&context, {}, &devices).ok());
  std::map<std::string, uint64_t> free;
  for (const v1::Device& device : devices.devices()) {
    free[device.name()] = device.memory_free_bytes();
  }
  EXPECT_EQ(free["cuda:0"], 3u << 20);
  EXPECT_EQ(free["cuda:1"], 5u << 20);
  EXPECT_GT(free["cpu"], 5u << 20);  // of the machine's
}

// Whoever else uses a device takes from what the server counts on. The CPU's
// memory is the machine's, which others tell of.
TEST(SeveralDevicesTest, MetricsTellTheMemoryOfGpusThatSay) {
  TestServer server([&](ServerOptions& o) {
    o.devices = {"cuda:0", "cuda:1", "cuda:2"};
    o.make_device = [](std::string_view which, const DeviceOptions&,
                       OpRegistry&) -> absl::StatusOr<std::unique_ptr<Device>> {
      if (which == "cuda:0") return std::make_unique<RoomyDevice>(0, 3);
      if (which == "cuda:2") return std::make_unique<RoomyDevice>(2, 0);
      return std::make_unique<RoomyDevice>(1, -1);
    };
  });
  const std::string name = "weir_device_memory_bytes{device=\"";
  EXPECT_EQ(server.Metric(name + "cuda:0\",state=\"free\"}"), 3 << 20);
  EXPECT_EQ(server.Metric(name + "cuda:0\",state=\"used\"}"), 5 << 20);
  EXPECT_EQ(server.Metric(name + "cuda:2\",state=\"free\"}"), 0);
  EXPECT_EQ(server.Metric(name + "cuda:2\",state=\"used\"}"), 8 << 20);
  const std::string metrics = server.HttpGet("/metrics");
  EXPECT_THAT(metrics, ::testing::Not(HasSubstr(name + "cuda:1")));
  EXPECT_THAT(metrics, ::testing::Not(HasSubstr(name + "cpu")));
}

// That compiles kernels, which its disk has no room for.
class CompilingDevice final : public FarDevice {
 public:
  std::optional<KernelCacheStats> kernel_cache_stats() const override {
    KernelCacheStats stats;
    stats.memory_hits_total = 2;
    stats.disk_hits_total = 3;
    stats.misses_total = 5;
    stats.write_failures_total = 4;
    stats.write_failure = "cannot write to /cache: No space left on device";
    return stats;
  }
};

TEST(SeveralDevicesTest, TellsHowCompiledKernelsAreKept) {
  LogCapture log;
  TestServer server(
      [&](ServerOptions& o) {
        o.devices = {"cuda:0"};
        o.log_format = LogFormat::kJson;
        o.log_level = LogLevel::kWarning;
        o.pulse_interval = absl::Milliseconds(1);
        o.make_device =
            [](std::string_view, const DeviceOptions&,
               OpRegistry&) -> absl::StatusOr<std::unique_ptr<Device>> {
          return std::make_unique<CompilingDevice>();
        };
      },
      log.stream());
  const std::string name = "weir_kernel_cache_";
  const std::string gpu = "{device=\"cuda:0\"";
  EXPECT_EQ(server.Metric(name + "hits_total" + gpu + ",level=\"memory\"}"), 2);
  EXPECT_EQ(server.Metric(name + "hits_total" + gpu + ",level=\"disk\"}"), 3);
  EXPECT_EQ(server.Metric(name + "misses_total" + gpu + "}"), 5);
  EXPECT_EQ(server.Metric(name + "write_failures_total" + gpu + "}"), 4);
  EXPECT_THAT(server.HttpGet("/metrics"),
              ::testing::Not(HasSubstr(name + "hits_total{device=\"cpu\"")));
  const auto events = [&] {
    return log.Events("compiled kernels could not be kept");
  };
  ASSERT_TRUE(Eventually([&] { return !events().empty(); }));
  EXPECT_EQ(events()[0]["device"], "cuda:0");
  EXPECT_EQ(events()[0]["count"], 4);
}

// A caller's place is for any of the devices: as many as all of them have
// streams, and the queue.
TEST_P(SeveralDevices, EveryStreamHasAPlaceBeforeTheQueue) {
  const auto server = MakeServer([](ServerOptions& o) {
    o.streams = 2;
    o.queue_length = 0;
  });
  std::deque<HeldEvaluate> held;
  for (const std::string& name : names()) {
    for (int i = 0; i < 2; ++i) {
      v1::EvaluateRequest request = hold_.Request();
      request.set_device(name);
      held.emplace_back(*server, hold_, request);
    }
  }
  ASSERT_TRUE(Eventually(
      [&] { return server->Metric("weir_requests_in_flight") == 4; }));
  const grpc::Status status = Evaluate(*server, IdentityRequest()).status;
  EXPECT_EQ(Reason(FromGrpcStatus(status)), "QUEUE_FULL");
  for (HeldEvaluate& call : held) {
    EXPECT_TRUE(call.Release().status.ok())
        << call.Wait().status.error_message();
  }
}

TEST_P(SeveralDevices, ADrainWaitsForWorkOnAllOfThem) {
  const auto server =
      MakeServer([](ServerOptions& o) { o.drain_timeout = absl::Minutes(1); });
  std::deque<HeldEvaluate> running;
  for (const std::string& name : names()) {
    v1::EvaluateRequest request = hold_.Request();
    request.set_device(name);
    running.emplace_back(*server, hold_, request);
  }
  ASSERT_TRUE(Eventually(
      [&] { return server->Metric("weir_requests_in_flight") == 2; }));
  constexpr int kWaits = 3;
  int waits = 0;
  const DrainResult result = server->server().Drain([&](absl::Duration time) {
    if (++waits <= kWaits) {
      EXPECT_EQ(server->Metric("weir_requests_in_flight"), 2);
    }
    if (waits == kWaits) hold_.Open();
    poll(nullptr, 0, static_cast<int>(absl::ToInt64Milliseconds(time)));
    return false;
  });
  EXPECT_GE(waits, kWaits);
  EXPECT_TRUE(result.settled());
  for (HeldEvaluate& call : running) {
    EXPECT_TRUE(call.Wait().status.ok()) << call.Wait().status.error_message();
  }
}

// Where the two are told apart by what the test does to one of them.
class OneOfSeveral : public ::testing::Test {
 protected:
  OneOfSeveral()
      : server_(
            [this](ServerOptions& o) {
              o.devices = {"cuda:0", "cuda:1"};
              o.log_format = LogFormat::kJson;
              o.log_level = LogLevel::kWarning;
              o.make_device = [this](std::string_view which,
                                     const DeviceOptions& options,
                                     OpRegistry& registry) {
                auto device = MakeCpus(which, options, registry);
                devices_.push_back(device->get());
                return device;
              };
            },
            log_.stream()) {}

  // What the catalog says is wrong with each device.
  std::map<std::string, std::string> Failures() {
    v1::ListDevicesResponse response;
    grpc::ClientContext context;
    SetPatience(&context);
    const grpc::Status status =
        server_.catalog().ListDevices(&context, {}, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    std::map<std::string, std::string> failures;
    for (const v1::Device& device : response.devices()) {
      failures[device.name()] = device.failure();
    }
    return failures;
  }

  std::vector<Device*> devices_;
  LogCapture log_;
  TestServer server_;
};

TEST_F(OneOfSeveral, ThatStandsStillMakesTheServerUnready) {
  ASSERT_EQ(devices_.size(), 2u);
  devices_[1]->health().SetStalled(absl::UnavailableError("it stands still"));
  EXPECT_EQ(server_.server().unready(), "cpu:1: it stands still");
  auto lines = log_.Events("unready: the device stands still");
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0]["level"], "error");
  EXPECT_EQ(lines[0]["device"], "cpu:1");
  EXPECT_EQ(lines[0]["error"], "it stands still");
  EXPECT_TRUE(ServesOn(server_));
  EXPECT_THAT(log_.Events("the device moves again"), IsEmpty());
  devices_[1]->health().SetStalled(absl::OkStatus());
  EXPECT_EQ(server_.server().unready(), "");
  lines = log_.Events("the device moves again");
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0]["level"], "warning");
  EXPECT_EQ(lines[0]["device"], "cpu:1");
  EXPECT_THAT(log_.Events("unready: the device stands still"), SizeIs(1));
  EXPECT_EQ(server_.Metric("weir_device_stalls_total{device=\"cpu:1\"}"), 1);
  EXPECT_EQ(server_.Metric("weir_device_stalls_total{device=\"cpu\"}"), 0);
}

// Whichever it is: the process ends for both, and says which.
TEST_F(OneOfSeveral, ThatIsLostEndsTheProcess) {
  ASSERT_EQ(devices_.size(), 2u);
  devices_[1]->health().NameSuspects({"a work"});
  devices_[1]->health().Poison(absl::UnavailableError("it is lost"));
  pollfd lost{server_.server().device_lost_fd(), POLLIN, 0};
  EXPECT_EQ(poll(&lost, 1, 0), 1);
  const absl::Status status = server_.server().device_status();
  EXPECT_EQ(Reason(status), "DEVICE_POISONED");
  EXPECT_THAT(std::string(status.message()), HasSubstr("cpu:1: "));
  EXPECT_THAT(server_.server().device_suspects(),
              ElementsAreArray({"cpu:1: a work"}));
  EXPECT_THAT(Failures(), UnorderedElementsAre(
                              Pair("cpu", ""),
                              Pair("cpu:1", "the device is lost: it is lost")));
  EXPECT_THAT(server_.server().unready(), HasSubstr("cpu:1: "));
  int code = 0;
  EXPECT_THAT(server_.HttpGet("/healthz", &code), HasSubstr("cpu:1"));
  EXPECT_EQ(code, 503);
  EXPECT_EQ(server_.Metric("weir_device_healthy{device=\"cpu\"}"), 1);
  EXPECT_EQ(server_.Metric("weir_device_healthy{device=\"cpu:1\"}"), 0);
}

TEST(SeveralDevicesTest, ADeviceThatIsNotThereIsAFailedStart) {
  ServerOptions options = TestOptions();
  options.devices = {"cpu", "cuda:99"};
  const auto none = Server::Open(options);
  EXPECT_THAT(std::string(none.status().message()),
              HasSubstr("--device=cuda:99: "));
}

}  // namespace
}  // namespace weir::testing
