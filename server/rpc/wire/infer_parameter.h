// inference.InferParameter, of ModelInferRequest, its tensors and
// ModelInferResponse, without protobuf objects. Pure functions, any thread.
#pragma once

#include <cstdint>
#include <string_view>
#include <variant>

#include "server/bytes/arena_list.h"
#include "server/rpc/wire/wire_reader.h"
#include "server/rpc/wire/wire_writer.h"

namespace weir {

// An InferParameter with its name; monostate if no value was chosen.
struct InferParameter {
  std::string_view name;
  std::variant<std::monostate, bool, int64_t, std::string_view, double,
               uint64_t>
      value;
};

// Of a string_param.
inline constexpr size_t kMaxStringParameterBytes = 1024;

// Reads an entry of map<string, InferParameter>, the current field, into `list`
// of at most `limit`.
void ReadParameter(WireReader& reader, size_t limit,
                   ArenaList<InferParameter>* list);

// The bytes of such an entry, without tag and length.
size_t ParameterSize(const InferParameter& parameter);
void WriteParameter(const InferParameter& parameter, uint32_t number,
                    WireWriter* writer);

}  // namespace weir
