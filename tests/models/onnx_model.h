// ONNX models by hand, for the tests of the importer and the repository.
#pragma once

#include <onnx/onnx_pb.h>

#include <string>
#include <vector>

#include "tests/models/temp_folder.h"

namespace weir::testing {

inline void AddValue(onnx::ValueInfoProto* value, const std::string& name,
                     int dtype, const std::vector<std::string>& dims) {
  value->set_name(name);
  auto* type = value->mutable_type()->mutable_tensor_type();
  type->set_elem_type(dtype);
  auto* shape = type->mutable_shape();
  for (const std::string& dim : dims) {
    auto* to = shape->add_dim();
    if (dim.empty()) continue;
    if (isdigit(dim[0]) || dim[0] == '-') {
      to->set_dim_value(std::stoll(dim));
    } else {
      to->set_dim_param(dim);
    }
  }
}

inline onnx::NodeProto* AddNode(onnx::ModelProto* model, const std::string& op,
                                const std::vector<std::string>& inputs,
                                const std::vector<std::string>& outputs,
                                const std::string& name = "") {
  onnx::NodeProto* node = model->mutable_graph()->add_node();
  node->set_op_type(op);
  node->set_name(name);
  for (const std::string& input : inputs) node->add_input(input);
  for (const std::string& output : outputs) node->add_output(output);
  return node;
}

// y = OP(x) of another domain than ONNX's, x and y float [N].
inline onnx::NodeProto* AddForeignNode(onnx::ModelProto* model,
                                       const std::string& domain,
                                       const std::string& op) {
  auto* import = model->add_opset_import();
  import->set_domain(domain);
  import->set_version(1);
  AddValue(model->mutable_graph()->add_input(), "x", onnx::TensorProto::FLOAT,
           {"N"});
  AddValue(model->mutable_graph()->add_output(), "y", onnx::TensorProto::FLOAT,
           {"N"});
  onnx::NodeProto* node = AddNode(model, op, {"x"}, {"y"});
  node->set_domain(domain);
  return node;
}

inline onnx::TensorProto* AddFloats(onnx::ModelProto* model,
                                    const std::string& name,
                                    const std::vector<float>& values) {
  onnx::TensorProto* tensor = model->mutable_graph()->add_initializer();
  tensor->set_name(name);
  tensor->set_data_type(onnx::TensorProto::FLOAT);
  tensor->add_dims(static_cast<int64_t>(values.size()));
  for (float value : values) tensor->add_float_data(value);
  return tensor;
}

inline onnx::ModelProto EmptyModel(int opset = 17) {
  onnx::ModelProto model;
  model.set_ir_version(8);
  auto* import = model.add_opset_import();
  import->set_domain("");
  import->set_version(opset);
  model.mutable_graph()->set_name("test");
  return model;
}

// y = x + b, x float [N,2].
inline onnx::ModelProto AddModel(std::vector<float> b = {10, 20}) {
  onnx::ModelProto model = EmptyModel();
  AddValue(model.mutable_graph()->add_input(), "x", onnx::TensorProto::FLOAT,
           {"N", "2"});
  AddValue(model.mutable_graph()->add_output(), "y", onnx::TensorProto::FLOAT,
           {"N", "2"});
  AddFloats(&model, "b", b);
  AddNode(&model, "Add", {"x", "b"}, {"y"}, "sum");
  return model;
}

}  // namespace weir::testing
