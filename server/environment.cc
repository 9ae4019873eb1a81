#include "server/environment.h"

#include <algorithm>
#include <regex>
#include <string_view>

namespace weir {
namespace {

constexpr std::string_view kPrefix = "WEIR_";

// The build's, the tests' and the GPU scripts'; of weir, the client; where the
// CUDA libraries lie.
constexpr char kOthers[] =
    "WEIR_(CUDA|CUDA_(ARCHITECTURES|EXTRAS|LIBRARY_PATH|ROOT)|BUILD_DIR|"
    "BIN_DIR|TEST_(DATA|DEVICE|SEED|TOOLS)|GPU_(LIMIT|LOGS)|ONNX_CASES|SERVER|"
    "TLS_CA|TLS_SERVER_NAME)=.*";

// For a Service named weir or weir-x: WEIR_SERVICE_HOST, WEIR_X_SERVICE_PORT,
// WEIR_X_SERVICE_PORT_GRPC, WEIR_X_PORT=tcp://..., WEIR_X_PORT_8001_TCP_ADDR.
constexpr char kKubernetes[] =
    "WEIR_(.*_)?(SERVICE_HOST|SERVICE_PORT(_.*)?|"
    "PORT_[0-9]+_(TCP|UDP|SCTP)(_.*)?)=.*|"
    "WEIR_(.*_)?PORT=(tcp|udp|sctp)://.*";

}  // namespace

std::vector<std::string> UnknownVariables(const char* const* environment,
                                          const std::set<std::string>& known) {
  const std::regex others(kOthers);
  const std::regex kubernetes(kKubernetes);
  std::vector<std::string> unknown;
  for (; *environment != nullptr; ++environment) {
    const std::string_view variable = *environment;
    if (variable.substr(0, kPrefix.size()) != kPrefix) continue;
    const std::string name(variable.substr(0, variable.find('=')));
    const std::string whole(variable);
    if (known.count(name) > 0 || std::regex_match(whole, others) ||
        std::regex_match(whole, kubernetes)) {
      continue;
    }
    unknown.push_back(name);
  }
  std::sort(unknown.begin(), unknown.end());
  return unknown;
}

}  // namespace weir
