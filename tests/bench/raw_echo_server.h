// The rivals of our server: the shortest ones that gRPC's C++ API allows for
// ModelInfer. Benchmarks run them beside ours and print the ratio.
#pragma once

#include <memory>
#include <string>

#include "tests/bench/self_served.h"

namespace weir {

inline constexpr char kRawEchoMethod[] =
    "/inference.GRPCInferenceService/ModelInfer";

// What the targets are about: it parses the request and builds the reply that
// an identity gives, with a completion queue for each thread.
inline constexpr char kRawEcho[] = "raw echo";
// These answer with the request's bytes and look at none of them.
inline constexpr char kRawAsyncBytes[] = "raw async bytes";
inline constexpr char kRawCallbackBytes[] = "raw callback bytes";

// Listens on a free port of 127.0.0.1; nothing if the name is none of these.
std::unique_ptr<bench::LocalServer> StartRawEcho(const std::string& name,
                                                 int threads);

}  // namespace weir
