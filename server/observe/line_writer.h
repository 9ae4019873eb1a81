// Writes lines to a descriptor (standard error in the server) on a thread of
// its own, so that whoever has a line never waits for whoever reads it. Lines
// that wait are bounded; what has no room is dropped and counted. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <thread>

#include "absl/time/time.h"
#include "server/observe/log_sink.h"

namespace weir {

class LineWriter final : public LogSink {
 public:
  static constexpr size_t kMaxBytes = size_t{4} << 20;
  // What a reader that stalls may take of the process's last moments.
  static constexpr absl::Duration kPatience = absl::Seconds(1);

  // `fd` stays open for as long as the process lives. Lines of more than
  // `max_bytes` together do not wait.
  explicit LineWriter(int fd, size_t max_bytes = kMaxBytes);
  // Flushes. A thread that a stalled reader holds is left behind.
  ~LineWriter() override;
  LineWriter(const LineWriter&) = delete;
  LineWriter& operator=(const LineWriter&) = delete;

  void Write(std::string_view line) override;
  uint64_t dropped() const override;
  void OnDropped(std::function<void(uint64_t)> tell) override;

  // Waits until no line waits, for kPatience at most; false if some still do.
  bool Flush();

 private:
  struct State;

  // Shared with the thread, which may outlive the object.
  const std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace weir
