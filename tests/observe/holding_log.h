// How a test makes a thread of the server hang: in the log line that it writes.
#pragma once

#include <atomic>
#include <ostream>
#include <streambuf>

#include "tests/base/event.h"

namespace weir::testing {

// A log that holds whoever writes to it, once it is told to.
class HoldingLog final : private std::streambuf {
 public:
  HoldingLog() : stream_(this) {}
  std::ostream& stream() { return stream_; }
  std::atomic<bool> holds = false;
  Event held, go_on;

 private:
  std::streamsize xsputn(const char*, std::streamsize size) override {
    if (holds.exchange(false)) {
      held.Set();
      go_on.Wait();
    }
    return size;
  }
  std::ostream stream_;
};

}  // namespace weir::testing
