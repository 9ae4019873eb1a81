// Where log lines go. Thread-safe; outlives the logger.
#pragma once

#include <cstdint>
#include <functional>
#include <ostream>
#include <string_view>

#include "kernels/base/mutex.h"

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

// Into a stream, in the caller's thread: for those who read the stream
// themselves.
class StreamSink final : public LogSink {
 public:
  explicit StreamSink(std::ostream& out) : out_(out) {}

  void Write(std::string_view line) override {
    const MutexLock lock(&mu_);
    out_.write(line.data(), static_cast<std::streamsize>(line.size()));
    out_.flush();
  }

 private:
  Mutex mu_;
  std::ostream& out_ WEIR_GUARDED_BY(mu_);
};

}  // namespace weir
