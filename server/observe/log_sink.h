// Where log lines go. Thread-safe; outlives the logger.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

namespace weir {

class LogSink {
 public:
  virtual ~LogSink() = default;

  // A line with its end. A sink that cannot take it now drops and counts it.
  virtual void Write(std::string_view line) = 0;
  // Lines dropped since the beginning.
  virtual uint64_t dropped() const { return 0; }
  // `tell` is called, on a thread of the sink, with the number of lines that
  // were dropped since it was called before, once there is room again; it may
  // Write. Null: nobody is told any more, and no call is running.
  virtual void OnDropped(std::function<void(uint64_t)> /*tell*/) {}
};

}  // namespace weir
