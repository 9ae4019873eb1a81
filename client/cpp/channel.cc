#include "client/cpp/channel.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <limits>

namespace weir::client {
namespace {

// A server asks connections to leave, and a call that was not sent yet goes to
// the next one by itself, but only while gRPC keeps its request for that: the
// default of 256 KiB leaves larger ones failing as UNAVAILABLE. What is kept
// are references.
constexpr int kRetryBufferBytes = std::numeric_limits<int>::max();

}  // namespace

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address,
                                           const TlsOptions& tls,
                                           grpc::ChannelArguments arguments) {
  arguments.SetInt(GRPC_ARG_PER_RPC_RETRY_BUFFER_SIZE, kRetryBufferBytes);
  if (!tls.enabled()) {
    return grpc::CreateCustomChannel(
        address, grpc::InsecureChannelCredentials(), arguments);
  }
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = tls.ca;
  options.pem_cert_chain = tls.certificate;
  options.pem_private_key = tls.key;
  if (!tls.server_name.empty()) {
    arguments.SetSslTargetNameOverride(tls.server_name);
  }
  return grpc::CreateCustomChannel(address, grpc::SslCredentials(options),
                                   arguments);
}

}  // namespace weir::client
