// The connection that client and load generator share the making of.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/support/channel_arguments.h>

#include <memory>
#include <string>

#include "client/cpp/tls.h"

namespace weir::client {

// Connects on first use.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address,
                                           const TlsOptions& tls,
                                           grpc::ChannelArguments arguments);

}  // namespace weir::client
