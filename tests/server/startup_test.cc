// What a server does with the models that it finds.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/cpp/client.h"
#include "kernels/base/error_info.h"
#include "kernels/base/utf8.h"
#include "server/rpc/status_mapping.h"
#include "server/startup_checks.h"
#include "tests/graph/plan_runner.h"
#include "tests/server/compile_hold.h"
#include "tests/server/model_folder.h"
#include "tests/server/server_fixture.h"

namespace {
// What mkdir, which the C++ library finds here first, answers if it is not 0.
std::atomic<int> mkdir_error = 0;
}  // namespace

[[gnu::visibility("default")]] int mkdir(const char* path,
                                         mode_t mode) noexcept {
  if (mkdir_error == 0) return mkdirat(AT_FDCWD, path, mode);
  errno = mkdir_error;
  return -1;
}

namespace weir::testing {
namespace {

using ::testing::HasSubstr;

inference::ModelInferRequest InferOn(const std::string& model) {
  inference::ModelInferRequest request;
  request.set_model_name(model);
  AddInput(&request, "x", "FP32", {2}, Bytes<float>({1, 2}));
  return request;
}

// Serves `models`, and says what it warns of.
auto Warning(const ModelFolder& models) {
  return [&models](ServerOptions& o) {
    o.model_repository = models.path();
    o.log_level = LogLevel::kWarning;
  };
}

absl::StatusOr<std::unique_ptr<Device>> MakeFar(std::string_view,
                                                const DeviceOptions&,
                                                OpRegistry&) {
  return std::make_unique<FarDevice>();
}

// A replica that starts serves as those do that run.
TEST(StartupTest, AFullCacheFolderIsNotedAndServes) {
  ModelFolder models;
  for (const int error : {ENOSPC, EDQUOT}) {
    mkdir_error = error;
    const std::string folder = models.path() + "/new/cache";
    EXPECT_TRUE(absl::IsResourceExhausted(CheckCacheFolder(folder)));
    mkdir_error = 0;
  }
  const std::string folder = models.path() + "-cache";
  const auto log_with = [&](const DeviceFactory& make_device) {
    std::stringstream log;
    TestServer server(
        [&](ServerOptions& o) {
          o.devices = {"cpu"};
          o.make_device = make_device;
          o.cache_dir = folder;
          o.cache_dir_given = true;
          o.log_level = LogLevel::kWarning;
          mkdir_error = ENOSPC;
        },
        log);
    mkdir_error = 0;
    int code = 0;
    server.HttpGet("/readyz", &code);
    EXPECT_EQ(code, 200);
    return log.str();
  };
  EXPECT_THAT(log_with(MakeFar), AllOf(HasSubstr("--cache-dir: " + folder +
                                                 ": No space left on device"),
                                       HasSubstr("it is tried again")));
  // Where nothing is compiled nothing is tried.
  EXPECT_EQ(log_with(MakeDevice), "");
  mkdir_error = EROFS;
  EXPECT_TRUE(absl::IsFailedPrecondition(CheckCacheFolder(folder)));
  mkdir_error = 0;
}

TEST(StartupTest, GoodModelsServeBesideBadOnes) {
  ModelFolder models;
  const onnx::ModelProto good = IdentityModel(onnx::TensorProto::FLOAT);
  models.Write("good", good);
  models.WriteBytes("empty", "");
  models.WriteBytes("garbage", std::string(5000, 'g'));
  const std::string bytes = good.SerializeAsString();
  models.WriteBytes("short", bytes.substr(0, bytes.size() / 2));
  onnx::ModelProto unknown = good;
  unknown.mutable_graph()->mutable_node(0)->set_op_type("Unheard");
  models.Write("unknown", unknown);
  onnx::ModelProto cyclic = good;
  cyclic.mutable_graph()->mutable_node(0)->set_input(0, "y");
  models.Write("cyclic", cyclic);
  models.Write("half", good, 1);
  models.WriteBytes("half", "not a model", 2);
  models.WriteConfig("half", "version_policy { all {} }");

  std::ostringstream log;
  TestServer server(Warning(models), log);
  // Once for each that is not served.
  for (const char* name :
       {"empty", "garbage", "short", "unknown", "cyclic", "half"}) {
    EXPECT_THAT(log.str(),
                HasSubstr("model " + std::string(name) + " version"));
  }
  EXPECT_TRUE(Infer(server, InferOn("good")).status.ok());
  EXPECT_EQ(server.server().models_ready(), 2u);

  grpc::ClientContext context;
  SetPatience(&context);
  inference::RepositoryIndexRequest request;
  inference::RepositoryIndexResponse index;
  ASSERT_TRUE(server.kserve().RepositoryIndex(&context, request, &index).ok());
  std::map<std::string, std::pair<std::string, std::string>> entries;
  for (const auto& model : index.models()) {
    entries[model.name() + "/" + model.version()] = {model.state(),
                                                     model.reason()};
  }
  EXPECT_EQ(entries.size(), 8u);
  for (const char* name : {"good/1", "half/1"}) {
    EXPECT_EQ(entries[name].first, "READY") << name;
    EXPECT_EQ(entries[name].second, "") << name;
  }
  for (const char* name :
       {"empty/1", "garbage/1", "short/1", "unknown/1", "cyclic/1", "half/2"}) {
    EXPECT_EQ(entries[name].first, "UNAVAILABLE") << name;
    EXPECT_NE(entries[name].second, "") << name;
  }
  EXPECT_THAT(entries["empty/1"].second, HasSubstr("empty"));
  // What weir lacks is told from what is damaged.
  EXPECT_THAT(entries["unknown/1"].second, HasSubstr("UNIMPLEMENTED: "));
  EXPECT_THAT(entries["unknown/1"].second, HasSubstr("Unheard"));
  EXPECT_THAT(entries["garbage/1"].second, HasSubstr("INVALID_ARGUMENT: "));

  // A bad model has a precise answer, and a good version of it serves.
  const grpc::Status refused = Infer(server, InferOn("garbage")).status;
  EXPECT_TRUE(Refused(refused, grpc::StatusCode::NOT_FOUND, "garbage"));
  EXPECT_TRUE(Infer(server, InferOn("half")).status.ok());
  client::Client client({.address = server.address()});
  EXPECT_TRUE(*client.IsServing("model/good"));
  EXPECT_TRUE(client.IsServing("model/half").value_or(false));
  EXPECT_FALSE(client.IsServing("model/garbage").value_or(false));
  EXPECT_TRUE(*client.IsServing());
  EXPECT_TRUE(ServesOn(server));
}

// A name of any bytes is refused by name, and what the server tells about its
// models stays readable: protobuf, Prometheus and JSON take UTF-8 alone.
TEST(StartupTest, NamesThatAreNotUtf8BlindNobody) {
  ModelFolder models;
  const onnx::ModelProto good = IdentityModel(onnx::TensorProto::FLOAT);
  models.Write("good", good);
  models.Write("caf\xe9", good);
  onnx::ModelProto node = good;
  node.mutable_graph()->mutable_node(0)->set_name("copy\xff");
  models.Write("node", node);
  onnx::ModelProto foreign = node;  // refused before names are looked at
  foreign.mutable_graph()->mutable_node(0)->set_domain("elsewhere");
  models.Write("foreign", foreign);
  onnx::ModelProto tensor = good;
  tensor.mutable_graph()->mutable_input(0)->set_name("x\xc3");
  tensor.mutable_graph()->mutable_node(0)->set_input(0, "x\xc3");
  models.Write("tensor", tensor);
  onnx::ModelProto output = good;
  output.mutable_graph()->mutable_output(0)->set_name("y\x80");
  output.mutable_graph()->mutable_node(0)->set_output(0, "y\x80");
  models.Write("output", output);
  onnx::ModelProto dimension = good;
  dimension.mutable_graph()
      ->mutable_input(0)
      ->mutable_type()
      ->mutable_tensor_type()
      ->mutable_shape()
      ->mutable_dim(0)
      ->set_dim_param("N\xfe");
  models.Write("dimension", dimension);
  models.WriteFile("version/1\xff/model.onnx", good.SerializeAsString());
  models.Write("config", good);
  models.WriteConfig("config", R"(parameters { key: "a\377" })");
  models.Write("file", good);
  models.WriteConfig("file", R"(default_model_filename: "m\377")");

  std::ostringstream log;
  TestServer server(
      [&](ServerOptions& o) {
        Warning(models)(o);
        o.triton_metrics = true;
      },
      log);
  EXPECT_EQ(server.server().models_ready(), 1u);
  const std::map<std::string, std::string> refused = {
      {"caf\\xe9", "not UTF-8"},
      {"node", "copy\\xff"},
      {"foreign", "elsewhere"},
      {"tensor", "x\\xc3"},
      {"output", "y\\x80"},
      {"dimension", "N\\xfe"},
      {"version", "\"1\\xff\" is none"},
      {"config", "a\\xff"},
      {"file", "m\\xff"}};
  for (const auto& [name, reason] : refused) {
    EXPECT_THAT(log.str(), HasSubstr("model " + name));
    EXPECT_THAT(log.str(), HasSubstr(reason));
  }
  EXPECT_TRUE(IsUtf8(log.str()));

  grpc::ClientContext context;
  SetPatience(&context);
  inference::RepositoryIndexResponse index;
  const grpc::Status status =
      server.kserve().RepositoryIndex(&context, {}, &index);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(index.models_size(), static_cast<int>(refused.size()) + 1);
  for (const auto& model : index.models()) {
    if (model.name() == "good") continue;
    ASSERT_TRUE(refused.count(model.name())) << model.name();
    EXPECT_THAT(model.reason(), HasSubstr(refused.at(model.name())));
  }
  client::Client client({.address = server.address()});
  const auto listed = client.ListModels();
  ASSERT_TRUE(listed.ok()) << listed.status();
  EXPECT_EQ(listed->models_size(), index.models_size());
  EXPECT_TRUE(Infer(server, InferOn("good")).status.ok());
  EXPECT_FALSE(Infer(server, InferOn("node")).status.ok());
  EXPECT_TRUE(*client.IsServing("model/good"));
  EXPECT_TRUE(*client.IsServing());
  EXPECT_TRUE(IsUtf8(server.HttpGet("/metrics")));
}

TEST(StartupTest, AnswersProbesWhileModelsLoad) {
  ModelFolder models;
  WriteManySlowModels(models);
  TestServer server(
      [&](ServerOptions& o) {
        o.model_repository = models.path();
        o.drain_delay = absl::Hours(1);
      },
      std::cerr, Models::kLoading);
  int code = 0;
  server.HttpGet("/healthz", &code);
  EXPECT_EQ(code, 200);
  EXPECT_EQ(server.HttpGet("/readyz", &code), "loading\n");
  EXPECT_EQ(code, 503);
  client::Client client({.address = server.address()});
  EXPECT_TRUE(*client.IsServing("live"));
  EXPECT_FALSE(*client.IsServing());
  EXPECT_FALSE(*client.IsServing("model/slow7"));
  EXPECT_GT(server.Metric("weir_models{state=\"loading\"}"), 0);
  const auto info = client.GetServerInfo();
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_FALSE(info->ready());
  EXPECT_EQ(info->reason(), "loading");
  const grpc::Status early = Infer(server, InferOn("slow199")).status;
  EXPECT_TRUE(Refused(early, grpc::StatusCode::UNAVAILABLE, "is being loaded"));
  EXPECT_EQ(Reason(FromGrpcStatus(early)), "MODEL_NOT_READY");
  EXPECT_EQ(RetryAfter(FromGrpcStatus(early)), absl::Seconds(1));
  EXPECT_TRUE(ServesOn(server));
  // Nobody relies on it yet: no waits, and loading ends at its next step.
  const DrainResult result =
      server.server().Drain([](absl::Duration) { return false; });
  EXPECT_TRUE(result.settled());
  EXPECT_EQ(result.unanswered, 0);
  EXPECT_LT(server.server().models_ready(), 200u);
}

// From the first moment on: what was found and not yet loaded is `loading`, one
// after another leaves it, and whoever asks is told so.
TEST(StartupTest, TellsWhatIsStillToBeLoaded) {
  ModelFolder models;
  CompileHold hold;
  // As many as there are threads that load; the others wait behind them.
  for (const char* name : {"a", "b"}) models.Write(name, hold.Model());
  models.Write("c", IdentityModel(onnx::TensorProto::FLOAT));
  models.WriteBytes("d", "garbage");
  TestServer server(
      [&](ServerOptions& o) {
        o.model_repository = models.path();
        hold.AddTo(o);
      },
      std::cerr, Models::kLoading);
  client::Client client({.address = server.address()});
  const auto versions = [&](const char* state) {
    return server.Metric(absl::StrCat("weir_models{state=\"", state, "\"}"));
  };
  const auto code = [&](const char* path) {
    int code = 0;
    server.HttpGet(path, &code);
    return code;
  };
  EXPECT_EQ(versions("loading"), 4);
  hold.WaitUntilHeld(2);
  EXPECT_EQ(versions("loading"), 4);
  EXPECT_EQ(versions("ready"), 0);
  EXPECT_EQ(versions("unavailable"), 0);
  EXPECT_EQ(server.Metric("weir_ready"), 0);
  EXPECT_EQ(code("/healthz"), 200);
  EXPECT_EQ(code("/readyz"), 503);
  EXPECT_TRUE(*client.IsServing("live"));
  EXPECT_FALSE(*client.IsServing());
  EXPECT_FALSE(*client.IsServing("model/c"));
  hold.Open();
  EXPECT_TRUE(Eventually([&] { return code("/readyz") == 200; }));
  EXPECT_EQ(versions("loading"), 0);
  EXPECT_EQ(versions("ready"), 3);
  EXPECT_EQ(versions("unavailable"), 1);
  EXPECT_EQ(server.Metric("weir_ready"), 1);
  EXPECT_TRUE(Eventually([&] { return *client.IsServing(); }));
  EXPECT_TRUE(*client.IsServing("model/c"));
}

// One that takes long hides no other, neither those that are ready nor those
// that were refused meanwhile.
TEST(StartupTest, WhatIsLoadedServesBesideWhatStillLoads) {
  ModelFolder models;
  CompileHold hold;
  models.Write("a", hold.Model());
  models.Write("b", IdentityModel(onnx::TensorProto::FLOAT));
  models.WriteBytes("c", "garbage");
  TestServer server(
      [&](ServerOptions& o) {
        o.model_repository = models.path();
        hold.AddTo(o);
      },
      std::cerr, Models::kLoading);
  const auto versions = [&](const char* state) {
    return server.Metric(absl::StrCat("weir_models{state=\"", state, "\"}"));
  };
  EXPECT_TRUE(Eventually([&] { return versions("loading") == 1; }));
  EXPECT_EQ(versions("ready"), 1);
  EXPECT_EQ(versions("unavailable"), 1);
  EXPECT_TRUE(Infer(server, InferOn("b")).status.ok());
  EXPECT_TRUE(Refused(Infer(server, InferOn("a")).status,
                      grpc::StatusCode::UNAVAILABLE, "is being loaded"));
  hold.Open();
  EXPECT_TRUE(Eventually([&] { return versions("ready") == 2; }));
}

TEST(StartupTest, MayBeDestroyedWhileModelsLoad) {
  ModelFolder models;
  WriteManySlowModels(models);
  TestServer server(
      [&](ServerOptions& o) { o.model_repository = models.path(); }, std::cerr,
      Models::kLoading);
  EXPECT_LT(server.server().models_ready(), 200u);
}

TEST(StartupTest, StrictReadinessNeedsEveryModel) {
  ModelFolder models;
  const auto strict = [&](ServerOptions& o) {
    o.model_repository = models.path();
    o.strict_readiness = true;
  };
  const auto expect_unready = [&](const std::string& why) {
    std::ostringstream log;
    TestServer server(strict, log);
    int code = 0;
    EXPECT_THAT(server.HttpGet("/readyz", &code), HasSubstr(why));
    EXPECT_EQ(code, 503);
    EXPECT_THAT(log.str(), HasSubstr(" error "));
    EXPECT_THAT(log.str(), HasSubstr(why));
    client::Client client({.address = server.address()});
    EXPECT_FALSE(*client.IsServing());
    EXPECT_TRUE(*client.IsServing("live"));
    server.HttpGet("/healthz", &code);
    EXPECT_EQ(code, 200);
  };
  expect_unready("there is no model in " + models.path());
  models.Write("good", IdentityModel(onnx::TensorProto::FLOAT));
  {
    TestServer server(strict);
    EXPECT_TRUE(*client::Client({.address = server.address()}).IsServing());
  }
  models.WriteBytes("bad", "garbage");
  models.WriteBytes("bad", "garbage", 2);
  models.WriteConfig("bad", "version_policy { all {} }");
  expect_unready(
      "2 of 3 model versions are not served: model bad version 1, model bad "
      "version 2");
  for (const char* name : {"c", "d", "e", "f"}) {
    models.WriteBytes(name, "garbage");
  }
  expect_unready(
      "6 of 7 model versions are not served: model bad version 1, "
      "model bad version 2, model c version 1, model d version 1, "
      "model e version 1, ...");
}

TEST(StartupTest, TellsWhichSettingsOfAModelHaveNoEffect) {
  ModelFolder models;
  models.Write("plain", IdentityModel(onnx::TensorProto::FLOAT));
  models.WriteConfig("plain", "instance_group { count: 1 }");
  models.Write("tuned", IdentityModel(onnx::TensorProto::FLOAT));
  models.WriteConfig("tuned", R"(
      dynamic_batching { max_queue_delay_microseconds: 100 }
      instance_group { count: 4 }
      model_warmup { name: "first" batch_size: 1 }
      parameters { key: "k" value { string_value: "v" } })");
  std::ostringstream log;
  TestServer server(Warning(models), log);
  EXPECT_EQ(server.server().models_ready(), 2u);
  EXPECT_THAT(
      log.str(),
      AllOf(HasSubstr("model tuned version 1"), HasSubstr("dynamic_batching"),
            HasSubstr("model_warmup"), HasSubstr("instance_group.count 4"),
            HasSubstr("parameters"), ::testing::Not(HasSubstr("plain"))));
  EXPECT_TRUE(Infer(server, InferOn("tuned")).status.ok());
}

// As a copy of a whole model into the folder that is there already makes it.
TEST(StartupTest, NamesFoldersThatAreNoVersions) {
  ModelFolder models;
  const onnx::ModelProto good = IdentityModel(onnx::TensorProto::FLOAT);
  models.Write("digits", good);
  models.WriteFile("digits/digits/2/model.onnx", good.SerializeAsString());
  models.WriteFile("digits/.hidden/model.onnx", "");
  models.WriteFile("digits/README", "no folder");
  models.Write("many", good);
  for (const char* folder : {"02", "a", "b", "c", "d\xff", "e"}) {
    models.WriteFile(std::string("many/") + folder + "/model.onnx", "");
  }
  models.Write("plain", good);
  std::ostringstream log;
  TestServer server(Warning(models), log);
  EXPECT_EQ(server.server().models_ready(), 3u);
  EXPECT_THAT(log.str(),
              HasSubstr("model digits: folders that are no version (\"1\", "
                        "\"2\", ...) and not served: \"digits\""));
  EXPECT_THAT(log.str(), HasSubstr(R"(: "02", "a", "b", "c", "d\xff", ...)"));
  const std::string lines = log.str();
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 2) << lines;
}

TEST(StartupTest, NamesFilesBesideTheModelsFolders) {
  ModelFolder models;
  const onnx::ModelProto good = IdentityModel(onnx::TensorProto::FLOAT);
  models.Write("digits", good);
  models.WriteFile("loose.onnx", good.SerializeAsString());
  models.WriteFile("README", "");
  std::ostringstream log;
  TestServer server(Warning(models), log);
  EXPECT_THAT(
      log.str(),
      HasSubstr("--model-repository=" + models.path() +
                ": files beside the models' folders are not served, "
                "which must be NAME/VERSION/model.onnx: \"loose.onnx\""));
  const std::string lines = log.str();
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 1) << lines;
}

// The folder that is taken if none is given may be missing, as in a container
// whose root is read-only.
TEST(StartupTest, WithoutItsUsualCacheFolderADeviceThatCompilesServes) {
  const TempFolder folder;
  const std::string file = folder.Write("file", "");
  const auto log_of = [&](const std::string& cache) {
    std::ostringstream log;
    TestServer server(
        [&](ServerOptions& o) {
          o.cache_dir = cache;
          o.log_level = LogLevel::kWarning;
          o.make_device = MakeFar;
        },
        log);
    EXPECT_TRUE(*client::Client({.address = server.address()}).IsServing());
    return log.str();
  };
  EXPECT_THAT(log_of(file + "/weir"),
              AllOf(HasSubstr(file + "/weir"), HasSubstr("in memory")));
  EXPECT_THAT(log_of((folder.path() / "weir").string()),
              ::testing::Not(HasSubstr("in memory")));
  EXPECT_TRUE(std::filesystem::is_directory(folder.path() / "weir"));
}

TEST(StartupTest, AnEmptyRepositoryIsReady) {
  ModelFolder models;
  TestServer server(
      [&](ServerOptions& o) { o.model_repository = models.path(); });
  EXPECT_EQ(server.server().models_ready(), 0u);
  EXPECT_TRUE(ServesOn(server));
}

TEST(StartupTest, FailuresNameTheCause) {
  ServerOptions options = TestOptions();
  options.model_repository = "/no/such/folder";
  EXPECT_THAT(Server::Start(options).status().message(),
              HasSubstr("/no/such/folder"));
  options = TestOptions();
  options.devices = {"cuda:99"};
  EXPECT_THAT(Server::Start(options).status().message(),
              HasSubstr("--device=cuda:99"));
  TestServer first;
  options = TestOptions();
  options.grpc = {first.address()};
  EXPECT_THAT(Server::Start(options).status().message(),
              HasSubstr(first.address()));
  options = TestOptions();
  options.http = first.server().http_address();
  EXPECT_THAT(Server::Start(options).status().message(),
              HasSubstr(first.server().http_address()));
  EXPECT_TRUE(ServesOn(first));
}

TEST(StartupTest, ARepositoryWithoutModelsIsNoted) {
  // As a bucket with one model's file, where a folder of models is wanted.
  ModelFolder models;
  std::ofstream(models.path() + "/model.onnx")
      << IdentityModel(onnx::TensorProto::FLOAT).SerializeAsString();
  std::ostringstream log;
  TestServer server(Warning(models), log);
  EXPECT_EQ(server.server().models_ready(), 0u);
  EXPECT_THAT(log.str(), HasSubstr("no models in it"));
  EXPECT_THAT(log.str(), HasSubstr("NAME/VERSION/model.onnx"));
}

// As many descriptors as connections may take, and those of everything else.
TEST(StartupTest, TakesTheDescriptorsThatItsConnectionsNeed) {
  const uint64_t others = DescriptorsFor(0);
  EXPECT_GE(others, 256u);
  auto plan = PlanDescriptors(1024, 1 << 20, 4096);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->soft_limit, 4096 + others);
  EXPECT_EQ(plan->connections, 4096u);
  plan = PlanDescriptors(1 << 20, 1 << 20, 4096);
  EXPECT_EQ(plan->soft_limit, uint64_t{1} << 20);
  plan = PlanDescriptors(RLIM_INFINITY, RLIM_INFINITY, 4096);
  EXPECT_EQ(plan->soft_limit, RLIM_INFINITY);
  EXPECT_EQ(plan->connections, 4096u);
  // Fewer connections, rather than none left for probes.
  plan = PlanDescriptors(1024, 2000, 4096);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->soft_limit, 2000u);
  EXPECT_EQ(plan->connections, 2000 - others);
  const absl::Status none = PlanDescriptors(64, others, 4096).status();
  EXPECT_EQ(none.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(none.message()), HasSubstr("ulimit -Hn"));
}

// Whoever may have a quarter of the connections has a quarter of fewer.
TEST(StartupTest, OnePeersShareFollowsTheConnections) {
  EXPECT_EQ(PeerShare(1024, 4096, 4096), 1024u);
  EXPECT_EQ(PeerShare(1024, 4096, 400), 100u);
  EXPECT_EQ(PeerShare(1024, 4096, 1), 1u);
  EXPECT_EQ(PeerShare(5000, 100, 100), 5000u);
}

// The limit that a service manager gives: 1024, of which it may have more.
TEST(StartupTest, RaisesTheSoftLimitOfOpenFiles) {
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit low = before;
  low.rlim_cur = 1024;
  if (before.rlim_max < DescriptorsFor(500)) {
    GTEST_SKIP() << "the hard limit of open files is " << before.rlim_max;
  }
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  {
    TestServer server([](ServerOptions& o) { o.max_connections = 500; });
    rlimit now = {};
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &now), 0);
    EXPECT_EQ(now.rlim_cur, DescriptorsFor(500));
    EXPECT_TRUE(ServesOn(server));
  }
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST(StartupTest, SaysForHowManyConnectionsThereAreDescriptors) {
  rlimit limit = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  // The log says so, however many there may be.
  if (limit.rlim_max >= 900'000) {
    GTEST_SKIP() << "the hard limit of open files is " << limit.rlim_max;
  }
  std::ostringstream log;
  {
    TestServer server(
        [](ServerOptions& o) {
          o.max_connections = 1'000'000;
          o.log_level = LogLevel::kWarning;
        },
        log);
    EXPECT_TRUE(ServesOn(server));
  }
  EXPECT_THAT(log.str(), HasSubstr("--max-connections=1000000: there are file "
                                   "descriptors for "));
}

}  // namespace
}  // namespace weir::testing
