// A stock client's connection for one test.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>

namespace weir::testing {

// Its own connection, whatever other channels there are, begun and where the
// server takes it also made. gRPC 1.51 asks why connect() did not finish only
// after calls that write errno themselves, once in a process, and then takes a
// connection that is under way for a failed one ("No such file or directory"):
// hence a second try. Whoever is to be refused is refused twice.
inline std::shared_ptr<grpc::Channel> Connect(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 20);
  arguments.SetMaxReceiveMessageSize(-1);
  auto channel = grpc::CreateCustomChannel(
      address, grpc::InsecureChannelCredentials(), arguments);
  const auto patience =
      std::chrono::system_clock::now() + std::chrono::seconds(5);
  int refused = 0;
  for (grpc_connectivity_state state = channel->GetState(true);
       state != GRPC_CHANNEL_READY && refused < 2 &&
       channel->WaitForStateChange(state, patience);) {
    state = channel->GetState(true);
    if (state == GRPC_CHANNEL_TRANSIENT_FAILURE) ++refused;
  }
  return channel;
}

}  // namespace weir::testing
