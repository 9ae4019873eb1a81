// Messages of weir.v1 as people read them: the text format, but the values of
// enumerations without the prefix that makes them unique on the wire
// (COMPLETED, not WORK_STATE_COMPLETED), and times and bytes with their units
// ("queue: 7.98 ms", not "queue_ns: 7976836"). Pure; any thread.
#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <string>

namespace weir::client {

// One field a line, as TextFormat prints it.
std::string MessageText(const google::protobuf::Message& message);

// The name of a value without its prefix; the number if there is no such value.
std::string EnumText(const google::protobuf::EnumDescriptor& type, int number);
template <typename Enum>
std::string EnumText(Enum value) {
  return EnumText(*google::protobuf::GetEnumDescriptor<Enum>(), value);
}

}  // namespace weir::client
