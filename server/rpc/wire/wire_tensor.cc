#include "server/rpc/wire/wire_tensor.h"

#include "server/bytes/arena_list.h"
#include "server/rpc/wire/wire_fields.h"

namespace weir {
namespace {

// Samples of one ragged batch.
constexpr size_t kMaxSamples = 65536;

void ReadSampleShape(WireReader& reader, CallArena* arena,
                     std::span<const int64_t>* shape) {
  ArenaList<int64_t> extents(arena);
  while (reader.NextField()) {
    if (reader.number() == 1) {
      ReadExtents(reader, "dims", &extents);
    } else {
      reader.Skip();
    }
  }
  *shape = extents.span();
}

void ReadSpec(WireReader& reader, CallArena* arena, WireTensorSpec* spec) {
  ArenaList<int64_t> shape(arena);
  ArenaList<std::span<const int64_t>> samples(arena);
  while (reader.NextField()) {
    switch (reader.number()) {
      case 1:
        spec->dtype = reader.Int32();
        break;
      case 2:
        ReadExtents(reader, "shape", &shape);
        break;
      case 3:
        spec->layout = reader.Name("layout");
        break;
      case 4:
        if (auto* sample = samples.Add(kMaxSamples)) {
          reader.Message("sample_shapes", samples.size() - 1, [&](WireReader&) {
            ReadSampleShape(reader, arena, sample);
          });
        } else {
          reader.FailTooMany("sample_shapes", kMaxSamples);
        }
        break;
      default:
        reader.Skip();
    }
  }
  spec->shape = shape.span();
  spec->sample_shapes = samples.span();
}

size_t SampleShapeSize(std::span<const int64_t> shape) {
  return PackedFieldSize(1, shape);
}

}  // namespace

void ReadTensorValue(WireReader& reader, CallArena* arena, WireTensor* tensor) {
  bool has_spec = false;
  while (reader.NextField()) {
    switch (reader.number()) {
      case 1:
        if (has_spec) return reader.Fail("a tensor has two specs");
        has_spec = true;
        reader.Message("spec", [&](WireReader&) {
          ReadSpec(reader, arena, &tensor->spec);
        });
        break;
      case 2:
        tensor->source = reader.Bytes();
        break;
      case 3:
        tensor->source = WireTensorNumber{reader.Varint()};
        break;
      case 4: {
        if (std::holds_alternative<WireRegion>(tensor->source)) {
          return reader.Fail("a tensor has two regions");
        }
        WireRegion region;
        reader.Message(
            "region", [&](WireReader&) { ReadRegion(reader, arena, &region); });
        tensor->source = region;
        break;
      }
      default:
        reader.Skip();
    }
  }
}

void ReadRegion(WireReader& reader, CallArena* arena, WireRegion* region) {
  ArenaList<int64_t> strides(arena);
  while (reader.NextField()) {
    switch (reader.number()) {
      case 1:
        region->region = reader.Name("region");
        break;
      case 2:
        region->offset = reader.Varint();
        break;
      case 3:
        region->byte_size = reader.Varint();
        break;
      case 4:
        ReadExtents(reader, "strides", &strides);
        break;
      default:
        reader.Skip();
    }
  }
  region->strides = strides.span();
}

void ReadNamedTensor(WireReader& reader, CallArena* arena, WireTensor* tensor) {
  bool has_value = false;
  while (reader.NextField()) {
    switch (reader.number()) {
      case 1:
        tensor->name = reader.Name("name");
        break;
      case 2:
        if (has_value) return reader.Fail("a named tensor has two values");
        has_value = true;
        reader.Message("value", [&](WireReader&) {
          ReadTensorValue(reader, arena, tensor);
        });
        break;
      default:
        reader.Skip();
    }
  }
}

void ReadNamedSpec(WireReader& reader, CallArena* arena, WireTensor* tensor) {
  bool has_spec = false;
  while (reader.NextField()) {
    switch (reader.number()) {
      case 1:
        tensor->name = reader.Name("name");
        break;
      case 2:
        if (has_spec) return reader.Fail("a tensor has two specs");
        has_spec = true;
        reader.Message("spec", [&](WireReader&) {
          ReadSpec(reader, arena, &tensor->spec);
        });
        break;
      default:
        reader.Skip();
    }
  }
}

size_t SpecSize(const WireTensorSpec& spec) {
  size_t size = VarintFieldSize(1, static_cast<uint64_t>(spec.dtype)) +
                PackedFieldSize(2, spec.shape);
  if (!spec.layout.empty()) size += BytesFieldSize(3, spec.layout.size());
  for (std::span<const int64_t> shape : spec.sample_shapes) {
    size += BytesFieldSize(4, SampleShapeSize(shape));
  }
  return size;
}

void WriteSpec(const WireTensorSpec& spec, WireWriter* writer) {
  writer->VarintField(1, static_cast<uint64_t>(spec.dtype));
  WritePacked(2, spec.shape, writer);
  if (!spec.layout.empty()) writer->BytesField(3, spec.layout);
  for (std::span<const int64_t> shape : spec.sample_shapes) {
    writer->BeginBytes(4, SampleShapeSize(shape));
    WritePacked(1, shape, writer);
  }
}

}  // namespace weir
