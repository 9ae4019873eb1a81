// The settings of a context between the wire and what they are: for whatever
// makes or changes one. Pure functions, any thread.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/eval/engine.h"
#include "kernels/eval/rng.h"
#include "proto/weir/v1/command.pb.h"
#include "server/spaces/kept_context.h"

namespace weir {

// What a message wishes, of a context on `engine`, put into `settings`; what it
// leaves out stays. `Request` is a ContextCreate or a ContextUpdate. Errors
// name the field.
template <typename Request>
absl::Status ReadSettings(Engine& engine, const Request& request,
                          ContextSettings* settings);
extern template absl::Status ReadSettings(Engine&, const v1::ContextCreate&,
                                          ContextSettings*);
extern template absl::Status ReadSettings(Engine&, const v1::ContextUpdate&,
                                          ContextSettings*);
// The same of settings that were exported.
absl::Status ReadSettings(Engine& engine, const v1::ContextSettings& from,
                          ContextSettings* settings);

// A state as it is exported, and what it says. Errors as ContextImport.state
// has them, with the field.
std::string ExportState(const v1::ContextSettings& settings);
absl::StatusOr<v1::ContextSettings> ReadState(const std::string& state);

v1::ContextSettings SettingsToProto(const ContextSettings& settings,
                                    const RngState& rng);

}  // namespace weir
