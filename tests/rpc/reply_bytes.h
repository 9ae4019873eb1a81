// The bytes that a reply will send.
#pragma once

#include <string>

#include "server/rpc/reply_buffer.h"

namespace weir {

inline std::string ReplyBytes(ReplyBuffer& reply) {
  std::string bytes;
  for (size_t i = 0; i < reply.slice_count(); ++i) {
    const grpc_slice& slice = reply.slices()[i];
    bytes.append(reinterpret_cast<const char*>(GRPC_SLICE_START_PTR(slice)),
                 GRPC_SLICE_LENGTH(slice));
  }
  return bytes;
}

}  // namespace weir
