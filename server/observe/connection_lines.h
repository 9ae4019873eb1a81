// Lines about connections that were turned away or cut: whoever is sees a
// closed socket and no word of why. For one thread, which writes now and then.
#pragma once

#include <cstddef>

#include "server/observe/logger.h"
#include "server/rpc/frame_guard.h"
#include "server/rpc/listener.h"

namespace weir {

class ConnectionLines {
 public:
  // What --max-connections and --max-peer-connections come to.
  ConnectionLines(Logger* logger, Listener::Bounds bounds)
      : logger_(logger), bounds_(bounds) {}

  // Says what came since the last time: once it has said something, only after
  // kQuietCalls more calls.
  static constexpr int kQuietCalls = 10;
  void Write(const Listener::Closed& closed, const FrameGuard::Cuts& cuts);

 private:
  void WriteClosed(const char* reason, uint64_t count, const char* flag,
                   size_t bound);
  void WriteCut(const char* event, const char* reason,
                const FrameGuard::Cut& cut, const FrameGuard::Cut& noted,
                const std::string& bound, const char* remedy);

  Logger* const logger_;
  const Listener::Bounds bounds_;
  Listener::Closed closed_;  // what was said of
  FrameGuard::Cuts cuts_;
  int quiet_ = 0;  // calls for which nothing is said
};

}  // namespace weir
