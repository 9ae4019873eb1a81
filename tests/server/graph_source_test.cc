#include "server/services/graph_source.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace weir {
namespace {

absl::Status ChargeNothing(void*, size_t bytes) {
  return absl::ResourceExhaustedError(std::to_string(bytes));
}

BytePiece Piece(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

// A model may be as large as a message; it is named where it lies.
TEST(GraphSourceTest, AModelIsNotCopiedToBeFound) {
  const std::string model(8 << 20, 'm');
  const std::string_view bytes = model;
  const BytePiece slices[] = {Piece(bytes.substr(0, 1000)),
                              Piece(bytes.substr(1000))};
  CallArena arena(&ChargeNothing, nullptr);
  const ProgramKey key(WireOnnxModel{ByteView(slices, model.size())}, {},
                       &arena);
  EXPECT_FALSE(arena.refused()) << arena.refusal();
  EXPECT_GE(key.size(), model.size());
  const auto copy = key.Copy();
  EXPECT_EQ(copy->size(), key.size());
  EXPECT_TRUE(copy->ends_with(model));
}

TEST(GraphSourceTest, KindAndInputsArePartOfTheName) {
  const std::string bytes = "the same bytes";
  const BytePiece slices[] = {Piece(bytes)};
  const ByteView view(slices, bytes.size());
  CallArena arena;
  WireTensor input;
  const auto name = [&](const WireGraph& graph, int32_t dtype) {
    input.spec.dtype = dtype;
    return *ProgramKey(graph, {&input, 1}, &arena).Copy();
  };
  const WireGraph onnx = WireOnnxModel{view};
  const WireGraph definition = WireGraphDefinition{view};
  EXPECT_EQ(name(definition, 1), name(definition, 1));
  EXPECT_NE(name(definition, 1), name(definition, 2));
  EXPECT_NE(name(definition, 1), name(onnx, 1));
  // A model declares its inputs itself.
  EXPECT_EQ(name(onnx, 1), name(onnx, 2));
}

}  // namespace
}  // namespace weir
