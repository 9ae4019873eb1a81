// Contenders that a benchmark serves itself, each in a process of its own: this
// program, started again. Used by one thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "tests/bench/contest.h"

namespace weir::bench {

// A server in this process, listening until it is destroyed.
class LocalServer {
 public:
  virtual ~LocalServer() = default;
  virtual std::string address() const = 0;
};
using LocalServerOr = absl::StatusOr<std::unique_ptr<LocalServer>>;

// To be asked first in main: serves, if that is what this process was started
// for, and gives its exit code. `start` makes what has the name.
std::optional<int> ServeIfAsked(
    int argc, char** argv,
    const std::function<LocalServerOr(const std::string& name)>& start);

Entrant SelfServed(const std::string& name);

}  // namespace weir::bench
