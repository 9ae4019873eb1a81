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
    "BIN_DIR|TEST_(DATA|DEVICE|SEED|TOOLS)|SIM_(PROGRAMS|TIMES)|FUZZ_SECONDS|"
    "GPU_(LIMIT|LOGS)|IMAGE_BUILD_OPTIONS|MEANINGS|ONNX_CASES|WATCHED_DRIVER|"
    "SERVER|SPACE|TLS_CA|TLS_SERVER_NAME)";

// For a Service named weir or weir-x: WEIR_SERVICE_HOST, WEIR_X_SERVICE_PORT,
// WEIR_X_SERVICE_PORT_GRPC, WEIR_X_PORT_8001_TCP_ADDR.
constexpr char kKubernetes[] =
    "WEIR_(.*_)?(SERVICE_HOST|SERVICE_PORT(_.*)?|"
    "PORT_[0-9]+_(TCP|UDP|SCTP)(_.*)?)";

// No variable that anybody sets on purpose has a longer name. What a pattern
// takes of the stack grows with its text.
constexpr size_t kLongestName = 512;

// WEIR_X_PORT=tcp://..., of such a Service.
bool IsServiceAddress(std::string_view name, std::string_view value) {
  constexpr std::string_view kEnd = "_PORT";
  if (name.size() < kEnd.size() ||
      name.substr(name.size() - kEnd.size()) != kEnd) {
    return false;
  }
  for (const std::string_view protocol : {"tcp://", "udp://", "sctp://"}) {
    if (value.substr(0, protocol.size()) == protocol) return true;
  }
  return false;
}

}  // namespace

std::vector<std::string> UnknownVariables(const char* const* environment,
                                          const std::set<std::string>& known) {
  const std::regex others(kOthers);
  const std::regex kubernetes(kKubernetes);
  std::vector<std::string> unknown;
  for (; *environment != nullptr; ++environment) {
    const std::string_view variable = *environment;
    if (variable.substr(0, kPrefix.size()) != kPrefix) continue;
    const size_t end = std::min(variable.find('='), variable.size());
    const std::string name(variable.substr(0, end));
    const std::string_view value =
        variable.substr(std::min(end + 1, variable.size()));
    if (name.size() > kLongestName) {
      unknown.push_back(name.substr(0, kLongestName) + "...");
      continue;
    }
    if (known.count(name) > 0 || std::regex_match(name, others) ||
        std::regex_match(name, kubernetes) || IsServiceAddress(name, value)) {
      continue;
    }
    unknown.push_back(name);
  }
  std::sort(unknown.begin(), unknown.end());
  return unknown;
}

}  // namespace weir
