// The rival of our transport: the shortest server that gRPC's C++ API allows,
// which answers ModelInfer with the request's bytes, unparsed. Benchmarks run
// it beside ours and print the ratio.
#pragma once

#include <memory>
#include <string>

namespace weir {

inline constexpr char kRawEchoMethod[] =
    "/inference.GRPCInferenceService/ModelInfer";

enum class RawEchoKind {
  kAsync,     // a completion queue per thread
  kCallback,  // the callback API
};

class RawEchoServer {
 public:
  virtual ~RawEchoServer() = default;

  // Listens on a free port of 127.0.0.1; ends when destroyed.
  static std::unique_ptr<RawEchoServer> Start(RawEchoKind kind, int threads);

  virtual std::string address() const = 0;
};

}  // namespace weir
