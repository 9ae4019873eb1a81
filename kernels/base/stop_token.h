// Asking somebody to stop: those of the standard library, by names of our own
// so that the simulation (tests/sim) can put its own in their place.
#pragma once

#include <stop_token>
#include <utility>

namespace weir {

using StopSource = std::stop_source;
using StopToken = std::stop_token;

// std::stop_callback.
template <typename F>
class StopCallback {
 public:
  StopCallback(StopToken token, F callback)
      : callback_(std::move(token), std::move(callback)) {}

 private:
  const std::stop_callback<F> callback_;
};

}  // namespace weir
