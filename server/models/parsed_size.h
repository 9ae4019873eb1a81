// How much memory protobuf would take for a stranger's message, told from its
// bytes before it is parsed: two bytes can make an object of hundreds. Fields
// that protobuf keeps without knowing them count too: of another number or wire
// type, in groups, of a value that their enum does not have. What the message's
// strings hold is left out, as it is no larger than the bytes. Pure; any
// thread.
#pragma once

#include <google/protobuf/descriptor.h>

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"

namespace weir {

// Far more than the largest graph that is accepted has.
inline constexpr int64_t kMaxParsedBytes = int64_t{256} << 20;

// At least the bytes of objects that parsing makes, counted until `enough`, or
// until the bytes are no message of that type any more.
int64_t ParsedBytes(const google::protobuf::Descriptor& type,
                    std::string_view bytes, int64_t enough);

// RESOURCE_EXHAUSTED, reason GRAPH_TOO_LARGE, beyond kMaxParsedBytes.
absl::Status CheckParsedSize(const google::protobuf::Descriptor& type,
                             std::string_view bytes);

}  // namespace weir
