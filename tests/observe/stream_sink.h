// A sink into a stream, in the caller's thread: for those who read the stream
// themselves.
#pragma once

#include <ostream>
#include <string_view>

#include "kernels/base/mutex.h"
#include "server/observe/log_sink.h"

namespace weir::testing {

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

}  // namespace weir::testing
