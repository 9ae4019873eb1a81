#include "server/rpc/tls_credentials.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/support/log.h>

#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "kernels/base/mutex.h"
#include "kernels/base/periodic_thread.h"
#include "kernels/base/status_macros.h"

namespace weir {
namespace {

class ReloadingCredentials final : public grpc::ServerCredentials {
 public:
  ReloadingCredentials(TlsOptions options, TlsMaterial material)
      : options_(std::move(options)), material_(std::move(material)) {
    NoteExpiry(material_);
    const bool mutual = !options_.files.client_ca.empty();
    credentials_ = grpc_ssl_server_credentials_create_with_options(
        grpc_ssl_server_credentials_create_options_using_config_fetcher(
            mutual ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                   : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE,
            &ReloadingCredentials::Fetch, this));
    watcher_.emplace("weir-tls", options_.refresh, [this] { Look(); });
  }

  ~ReloadingCredentials() override {
    watcher_.reset();
    grpc_server_credentials_release(credentials_);
  }

  void SetAuthMetadataProcessor(
      const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {
    GPR_ASSERT(false && "metadata is not checked here");
  }

 private:
  int AddPortToServer(const std::string& address,
                      grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  // gRPC asks at each handshake, and keeps what it has if there is nothing new.
  static grpc_ssl_certificate_config_reload_status Fetch(
      void* self, grpc_ssl_server_certificate_config** config) {
    return static_cast<ReloadingCredentials*>(self)->Fetch(config);
  }

  grpc_ssl_certificate_config_reload_status Fetch(
      grpc_ssl_server_certificate_config** config) {
    const MutexLock lock(&mu_);
    // The first time is as the port is made.
    if (std::exchange(asked_, true) && options_.state != nullptr) {
      ++options_.state->handshakes;
    }
    if (!std::exchange(fresh_, false)) {
      return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    }
    const grpc_ssl_pem_key_cert_pair pair = {material_.key.c_str(),
                                             material_.certificate.c_str()};
    // gRPC insists on authorities even where it asks no client for anything.
    const std::string& authorities = material_.client_ca.empty()
                                         ? material_.certificate
                                         : material_.client_ca;
    *config = grpc_ssl_server_certificate_config_create(authorities.c_str(),
                                                        &pair, 1);
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }

  void Look() {
    const absl::StatusOr<TlsMaterial> found = ReadTlsMaterial(options_.files);
    if (!found.ok()) {
      if (options_.state != nullptr) ++options_.state->reload_failures;
      std::string now(found.status().message());
      if (now != problem_) {
        Report(false,
               absl::StrCat(now, "; the certificate of before stays in use"));
      }
      problem_ = std::move(now);
      return;
    }
    problem_.clear();
    if (!Replace(*found)) return;
    NoteExpiry(*found);
    // As the metric tells it: an intermediate may end before the server's own.
    Report(true,
           absl::StrCat(
               "--tls-cert: new certificate in use, valid until ",
               absl::FormatTime("%Y-%m-%dT%H:%M:%SZ",
                                absl::FromUnixSeconds(found->chain_expires_at),
                                absl::UTCTimeZone())));
  }

  bool Replace(const TlsMaterial& found) {
    const MutexLock lock(&mu_);
    if (found == material_) return false;
    material_ = found;
    fresh_ = true;
    return true;
  }

  void NoteExpiry(const TlsMaterial& used) {
    if (options_.state == nullptr) return;
    options_.state->expires_at = used.chain_expires_at;
    options_.state->client_ca_expires_at = used.client_ca_expires_at;
  }

  void Report(bool renewed, const std::string& event) {
    if (options_.report != nullptr) options_.report(renewed, event);
  }

  const TlsOptions options_;
  grpc_server_credentials* credentials_ = nullptr;
  std::string problem_;  // the watching thread's: what was reported last

  Mutex mu_;
  // Written by the watching thread only.
  TlsMaterial material_ WEIR_GUARDED_BY(mu_);
  bool fresh_ WEIR_GUARDED_BY(mu_) = true;
  bool asked_ WEIR_GUARDED_BY(mu_) = false;

  std::optional<PeriodicThread> watcher_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeTlsCredentials(
    TlsOptions options) {
  WEIR_ASSIGN_OR_RETURN(TlsMaterial material, ReadTlsMaterial(options.files));
  return std::make_shared<ReloadingCredentials>(std::move(options),
                                                std::move(material));
}

}  // namespace weir
