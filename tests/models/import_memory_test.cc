// Bytes that a model names and for which there is no memory are a status: a
// server goes on without the model. Allocations of tensors' bytes are refused
// here one after the other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>
#include <string>

#include "server/models/onnx_import.h"
#include "tests/models/onnx_model.h"

namespace {

constexpr size_t kLarge = size_t{1} << 20;

// How many allocations of kLarge and more are still granted.
thread_local int granted = 0;

void* Take(size_t bytes, std::align_val_t alignment) {
  if (bytes >= kLarge && granted-- <= 0) return nullptr;
  const auto unit = static_cast<size_t>(alignment);
  return std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit);
}

}  // namespace

void* operator new[](size_t bytes, std::align_val_t alignment) {
  if (void* const memory = Take(bytes, alignment)) return memory;
  throw std::bad_alloc();
}
void* operator new[](size_t bytes, std::align_val_t alignment,
                     const std::nothrow_t&) noexcept {
  return Take(bytes, alignment);
}
void operator delete[](void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace weir {
namespace {

using ::testing::HasSubstr;
using ::weir::testing::AddModel;
using ::weir::testing::AddNode;
using ::weir::testing::TempFolder;

// Fails as long as an allocation is refused, then succeeds.
void ExpectRefusedUntilGranted(const onnx::ModelProto& model, int allocations,
                               const std::string& named) {
  const TempFolder folder;
  folder.Write("weights.bin", std::string(kLarge + 2, '\x01'));
  const std::string path =
      folder.Write("model.onnx", model.SerializeAsString());
  for (int i = 0; i <= allocations; ++i) {
    granted = i;
    const absl::Status status = ImportOnnxFile(path).status();
    if (i == allocations) {
      EXPECT_TRUE(status.ok()) << status;
      continue;
    }
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(named));
    EXPECT_THAT(std::string(status.message()), HasSubstr("no memory for "));
  }
}

onnx::TensorProto LargeTensor(int type, size_t element) {
  onnx::TensorProto tensor;
  tensor.set_name("weights");
  tensor.set_data_type(type);
  tensor.add_dims(static_cast<int64_t>(kLarge / element));
  return tensor;
}

onnx::TensorProto External(onnx::TensorProto tensor,
                           const std::string& offset) {
  tensor.set_data_location(onnx::TensorProto::EXTERNAL);
  auto* entry = tensor.add_external_data();
  entry->set_key("location");
  entry->set_value("weights.bin");
  entry = tensor.add_external_data();
  entry->set_key("offset");
  entry->set_value(offset);
  return tensor;
}

onnx::ModelProto WithInitializers(
    const std::vector<onnx::TensorProto>& tensors) {
  onnx::ModelProto model = AddModel();
  for (const onnx::TensorProto& tensor : tensors) {
    *model.mutable_graph()->add_initializer() = tensor;
  }
  return model;
}

TEST(ImportMemoryTest, OfExternalDataAndOfACopyOfIt) {
  // Of other tensors' bytes, so that its own do not begin aligned.
  onnx::TensorProto first = LargeTensor(onnx::TensorProto::UINT8, 1);
  first.set_name("first");
  ExpectRefusedUntilGranted(
      WithInitializers(
          {External(first, "0"),
           External(LargeTensor(onnx::TensorProto::FLOAT, 4), "2")}),
      2, "constant \"");
  ExpectRefusedUntilGranted(WithInitializers({External(
                                LargeTensor(onnx::TensorProto::BOOL, 1), "0")}),
                            2, "constant \"weights\"");
}

TEST(ImportMemoryTest, OfRawBytesAndTypedFields) {
  onnx::TensorProto raw = LargeTensor(onnx::TensorProto::BOOL, 1);
  raw.set_raw_data(std::string(kLarge, '\x01'));
  ExpectRefusedUntilGranted(WithInitializers({raw}), 1, "constant \"weights\"");
  onnx::TensorProto typed = LargeTensor(onnx::TensorProto::FLOAT, 4);
  for (size_t i = 0; i < kLarge / 4; ++i) typed.add_float_data(1);
  ExpectRefusedUntilGranted(WithInitializers({typed}), 1,
                            "constant \"weights\"");
}

TEST(ImportMemoryTest, OfAnAttribute) {
  onnx::ModelProto model = AddModel();
  onnx::NodeProto* const node =
      AddNode(&model, "ConstantOfShape", {"b"}, {"z"}, "fill");
  auto* const attribute = node->add_attribute();
  attribute->set_name("value");
  attribute->set_type(onnx::AttributeProto::TENSOR);
  *attribute->mutable_t() =
      External(LargeTensor(onnx::TensorProto::BOOL, 1), "0");
  ExpectRefusedUntilGranted(model, 2, "node \"fill\"");
}

}  // namespace
}  // namespace weir
