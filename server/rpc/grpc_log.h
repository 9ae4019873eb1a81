// Takes what gRPC's library itself has to say, which otherwise goes to standard
// error as it is, whoever caused it and however much it is. gRPC has one such
// place a process: of several objects the newest gets the lines. Thread-safe.
#pragma once

#include <functional>
#include <string_view>

namespace weir {

class GrpcLog {
 public:
  // `source` is gRPC's own file and line. The texts live as long as the call.
  // Called on any thread, perhaps under locks of gRPC's: it may not wait.
  using Fn = std::function<void(bool error, std::string_view source,
                                std::string_view text)>;
  explicit GrpcLog(Fn write);
  // No call of `write` is running or begins afterwards.
  ~GrpcLog();
  GrpcLog(const GrpcLog&) = delete;
  GrpcLog& operator=(const GrpcLog&) = delete;

 private:
  friend struct GrpcLogTargets;
  const Fn write_;
};

}  // namespace weir
