// The messages of weir.v1 that carry or describe a tensor (NamedTensor,
// TensorValue, TensorSpec, RegionReference), for those that hold them: tensor
// data stays in the received slices. Pure functions, any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <variant>

#include "server/bytes/byte_view.h"
#include "server/bytes/call_arena.h"
#include "server/rpc/wire/wire_reader.h"
#include "server/rpc/wire/wire_writer.h"

namespace weir {

// Enumerations are their numbers on the wire, not checked.

struct WireRegion {
  std::string_view region;
  uint64_t offset = 0;
  uint64_t byte_size = 0;
  std::span<const int64_t> strides;
};

struct WireTensorSpec {
  int32_t dtype = 0;
  std::span<const int64_t> shape;
  std::string_view layout;
  std::span<const std::span<const int64_t>> sample_shapes;
};

struct WireTensorNumber {
  uint64_t number = 0;
};

struct WireTensor {
  std::string_view name;
  WireTensorSpec spec;
  std::variant<std::monostate, ByteView, WireTensorNumber, WireRegion> source;
};

// The current message is a RegionReference, a TensorValue (which leaves the
// tensor without a name), a NamedTensor, a NamedTensorSpec (without a source).
// What protobuf would merge is refused.
void ReadRegion(WireReader& reader, CallArena* arena, WireRegion* region);
void ReadTensorValue(WireReader& reader, CallArena* arena, WireTensor* tensor);
void ReadNamedTensor(WireReader& reader, CallArena* arena, WireTensor* tensor);
void ReadNamedSpec(WireReader& reader, CallArena* arena, WireTensor* tensor);

// A TensorSpec, without tag and length.
size_t SpecSize(const WireTensorSpec& spec);
void WriteSpec(const WireTensorSpec& spec, WireWriter* writer);

}  // namespace weir
