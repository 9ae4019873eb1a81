#include "tests/bench/self_served.h"

#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "tests/bench/piped_process.h"

namespace weir::bench {
namespace {

constexpr char kServe[] = "--serve-contest";

class AnotherSelf final : public Contender {
 public:
  explicit AnotherSelf(const std::string& name)
      : process_({"/proc/self/exe", kServe, name}),
        address_(process_.ReadLine()) {}
  std::string address() const override { return address_; }
  pid_t pid() const override { return process_.pid(); }

 private:
  PipedProcess process_;
  const std::string address_;
};

}  // namespace

std::optional<int> ServeIfAsked(
    int argc, char** argv,
    const std::function<LocalServerOr(const std::string& name)>& start) {
  if (argc < 3 || std::strcmp(argv[1], kServe) != 0) return std::nullopt;
  const LocalServerOr server = start(argv[2]);
  if (!server.ok()) {
    std::fprintf(stderr, "%s: %s\n", argv[2],
                 server.status().ToString().c_str());
    return 1;
  }
  std::printf("%s\n", (*server)->address().c_str());
  std::fflush(stdout);
  char byte = 0;
  while (read(STDIN_FILENO, &byte, 1) > 0) {
  }
  return 0;
}

Entrant SelfServed(const std::string& name) {
  return {name, [name]() -> ContenderOr {
            auto process = std::make_unique<AnotherSelf>(name);
            if (process->address().empty()) {
              return absl::UnavailableError("it did not start");
            }
            return process;
          }};
}

}  // namespace weir::bench
