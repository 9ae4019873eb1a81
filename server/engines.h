// The devices of a server, each with its engine, which has pools, budgets and
// threads of its own. Filled while starting, thread-safe afterwards; outlives
// whatever evaluates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/eval/engine.h"
#include "server/observe/memory_sampler.h"
#include "server/options.h"

namespace weir {

class Engines {
 public:
  // What --device names, and a CPU beside devices that cannot read the host's
  // memory, if none of them is one. Errors name the device at fault.
  static absl::StatusOr<std::unique_ptr<Engines>> Open(
      const ServerOptions& options, const DeviceOptions& device_options,
      OpRegistry* registry);

  // Of nothing yet.
  Engines() = default;
  ~Engines();  // REQUIRES: every context is closed
  Engines(const Engines&) = delete;
  Engines& operator=(const Engines&) = delete;

  // The first is the default device's. While starting.
  Engine& Add(std::unique_ptr<Engine> engine);

  // Of the default device.
  Engine& main() const { return *all_.front(); }
  // As --device names them, then the CPU beside them.
  const std::vector<Engine*>& all() const { return all_; }
  // Those that --device names.
  std::span<Engine* const> named() const { return {all_.data(), named_}; }
  // Of them, as in "cuda:0,cuda:1".
  std::string names() const;

  // The CPU that runs what the default device cannot, as text; null if that
  // device reads the host's memory itself.
  Device* host() const;

  // The one that runs `program`. REQUIRES: it is of one of the devices.
  Engine& Of(const Program& program) const;

  // The one whose device has this name or UUID; empty: the default. NOT_FOUND,
  // with the devices that there are.
  absl::StatusOr<Engine*> Find(std::string_view device) const;

  // Bytes of the device that nobody uses, as MemorySampler::free_bytes.
  std::optional<int64_t> free_bytes(const Engine& engine) const;

 private:
  std::vector<std::unique_ptr<Engine>> owned_;
  std::vector<Engine*> all_;
  size_t named_ = 0;
  std::deque<MemorySampler> memory_;  // as all_
};

// Whether `device` has this name or UUID.
bool IsNamed(const DeviceInfo& device, std::string_view name);

// Requests that may be admitted at once: --queue-length, and one for each
// stream.
size_t MostRequests(const ServerOptions& options, size_t devices);

// Of one evaluation, as the flags say.
EvaluationLimits MakeEvaluationLimits(const ServerOptions& options);

}  // namespace weir
