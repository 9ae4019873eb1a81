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
    "WEIR_(CUDA|CUDA_.*|BUILD_DIR|BIN_DIR|TEST_.*|GPU_.*|ONNX_CASES|SERVER|"
    "TLS_CA|TLS_SERVER_NAME)";

// For a Service named weir or weir-x: WEIR_SERVICE_HOST, WEIR_X_SERVICE_PORT,
// WEIR_X_SERVICE_PORT_GRPC, WEIR_X_PORT, WEIR_X_PORT_8001_TCP_ADDR.
constexpr char kKubernetes[] =
    "WEIR_(.*_)?(SERVICE_HOST|SERVICE_PORT(_.*)?|PORT|"
    "PORT_[0-9]+_(TCP|UDP|SCTP)(_.*)?)";

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
    if (known.count(name) > 0 || std::regex_match(name, others) ||
        std::regex_match(name, kubernetes)) {
      continue;
    }
    unknown.push_back(name);
  }
  std::sort(unknown.begin(), unknown.end());
  return unknown;
}

}  // namespace weir
