// One line per event, as text or JSON, to a sink (standard error in the
// server). A line that the level filters costs one relaxed load if the caller
// asks enabled() first. When the sink has dropped lines, a line says how many.
// Thread-safe.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "absl/types/span.h"
#include "server/observe/log_sink.h"

namespace weir {

enum class LogLevel : uint8_t { kDebug, kInfo, kWarning, kError };
enum class LogFormat : uint8_t { kText, kJson };

// "debug", "info", "warning", "error".
const char* LogLevelName(LogLevel level);
std::optional<LogLevel> LogLevelFromName(std::string_view name);

// A value beside the message: "method=ModelInfer", or a member of the JSON
// object. Strings may hold any bytes: what is not UTF-8 is replaced.
struct LogField {
  std::string_view name;
  std::variant<std::string_view, int64_t, double> value;
};

class Logger {
 public:
  Logger(LogFormat format, LogLevel level, LogSink& sink);
  ~Logger();
  Logger(const Logger&) = delete;
  Logger& operator=(const Logger&) = delete;

  bool enabled(LogLevel level) const;
  LogLevel level() const;
  void set_level(LogLevel level);

  // Nothing if the level filters it.
  void Log(LogLevel level, std::string_view message,
           absl::Span<const LogField> fields);
  void Log(LogLevel level, std::string_view message,
           std::initializer_list<LogField> fields = {}) {
    Log(level, message, absl::MakeConstSpan(fields.begin(), fields.size()));
  }

 private:
  struct Impl;  // keeps the logging library out of this header
  std::unique_ptr<Impl> impl_;
};

}  // namespace weir
