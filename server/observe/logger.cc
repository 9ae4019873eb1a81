#include "server/observe/logger.h"

#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>

#include <algorithm>
#include <cctype>
#include <mutex>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "kernels/base/absl_view.h"

namespace weir {
namespace {

constexpr const char* kLevelNames[] = {"debug", "info", "warning", "error"};

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

// A JSON string with its quotes, on one line.
std::string Quoted(std::string_view text) {
  return nlohmann::json(std::string(text))
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Values of text lines are quoted where a reader could mistake them.
std::string Plain(std::string_view text) {
  const bool plain =
      !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
        return c > ' ' && c < 0x7f && c != '"' && c != '=' && c != '\\';
      });
  return plain ? std::string(text) : Quoted(text);
}

// A message is prose: only what would break the line is changed.
std::string OneLine(std::string_view text) {
  const bool one_line = std::all_of(text.begin(), text.end(), [](char c) {
    return static_cast<unsigned char>(c) >= ' ' && c != 0x7f;
  });
  return one_line ? std::string(text) : Quoted(text);
}

std::string Number(double value) { return nlohmann::json(value).dump(); }

std::string ValueText(const LogField& field, bool json) {
  if (const auto* text = std::get_if<std::string_view>(&field.value)) {
    return json ? Quoted(*text) : Plain(*text);
  }
  if (const auto* number = std::get_if<int64_t>(&field.value)) {
    return absl::StrCat(*number);
  }
  return Number(std::get<double>(field.value));
}

// From spdlog, which makes a line at a time, to ours.
class Forward final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit Forward(LogSink* sink) : sink_(sink) {}

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    sink_->Write({line.data(), line.size()});
  }
  void flush_() override {}

  LogSink* const sink_;
};

}  // namespace

const char* LogLevelName(LogLevel level) {
  return kLevelNames[static_cast<size_t>(level)];
}

std::optional<LogLevel> LogLevelFromName(std::string_view name) {
  for (size_t i = 0; i < std::size(kLevelNames); ++i) {
    if (name == kLevelNames[i]) return static_cast<LogLevel>(i);
  }
  return std::nullopt;
}

struct Logger::Impl {
  Impl(LogFormat f, LogSink& to)
      : json(f == LogFormat::kJson),
        sink(to),
        logger("weir", std::make_shared<Forward>(&to)) {
    logger.set_formatter(std::make_unique<spdlog::pattern_formatter>(
        json ? R"({"time":"%Y-%m-%dT%H:%M:%S.%fZ","level":"%l",%v})"
             : "%Y-%m-%dT%H:%M:%S.%fZ %-7l %v",
        spdlog::pattern_time_type::utc));
  }

  const bool json;
  LogSink& sink;
  spdlog::logger logger;
};

Logger::Logger(LogFormat format, LogLevel level, LogSink& sink)
    : impl_(std::make_unique<Impl>(format, sink)) {
  set_level(level);
  sink.OnDropped([this](uint64_t lines) {
    Log(LogLevel::kWarning,
        "log lines were dropped: whoever reads them is too slow",
        {{"count", static_cast<int64_t>(lines)}});
  });
}

Logger::~Logger() { impl_->sink.OnDropped(nullptr); }

bool Logger::enabled(LogLevel level) const {
  return impl_->logger.should_log(ToSpdlog(level));
}

LogLevel Logger::level() const {
  for (LogLevel level :
       {LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarning}) {
    if (enabled(level)) return level;
  }
  return LogLevel::kError;
}

void Logger::set_level(LogLevel level) {
  impl_->logger.set_level(ToSpdlog(level));
}

void Logger::Log(LogLevel level, std::string_view message,
                 absl::Span<const LogField> fields) {
  if (!enabled(level)) return;
  std::string line =
      impl_->json ? "\"message\":" + Quoted(message) : OneLine(message);
  for (const LogField& field : fields) {
    if (impl_->json) {
      absl::StrAppend(&line, ",\"", AbslView(field.name),
                      "\":", ValueText(field, true));
    } else {
      absl::StrAppend(&line, " ", AbslView(field.name), "=",
                      ValueText(field, false));
    }
  }
  impl_->logger.log(ToSpdlog(level), spdlog::string_view_t(line));
}

}  // namespace weir
