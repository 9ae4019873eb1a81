// What a server does with the models that it finds.
#include <gmock/gmock.h>

#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "client/cpp/client.h"
#include "tests/server/model_folder.h"
#include "tests/server/server_fixture.h"

namespace weir::testing {
namespace {

using ::testing::HasSubstr;

inference::ModelInferRequest InferOn(const std::string& model) {
  inference::ModelInferRequest request;
  request.set_model_name(model);
  AddInput(&request, "x", "FP32", {2}, Bytes<float>({1, 2}));
  return request;
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
  TestServer server(
      [&](ServerOptions& o) {
        o.model_repository = models.path();
        o.log_level = LogLevel::kWarning;
      },
      log);
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
  EXPECT_THAT(entries["unknown/1"].second, HasSubstr("Unheard"));

  // A bad model has a precise answer, and a good version of it serves.
  const grpc::Status refused = Infer(server, InferOn("garbage")).status;
  EXPECT_TRUE(Refused(refused, grpc::StatusCode::UNAVAILABLE, "garbage"));
  EXPECT_TRUE(Infer(server, InferOn("half")).status.ok());
  client::Client client({.address = server.address()});
  EXPECT_TRUE(*client.IsServing("model/good"));
  EXPECT_TRUE(client.IsServing("model/half").value_or(false));
  EXPECT_FALSE(client.IsServing("model/garbage").value_or(false));
  EXPECT_TRUE(*client.IsServing());
  EXPECT_TRUE(ServesOn(server));
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
  TestServer server(
      [&](ServerOptions& o) {
        o.model_repository = models.path();
        o.log_level = LogLevel::kWarning;
      },
      log);
  EXPECT_EQ(server.server().models_ready(), 2u);
  EXPECT_THAT(
      log.str(),
      AllOf(HasSubstr("model tuned version 1"), HasSubstr("dynamic_batching"),
            HasSubstr("model_warmup"), HasSubstr("instance_group.count 4"),
            HasSubstr("parameters"), ::testing::Not(HasSubstr("plain"))));
  EXPECT_TRUE(Infer(server, InferOn("tuned")).status.ok());
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
  options.device = "cuda:99";
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
  TestServer server(
      [&](ServerOptions& o) {
        o.model_repository = models.path();
        o.log_level = LogLevel::kWarning;
      },
      log);
  EXPECT_EQ(server.server().models_ready(), 0u);
  EXPECT_THAT(log.str(), HasSubstr("no models in it"));
  EXPECT_THAT(log.str(), HasSubstr("NAME/VERSION/model.onnx"));
}

}  // namespace
}  // namespace weir::testing
