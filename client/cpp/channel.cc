#include "client/cpp/channel.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

namespace weir::client {

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address,
                                           const TlsOptions& tls,
                                           grpc::ChannelArguments arguments) {
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
