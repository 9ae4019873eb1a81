#include "server/models/repository.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/backend/devices.h"
#include "kernels/base/error_info.h"
#include "kernels/base/reclaimer.h"
#include "proto/inference/model_config.pb.h"
#include "tests/device/fault_injecting_device.h"
#include "tests/graph/plan_runner.h"
#include "tests/models/onnx_model.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::weir::testing::AddModel;
using ::weir::testing::AddValue;
using ::weir::testing::PlanRunner;
using ::weir::testing::TempFolder;

class RepositoryTest : public ::testing::Test {
 protected:
  std::unique_ptr<ModelRepository> Load(const std::string& within = ".") {
    auto repository = ModelRepository::Open(
        {.root = (folder_.path() / within).lexically_normal().string()},
        device_.get(), registry_.get());
    EXPECT_TRUE(repository.ok()) << repository.status();
    (*repository)->LoadAll();
    return *std::move(repository);
  }

  void WriteModel(const std::string& name, const std::string& version,
                  const onnx::ModelProto& model = AddModel()) {
    folder_.Write(name + "/" + version + "/model.onnx",
                  model.SerializeAsString());
  }

  static std::string Reason(const ModelRepository& repository,
                            const std::string& name) {
    for (const ModelIndexEntry& entry : repository.Index()) {
      if (entry.name == name && entry.state == ModelState::kUnavailable) {
        return entry.reason;
      }
    }
    return "(served)";
  }

  TempFolder folder_;
  std::unique_ptr<OpRegistry> registry_ = MakeOpRegistry();
  std::unique_ptr<Device> device_ = MakeCpuDevice({});
};

// Who drops a plan of a model last may be an I/O thread.
TEST_F(RepositoryTest, ProgramsEndOnAThreadThatMayWait) {
  onnx::ModelProto model = AddModel();
  onnx::TensorProto& constant = *model.mutable_graph()->add_initializer();
  constant.set_name("unread");
  constant.set_data_type(onnx::TensorProto::FLOAT);
  constant.add_dims(1);
  constant.add_float_data(1);
  model.mutable_graph()->add_output()->set_name("unread");
  WriteModel("sum", "1", model);
  FaultInjectingDevice device(MakeCpuDevice({}));
  device.set_takes_copies();
  Reclaimer reclaimer;
  auto repository = *ModelRepository::Open(
      {.root = folder_.path().string(), .reclaim = reclaimer.queue()}, &device,
      registry_.get());
  repository->LoadAll();
  ASSERT_EQ(Reason(*repository, "sum"), "(served)");
  repository = nullptr;
  reclaimer.queue()->Flush();
  EXPECT_NE(device.freed_on(), std::thread::id());
  EXPECT_NE(device.freed_on(), std::this_thread::get_id());
}

TEST_F(RepositoryTest, ServesAModel) {
  WriteModel("sum", "1");
  const auto repository = Load();
  const auto model = repository->Find("sum", "");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->version, "1");
  EXPECT_EQ((*model)->platform, "onnx_weir");
  EXPECT_EQ(DimsString((*model)->inputs[0].shape), "[-1,2]");
  EXPECT_EQ((*model)->outputs[0].dtype, DType::kFloat);
  inference::ModelConfig config;
  ASSERT_TRUE(config.ParseFromString((*model)->config));
  EXPECT_EQ(config.name(), "sum");
  EXPECT_EQ(repository->Find("sum", "1").value(), *model);

  const float x[] = {1, 2};
  const HostTensor input = {DType::kFloat, {1, 2}, x};
  const auto plan = (*model)->program->MakePlan({&input, 1});
  ASSERT_TRUE(plan.ok()) << plan.status();
  PlanRunner run(*device_, **plan);
  ASSERT_TRUE(run.Run({input}).ok());
  EXPECT_THAT(run.Output<float>(0), ElementsAre(11, 22));
}

TEST_F(RepositoryTest, GoodModelsServeBesideBadOnes) {
  WriteModel("good", "1");
  folder_.Write("empty/1/model.onnx", "");
  folder_.Write("corrupt/1/model.onnx", "\x0a\xff garbage");
  onnx::ModelProto cyclic = AddModel();
  cyclic.mutable_graph()->mutable_node(0)->set_input(1, "y");
  WriteModel("cyclic", "1", cyclic);
  onnx::ModelProto odd = AddModel();
  odd.mutable_graph()->mutable_node(0)->set_op_type("Frobnicate");
  WriteModel("odd", "1", odd);
  WriteModel("misfit", "1", AddModel({1, 2, 3}));
  WriteModel("misconfigured", "1");
  folder_.Write("misconfigured/config.pbtxt", "max_batch_size: many");
  std::filesystem::create_directories(folder_.path() / "bare");
  folder_.Write("fileless/1/other.onnx", "x");
  folder_.Write(".git/1/model.onnx", "x");
  folder_.Write("README.md", "not a model");

  const auto repository = Load();
  EXPECT_TRUE(repository->Find("good", "").ok());
  EXPECT_THAT(Reason(*repository, "empty"), HasSubstr("empty"));
  EXPECT_THAT(Reason(*repository, "corrupt"), HasSubstr("no ONNX model"));
  EXPECT_THAT(Reason(*repository, "cyclic"), HasSubstr("cycle"));
  EXPECT_THAT(Reason(*repository, "odd"), HasSubstr("Frobnicate"));
  EXPECT_THAT(Reason(*repository, "odd"), HasSubstr("opset 17"));
  EXPECT_THAT(Reason(*repository, "odd"), HasSubstr("cpu"));
  EXPECT_THAT(Reason(*repository, "misfit"), HasSubstr("\"sum\" (Add)"));
  EXPECT_THAT(Reason(*repository, "misconfigured"),
              HasSubstr("config.pbtxt: line 1"));
  EXPECT_THAT(Reason(*repository, "bare"), HasSubstr("no version"));
  EXPECT_THAT(Reason(*repository, "fileless"), HasSubstr("model.onnx"));
  EXPECT_EQ(repository->Index().size(), 9u);

  const absl::Status status = repository->Find("corrupt", "").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(weir::Reason(status), "MODEL_REFUSED");
  EXPECT_THAT(std::string(status.message()), HasSubstr("no ONNX model"));
  EXPECT_EQ(weir::Reason(repository->Find("corrupt", "1").status()),
            "MODEL_REFUSED");
  EXPECT_EQ(weir::Reason(repository->Find("ghost", "").status()),
            "MODEL_NOT_FOUND");
}

// A file that contradicts itself is served by neither of its meanings.
TEST_F(RepositoryTest, OutputsAreWhatTheFileDeclares) {
  const auto declare = [](int dtype, const std::vector<std::string>& dims) {
    onnx::ModelProto model = AddModel();
    model.mutable_graph()->clear_output();
    AddValue(model.mutable_graph()->add_output(), "y", dtype, dims);
    return model;
  };
  constexpr int kFloat = onnx::TensorProto::FLOAT;
  WriteModel("same", "1", declare(kFloat, {"N", "2"}));
  WriteModel("open", "1", declare(kFloat, {"", "M"}));
  WriteModel("narrow", "1", declare(kFloat, {"8", "2"}));
  WriteModel("integers", "1", declare(onnx::TensorProto::INT64, {"N", "2"}));
  WriteModel("wide", "1", declare(kFloat, {"N", "3"}));
  WriteModel("flat", "1", declare(kFloat, {"N"}));
  const auto repository = Load();
  for (const char* name : {"same", "open", "narrow"}) {
    EXPECT_TRUE(repository->Find(name, "").ok()) << Reason(*repository, name);
  }
  EXPECT_THAT(Reason(*repository, "integers"),
              HasSubstr("output \"y\" is float where int64 is declared"));
  EXPECT_THAT(Reason(*repository, "wide"), HasSubstr("output \"y\""));
  EXPECT_THAT(Reason(*repository, "wide"),
              HasSubstr("has shape [N,2] where [N,3] is declared"));
  EXPECT_THAT(Reason(*repository, "flat"), HasSubstr("output \"y\""));
}

// There may be no config.pbtxt, and one may mend it.
TEST_F(RepositoryTest, AnUndeclaredRankIsTheModels) {
  onnx::ModelProto model = AddModel();
  model.mutable_graph()
      ->mutable_input(0)
      ->mutable_type()
      ->mutable_tensor_type()
      ->clear_shape();
  WriteModel("rankless", "1", model);
  WriteModel("told", "1", model);
  folder_.Write("told/config.pbtxt",
                "input { name: \"x\" data_type: TYPE_FP32 dims: [-1, 2] }");
  const auto repository = Load();
  EXPECT_EQ(Reason(*repository, "rankless"),
            "INVALID_ARGUMENT: input \"x\": the model does not declare its "
            "rank; dims in a config.pbtxt in the model's folder would");
  const auto told = repository->Find("told", "");
  ASSERT_TRUE(told.ok()) << told.status();
  EXPECT_EQ(DimsString((*told)->inputs[0].shape), "[-1,2]");
}

// Callers read reasons, and need not know the server's folders.
TEST_F(RepositoryTest, ReasonsNamePlacesInTheRepository) {
  folder_.Write("corrupt/1/model.onnx", "garbage");
  onnx::ModelProto lost = AddModel();
  auto* tensor = lost.mutable_graph()->mutable_initializer(0);
  tensor->clear_float_data();
  tensor->set_data_location(onnx::TensorProto::EXTERNAL);
  auto* location = tensor->add_external_data();
  location->set_key("location");
  location->set_value("weights.bin");
  WriteModel("lost", "1", lost);
  folder_.Write("fileless/1/other.onnx", "x");
  const auto repository = Load();
  EXPECT_THAT(
      Reason(*repository, "corrupt"),
      ::testing::StartsWith("INVALID_ARGUMENT: corrupt/1/model.onnx: "));
  EXPECT_THAT(Reason(*repository, "lost"), HasSubstr("weights.bin"));
  for (const char* name : {"corrupt", "lost", "fileless"}) {
    EXPECT_THAT(Reason(*repository, name),
                ::testing::Not(HasSubstr(folder_.path().string())))
        << name;
  }
}

// Copied over or cut short in place, weights are what they were when the model
// was loaded.
TEST_F(RepositoryTest, AServedModelNeedsItsFilesNoMore) {
  onnx::ModelProto model = AddModel();
  onnx::TensorProto* tensor = model.mutable_graph()->mutable_initializer(0);
  tensor->clear_float_data();
  tensor->set_data_location(onnx::TensorProto::EXTERNAL);
  auto* location = tensor->add_external_data();
  location->set_key("location");
  location->set_value("w.bin");
  WriteModel("sum", "1", model);
  const float weights[] = {10, 20};
  const std::string file = folder_.Write(
      "sum/1/w.bin", {reinterpret_cast<const char*>(weights), sizeof(weights)});
  const auto repository = Load();
  const auto served = repository->Find("sum", "");
  ASSERT_TRUE(served.ok()) << served.status();
  const float x[] = {1, 2};
  const HostTensor input = {DType::kFloat, {1, 2}, x};
  const auto run = [&] {
    const auto plan = (*served)->program->MakePlan({&input, 1});
    ASSERT_TRUE(plan.ok()) << plan.status();
    PlanRunner runner(*device_, **plan);
    ASSERT_TRUE(runner.Run({input}).ok());
    EXPECT_THAT(runner.Output<float>(0), ElementsAre(11, 22));
  };
  run();
  folder_.Write("sum/1/w.bin", std::string(sizeof(weights), '\0'));
  run();
  std::filesystem::resize_file(file, 0);
  run();
}

TEST_F(RepositoryTest, KnowsWhatItDoesNotHave) {
  WriteModel("sum", "1");
  const auto repository = Load();
  EXPECT_EQ(repository->Find("ghost", "").status().code(),
            absl::StatusCode::kNotFound);
  for (const char* version : {"2", "0", "x", "01"}) {
    EXPECT_EQ(repository->Find("sum", version).status().code(),
              absl::StatusCode::kNotFound)
        << version;
  }
  // Who asks for a version wants one of those that there are.
  EXPECT_EQ(repository->Find("sum", "7").status().message(),
            "no model \"sum\" version \"7\"; it has 1");
  EXPECT_EQ(repository->Find("ghost", "7").status().message(),
            "no model \"ghost\" version \"7\"; RepositoryIndex, or \"weir "
            "models\", lists those that there are");
}

// Whoever made the link wanted what is not there to be served.
TEST_F(RepositoryTest, ALinkToNowhereIsARefusedModel) {
  WriteModel("sum", "1");
  std::filesystem::create_directory_symlink("/nowhere/at/all",
                                            folder_.path() / "dangling");
  std::filesystem::create_directory_symlink("/nowhere/at/all",
                                            folder_.path() / "sum" / "2");
  std::filesystem::create_directory_symlink("/nowhere/at/all",
                                            folder_.path() / ".hidden");
  std::filesystem::create_symlink("/nowhere/at/all",
                                  folder_.path() / "sum" / "README");
  folder_.Write("notes.txt", "no model");
  const auto repository = Load();
  EXPECT_TRUE(repository->strays().empty());
  ASSERT_EQ(repository->Index().size(), 2u);
  EXPECT_THAT(Reason(*repository, "dangling"),
              HasSubstr("cannot list dangling: No such file or directory"));
  EXPECT_THAT(Reason(*repository, "sum"), HasSubstr("sum/2/model.onnx"));
}

TEST_F(RepositoryTest, AConfigurationThatLeadsNowhereIsNotPassedOver) {
  WriteModel("sum", "1");
  WriteModel("loop", "1");
  std::filesystem::create_symlink("/nowhere/at/all",
                                  folder_.path() / "sum" / "config.pbtxt");
  std::filesystem::create_symlink("config.pbtxt",
                                  folder_.path() / "loop" / "config.pbtxt");
  const auto repository = Load();
  for (const char* name : {"sum", "loop"}) {
    EXPECT_FALSE(repository->Find(name, "").ok());
    EXPECT_THAT(Reason(*repository, name), HasSubstr("config.pbtxt"));
  }
  EXPECT_TRUE(repository->strays().empty()) << "it is no folder";
}

// The root of an ext4 volume has it, and nobody put it there.
TEST_F(RepositoryTest, PassesOverWhatAFileSystemKeepsForItself) {
  WriteModel("sum", "1");
  std::filesystem::create_directory(folder_.path() / "lost+found");
  std::filesystem::create_directory(folder_.path() / "sum" / "lost+found");
  const auto repository = Load();
  ASSERT_EQ(repository->Index().size(), 1u);
  EXPECT_EQ(repository->Index()[0].name, "sum");
  EXPECT_TRUE(repository->strays().empty());
}

// One folder too high, or two.
TEST_F(RepositoryTest, SaysWhereAFileBelongsThatLiesBesideItsFolder) {
  WriteModel("sum", "1");
  std::filesystem::create_directory(folder_.path() / "digits");
  std::filesystem::create_directory(folder_.path() / "digits" / "a.onnx");
  folder_.Write("digits/net.onnx", "a model");
  folder_.Write("digits/.hidden.onnx", "");
  folder_.Write("b.onnx", "a model");
  folder_.Write("a.onnx", "a model");
  folder_.Write(".c.onnx", "");
  folder_.Write("onnx", "");
  folder_.Write("notes.txt", "");
  const auto repository = Load();
  EXPECT_THAT(repository->loose_files(), ElementsAre("a.onnx", "b.onnx"));
  EXPECT_EQ(repository->Index().size(), 2u);
  std::filesystem::remove(folder_.path() / "digits" / "a.onnx");
  EXPECT_THAT(
      Reason(*Load(), "digits"),
      HasSubstr("the model's folder has no version folder (\"1\", \"2\", "
                "...); \"net.onnx\" lies in it: move it to "
                "digits/1/model.onnx"));
}

TEST_F(RepositoryTest, KnowsAModelThatIsTakenForARepository) {
  WriteModel("sum", "1");
  WriteModel("sum", "2");
  const auto repository = Load("sum");
  for (const char* version : {"1", "2"}) {
    EXPECT_THAT(
        Reason(*repository, version),
        HasSubstr("; --model-repository wants the folder above \"sum\""));
  }
}

// A model whose name is a number, among others; unless the folder is a model.
TEST_F(RepositoryTest, NamesBothPlacesWhereThereAreOtherModels) {
  WriteModel("sum", "1");
  folder_.Write("2/model.onnx", "a model");
  folder_.Write("3/net.onnx", "a model");
  const auto repository = Load();
  const std::string root = folder_.path().filename().string();
  for (const auto& [name, file] :
       {std::pair("2", "model.onnx"), std::pair("3", "net.onnx")}) {
    EXPECT_THAT(
        Reason(*repository, name),
        HasSubstr(absl::StrCat(
            "; \"", file, "\" lies in it: move it to ", name,
            "/1/model.onnx; or, if \"", root,
            "\" is the model, --model-repository wants the folder above it")));
  }
}

TEST_F(RepositoryTest, SaysUnderWhichNameAModelsFileIsLookedFor) {
  folder_.Write("sum/1/net.onnx", AddModel().SerializeAsString());
  folder_.Write("empty/1/notes.txt", "no model");
  folder_.Write("broken/1/model.onnx", "no model");
  const auto repository = Load();
  EXPECT_THAT(
      Reason(*repository, "sum"),
      HasSubstr("sum/1/model.onnx: No such file or directory; \"net.onnx\" is "
                "there: rename it, or write \"default_model_filename: "
                "'net.onnx'\" into sum/config.pbtxt"));
  for (const char* name : {"empty", "broken"}) {
    EXPECT_EQ(Reason(*repository, name).find("default_model_filename"),
              std::string::npos)
        << name;
  }
  folder_.Write("sum/config.pbtxt", "default_model_filename: 'net.onnx'");
  EXPECT_TRUE(Load()->Find("sum", "").ok());
  // And the way there names the file that the configuration does.
  folder_.Write("flat/config.pbtxt", "default_model_filename: 'net.onnx'");
  folder_.Write("flat/net.onnx", "a model");
  EXPECT_THAT(Reason(*Load(), "flat"), HasSubstr("move it to flat/1/net.onnx"));
}

TEST_F(RepositoryTest, ServesTheLatestVersion) {
  WriteModel("sum", "2");
  WriteModel("sum", "10");
  WriteModel("sum", "draft");
  WriteModel("sum", "011");
  const auto repository = Load();
  EXPECT_EQ((*repository->Find("sum", ""))->version, "10");
  EXPECT_EQ(repository->Find("sum", "2").status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(repository->Index().size(), 1u);
}

// Whoever put it there learns why nobody gets it, and what to do.
TEST_F(RepositoryTest, NamesTheVersionsThatThePolicyLeavesOut) {
  for (const char* version : {"1", "2", "10"}) WriteModel("sum", version);
  auto repository = Load();
  const absl::Status left_out = repository->Find("sum", "2").status();
  EXPECT_EQ(left_out.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(left_out.message(),
            "model \"sum\" version 2 lies in the repository and is not served: "
            "its version policy chooses 10; to serve all, write "
            "\"version_policy { all {} }\" into sum/config.pbtxt");
  EXPECT_EQ(weir::Reason(left_out), "MODEL_NOT_FOUND");
  EXPECT_EQ(repository->Find("sum", "3").status().message(),
            "no model \"sum\" version \"3\"; it has 10");

  folder_.Write("sum/config.pbtxt",
                "version_policy { specific { versions: [1, 7] } }");
  repository = Load();
  EXPECT_THAT(std::string(repository->Find("sum", "2").status().message()),
              HasSubstr("its version policy chooses 1, 7; "));
}

// Its configuration cannot tell which versions it leaves out, and is what to
// mend.
TEST_F(RepositoryTest, AnUnreadableConfigurationRefusesEveryVersion) {
  for (const char* version : {"1", "2"}) WriteModel("sum", version);
  folder_.Write("sum/config.pbtxt", "version_policy { all {} } max_batch: 1");
  const auto repository = Load();
  for (const char* version : {"", "1", "2"}) {
    const absl::Status refused = repository->Find("sum", version).status();
    EXPECT_EQ(weir::Reason(refused), "MODEL_REFUSED") << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("max_batch"));
  }
  EXPECT_EQ(weir::Reason(repository->Find("sum", "3").status()),
            "MODEL_NOT_FOUND");
}

TEST_F(RepositoryTest, FollowsTheVersionPolicy) {
  for (const char* version : {"1", "2", "10"}) WriteModel("sum", version);
  folder_.Write("sum/config.pbtxt", "version_policy { all {} }");
  auto repository = Load();
  std::vector<std::string> versions;
  for (const ModelIndexEntry& entry : repository->Index()) {
    versions.push_back(entry.version);
    EXPECT_EQ(entry.state, ModelState::kReady);
  }
  EXPECT_THAT(versions, ElementsAre("1", "2", "10"));
  EXPECT_EQ((*repository->Find("sum", "2"))->version, "2");

  folder_.Write("sum/config.pbtxt",
                "version_policy { specific { versions: [2, 7] } }");
  repository = Load();
  EXPECT_EQ((*repository->Find("sum", ""))->version, "2");
  const absl::Status absent = repository->Find("sum", "7").status();
  EXPECT_EQ(absent.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(absent.message()), HasSubstr("no folder"));
}

TEST_F(RepositoryTest, TheLatestReadyVersionServes) {
  WriteModel("sum", "1");
  folder_.Write("sum/2/model.onnx", "garbage");
  folder_.Write("sum/config.pbtxt",
                "version_policy { latest { num_versions: 2 } }");
  const auto repository = Load();
  EXPECT_EQ((*repository->Find("sum", ""))->version, "1");
}

TEST_F(RepositoryTest, TakesTheConfiguredFile) {
  folder_.Write("sum/1/net.onnx", AddModel().SerializeAsString());
  folder_.Write("sum/config.pbtxt",
                "default_model_filename: \"net.onnx\" max_batch_size: 16");
  const auto repository = Load();
  ASSERT_TRUE(repository->Find("sum", "").ok());
  EXPECT_EQ((*repository->Find("sum", ""))->max_batch_size, 16);
}

TEST_F(RepositoryTest, LoadsManyModels) {
  for (int i = 0; i < 40; ++i) {
    WriteModel("model" + std::to_string(i), "1");
  }
  const auto repository = Load();
  EXPECT_EQ(repository->Index().size(), 40u);
  for (const ModelIndexEntry& entry : repository->Index()) {
    EXPECT_EQ(entry.state, ModelState::kReady) << entry.reason;
  }
}

TEST_F(RepositoryTest, MayBeReadWhileItLoads) {
  for (int i = 0; i < 10; ++i) {
    WriteModel("model" + std::to_string(i), "1");
  }
  auto repository = *ModelRepository::Open({.root = folder_.path().string()},
                                           device_.get(), registry_.get());
  EXPECT_EQ(repository->Find("model0", "").status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(repository->Index().size(), 10u);
  std::thread reader([&] {
    while (!repository->Find("model9", "").ok()) std::this_thread::yield();
  });
  repository->LoadAll();
  reader.join();
}

TEST_F(RepositoryTest, StoppedItLoadsNothingMore) {
  WriteModel("model", "1");
  auto repository = *ModelRepository::Open({.root = folder_.path().string()},
                                           device_.get(), registry_.get());
  repository->StopLoading();
  repository->LoadAll();
  ASSERT_EQ(repository->Index().size(), 1u);
  EXPECT_EQ(repository->Index()[0].state, ModelState::kLoading);
}

TEST_F(RepositoryTest, NeedsAFolder) {
  EXPECT_EQ(ModelRepository::Open({.root = "/no/such/folder"}, device_.get(),
                                  registry_.get())
                .status()
                .code(),
            absl::StatusCode::kNotFound);
  const auto none = ModelRepository::Open({}, device_.get(), registry_.get());
  ASSERT_TRUE(none.ok());
  (*none)->LoadAll();
  EXPECT_TRUE((*none)->Index().empty());
}

}  // namespace
}  // namespace weir
