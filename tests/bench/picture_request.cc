#include "tests/bench/picture_request.h"

#include <cstdint>
#include <initializer_list>

namespace weir::bench {
namespace {

constexpr int kWidth = 640, kHeight = 480;

v1::Node* AddNode(v1::GraphDefinition* graph, const char* op, const char* in,
                  const char* out) {
  v1::Node* node = graph->add_nodes();
  node->set_name(op);
  node->set_domain("weir");
  node->set_op(op);
  node->add_inputs(in);
  node->add_outputs(out);
  return node;
}

void SetFloat(v1::Node* node, const char* name, float value) {
  v1::Attribute* attribute = node->add_attributes();
  attribute->set_name(name);
  attribute->set_f(value);
}

void SetInt(v1::Node* node, const char* name, int64_t value) {
  v1::Attribute* attribute = node->add_attributes();
  attribute->set_name(name);
  attribute->set_i(value);
}

void SetFloats(v1::Node* node, const char* name,
               std::initializer_list<float> values) {
  v1::Attribute* attribute = node->add_attributes();
  attribute->set_name(name);
  for (float value : values) attribute->mutable_floats()->add_values(value);
}

}  // namespace

v1::EvaluateRequest PictureEvaluation() {
  v1::EvaluateRequest request;
  v1::GraphDefinition* graph = request.mutable_graph()->mutable_definition();
  graph->set_opset(17);
  v1::GraphInput* input = graph->add_inputs();
  input->set_name("picture");
  input->mutable_spec()->set_dtype(v1::DATA_TYPE_UINT8);
  for (int64_t extent : {-1, -1, 3}) input->mutable_spec()->add_shape(extent);
  graph->add_outputs("planes");
  SetFloat(AddNode(graph, "Resize", "picture", "resized"), "resize_shorter",
           256);
  v1::Node* crop = AddNode(graph, "Crop", "resized", "cropped");
  SetFloat(crop, "crop_w", 224);
  SetFloat(crop, "crop_h", 224);
  SetInt(AddNode(graph, "Flip", "cropped", "mirrored"), "horizontal", 1);
  v1::Node* normalize = AddNode(graph, "Normalize", "mirrored", "planes");
  SetFloats(normalize, "mean", {123.675f, 116.28f, 103.53f});
  SetFloats(normalize, "stddev", {58.395f, 57.12f, 57.375f});
  v1::Attribute* layout = normalize->add_attributes();
  layout->set_name("output_layout");
  layout->set_s("CHW");

  v1::NamedTensor* picture = request.add_inputs();
  picture->set_name("picture");
  v1::TensorSpec* spec = picture->mutable_value()->mutable_spec();
  spec->set_dtype(v1::DATA_TYPE_UINT8);
  for (int64_t extent : {kHeight, kWidth, 3}) spec->add_shape(extent);
  std::string* pixels = picture->mutable_value()->mutable_raw();
  pixels->resize(size_t{kWidth} * kHeight * 3);
  uint32_t state = 1;
  for (char& pixel : *pixels) {
    state = state * 1664525u + 1013904223u;
    pixel = static_cast<char>(state >> 24);
  }
  request.set_mode(v1::EVAL_MODE_SYNC_FULL);
  return request;
}

std::string PictureRequest() { return PictureEvaluation().SerializeAsString(); }

}  // namespace weir::bench
