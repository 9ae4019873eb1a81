// A model repository in a folder of its own, written by the test.
#pragma once

#include <onnx/onnx_pb.h>

#include <filesystem>
#include <string>

#include "tests/models/onnx_model.h"

namespace weir::testing {

class ModelFolder {
 public:
  std::string path() const { return folder_.path().string(); }

  void Write(const std::string& name, const onnx::ModelProto& model,
             int version = 1) const {
    WriteBytes(name, model.SerializeAsString(), version);
  }
  void WriteBytes(const std::string& name, const std::string& bytes,
                  int version = 1) const {
    folder_.Write(name + "/" + std::to_string(version) + "/model.onnx", bytes);
  }
  // The same model once more.
  void Link(const std::string& from, const std::string& to) const {
    std::filesystem::create_directory_symlink(folder_.path() / from,
                                              folder_.path() / to);
  }
  void WriteFile(const std::string& path, const std::string& bytes) {
    folder_.Write(path, bytes);
  }
  void WriteConfig(const std::string& name, const std::string& text) {
    folder_.Write(name + "/config.pbtxt", text);
  }

 private:
  TempFolder folder_;
};

// y = x, x [N].
inline onnx::ModelProto IdentityModel(int dtype) {
  onnx::ModelProto model = EmptyModel();
  AddValue(model.mutable_graph()->add_input(), "x", dtype, {"N"});
  AddValue(model.mutable_graph()->add_output(), "y", dtype, {"N"});
  AddNode(&model, "Identity", {"x"}, {"y"}, "copy");
  return model;
}

// Models that take two threads the better part of a minute to load, with
// thousands of steps on the way.
inline void WriteManySlowModels(const ModelFolder& folder) {
  constexpr int kNodes = 50'000;
  onnx::ModelProto model = EmptyModel();
  AddValue(model.mutable_graph()->add_input(), "v0", onnx::TensorProto::FLOAT,
           {"N"});
  for (int i = 0; i < kNodes; ++i) {
    AddNode(&model, "Neg", {"v" + std::to_string(i)},
            {"v" + std::to_string(i + 1)});
  }
  AddValue(model.mutable_graph()->add_output(), "v" + std::to_string(kNodes),
           onnx::TensorProto::FLOAT, {"N"});
  folder.Write("slow0", model);
  for (int i = 1; i < 200; ++i)
    folder.Link("slow0", "slow" + std::to_string(i));
}

// y = x[i], x float [N], i int64 [M].
inline onnx::ModelProto GatherModel() {
  onnx::ModelProto model = EmptyModel();
  AddValue(model.mutable_graph()->add_input(), "x", onnx::TensorProto::FLOAT,
           {"N"});
  AddValue(model.mutable_graph()->add_input(), "i", onnx::TensorProto::INT64,
           {"M"});
  AddValue(model.mutable_graph()->add_output(), "y", onnx::TensorProto::FLOAT,
           {"M"});
  AddNode(&model, "Gather", {"x", "i"}, {"y"}, "pick");
  return model;
}

}  // namespace weir::testing
