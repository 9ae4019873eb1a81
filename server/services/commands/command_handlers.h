// The commands of weir.v1.Command: one handler each, for whatever runs them.
// Used by the I/O threads; outlives the transport.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "server/rpc/method_table.h"
#include "server/services/service_context.h"

namespace weir {

// So many that are done at once, one after the other, before the thread sees to
// its other calls.
inline constexpr size_t kCommandsInARow = 32;

// INVALID_ARGUMENT, for this field: no command is set, or an unknown one.
absl::Status NoSuchCommand(std::string_view field, uint32_t number);

class CommandHandlers {
 public:
  explicit CommandHandlers(ServiceContext* context);

  // Before any is found; each number once.
  void Add(uint32_t number, MethodHandler handler) {
    handlers_.at(number) = std::move(handler);
  }

  // Of the command with this number in weir.v1.Command.command; its reply is
  // the result with the same number in weir.v1.CommandResult.result. Null:
  // there is none.
  const MethodHandler* Find(uint32_t number) const {
    return number < handlers_.size() && handlers_[number] != nullptr
               ? &handlers_[number]
               : nullptr;
  }

 private:
  static constexpr size_t kNumbers = 64;
  std::array<MethodHandler, kNumbers> handlers_;
};

}  // namespace weir
