// Which string of a stranger's message is not UTF-8: protobuf refuses the whole
// message and does not say. Pure; any thread.
#pragma once

#include <google/protobuf/descriptor.h>

#include <optional>
#include <string>
#include <string_view>

namespace weir {

struct BadText {
  std::string path;  // "nodes[2].name"
  std::string text;
};

// The first in `bytes`, which should be a message of `type`; nullopt if there
// is none where it is one.
std::optional<BadText> FindBadText(const google::protobuf::Descriptor& type,
                                   std::string_view bytes);

}  // namespace weir
