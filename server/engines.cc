#include "server/engines.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "kernels/backend/devices.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "kernels/device/cpu/host_limits.h"

namespace weir {
namespace {

// The CPU beside a GPU runs little, text and what is sent there by name: it has
// this part of what a device has.
constexpr size_t kCpuBesidePart = 4;

// A GPU's works compute little on the host: on this part of what the works of a
// CPU have.
constexpr size_t kHostScratchPart = 4;

// What works may compute on where no flag says it; 0: not known.
size_t HalfOf(const Device& device) {
  return static_cast<size_t>(device.info().total_memory) / 2;
}

// What --arena-bytes allows one device may be more than another has.
void LimitArenas(const Device& device, EngineOptions* engine) {
  const size_t most = HalfOf(device);
  if (most == 0) return;
  engine->streams.max_arena_bytes =
      std::min(engine->streams.max_arena_bytes, most);
}

EngineOptions MakeEngineOptions(const ServerOptions& options, size_t devices,
                                const Device& device) {
  EngineOptions engine;
  engine.streams.max = static_cast<size_t>(options.streams);
  engine.streams.max_name = "--streams";
  engine.streams.max_waiters = MostRequests(options, devices);
  engine.streams.max_waiters_name = "--queue-length";
  engine.streams.max_arena_bytes_name = "--arena-bytes";
  engine.pinned_bytes = options.host_bytes;
  engine.pinned_bytes_name = "--host-bytes";
  engine.tensor_bytes = options.tensor_bytes;
  if (device.quick_bytes() > 0) {
    // Memory like any other: nobody waits for it, to be had or given back.
    engine.pinned_ttl = absl::Seconds(1);
    engine.kept_pinned_bytes = size_t{4} << 20;
  }
  engine.programs.evaluation = MakeEvaluationLimits(options);
  if (options.arena_bytes > 0) {
    engine.streams.max_arena_bytes = options.arena_bytes;
  } else if (const size_t half = HalfOf(device); half > 0) {
    engine.streams.max_arena_bytes = half;
  }
  if (devices > 1) LimitArenas(device, &engine);
  return engine;
}

// Of the CPU beside other devices.
EngineOptions MakeHostEngineOptions(const ServerOptions& options,
                                    size_t devices, const Device& cpu) {
  EngineOptions engine = MakeEngineOptions(options, devices, cpu);
  LimitArenas(cpu, &engine);
  engine.streams.max_arena_bytes /= kCpuBesidePart;
  engine.streams.max_arena_bytes_name =
      "--arena-bytes, of which the CPU beside a GPU has a quarter";
  engine.pinned_bytes /= kCpuBesidePart;
  engine.pinned_bytes_name =
      "--host-bytes, of which the CPU beside a GPU has a quarter";
  engine.tensor_bytes /= kCpuBesidePart;
  engine.programs.max_bytes /= kCpuBesidePart;
  return engine;
}

// What the works of one GPU compute on on the host; 0: not known.
size_t HostScratchBytes(const ServerOptions& options, size_t devices) {
  const size_t share =
      static_cast<size_t>(AllowedMemory(HostFiles(), InstalledMemory()) / 2) /
      devices;
  return (options.arena_bytes > 0 ? std::min(options.arena_bytes, share)
                                  : share) /
         kHostScratchPart;
}

}  // namespace

EvaluationLimits MakeEvaluationLimits(const ServerOptions& options) {
  EvaluationLimits limits;
  // Without a flag, the largest buffer that there is of pinned memory.
  limits.output_bytes = static_cast<int64_t>(
      options.max_output_bytes > 0 ? options.max_output_bytes
                                   : std::bit_floor(options.host_bytes));
  limits.scratch_bytes = static_cast<int64_t>(options.max_scratch_bytes);
  limits.operations = options.max_operations;
  limits.output_bytes_name = "--max-output-bytes";
  limits.scratch_bytes_name = "--max-scratch-bytes";
  limits.operations_name = "--max-operations";
  return limits;
}

size_t MostRequests(const ServerOptions& options, size_t devices) {
  return options.queue_length + static_cast<size_t>(options.streams) * devices;
}

bool IsNamed(const DeviceInfo& device, std::string_view name) {
  return name == device.uuid || name == DeviceName(device);
}

absl::StatusOr<std::unique_ptr<Engines>> Engines::Open(
    const ServerOptions& options, const DeviceOptions& device_options,
    OpRegistry* registry) {
  const size_t count = options.devices.size();
  DeviceOptions with_share = device_options;
  with_share.host_scratch_bytes = HostScratchBytes(options, count);
  with_share.host_scratch_name =
      "--arena-bytes, of which the host beside a GPU has a quarter";
  std::vector<std::unique_ptr<Device>> devices;
  for (const std::string& name : options.devices) {
    auto device = options.make_device(name, with_share, *registry);
    if (!device.ok()) {
      return Annotate(device.status(), absl::StrCat("--device=", name, ": "));
    }
    devices.push_back(*std::move(device));
  }
  // Who runs what a device cannot, as text.
  Device* host = nullptr;
  bool far = false;
  for (const auto& device : devices) {
    if (!device->host_addressable()) {
      far = true;
    } else if (host == nullptr) {
      host = device.get();
    }
  }
  if (far && host == nullptr) {
    WEIR_ASSIGN_OR_RETURN(auto cpu, MakeDevice("cpu", with_share, *registry));
    host = cpu.get();
    devices.push_back(std::move(cpu));
  }
  auto engines = std::make_unique<Engines>();
  for (size_t i = 0; i < devices.size(); ++i) {
    const Device& device = *devices[i];
    EngineOptions engine_options =
        i < count ? MakeEngineOptions(options, count, device)
                  : MakeHostEngineOptions(options, count, device);
    if (!device.host_addressable()) engine_options.programs.text_device = host;
    auto engine =
        Engine::Create(std::move(devices[i]), registry, engine_options);
    if (!engine.ok()) {
      return Annotate(
          engine.status(),
          i < count ? absl::StrCat("--device=", options.devices[i], ": ") : "");
    }
    engines->Add(*std::move(engine));
  }
  engines->named_ = count;
  return engines;
}

// Programs that the others keep may be the CPU's, which goes after them.
Engines::~Engines() {
  memory_.clear();
  std::erase_if(owned_, [](const auto& engine) {
    return !engine->device().host_addressable();
  });
}

Engine& Engines::Add(std::unique_ptr<Engine> engine) {
  memory_.emplace_back(&engine->device());
  all_.push_back(engine.get());
  owned_.push_back(std::move(engine));
  named_ = all_.size();
  return *all_.back();
}

std::string Engines::names() const {
  return absl::StrJoin(named().begin(), named().end(), ",",
                       [](std::string* out, Engine* engine) {
                         *out += DeviceName(engine->device().info());
                       });
}

Device* Engines::host() const {
  if (main().device().host_addressable()) return nullptr;
  return main().options().programs.text_device;
}

Engine& Engines::Of(const Program& program) const {
  for (Engine* engine : all_) {
    if (&engine->device() == &program.device()) return *engine;
  }
  std::fputs("a program of no device of the server's\n", stderr);
  std::abort();
}

absl::StatusOr<Engine*> Engines::Find(std::string_view device) const {
  if (device.empty()) return &main();
  for (Engine* engine : all_) {
    if (IsNamed(engine->device().info(), device)) return engine;
  }
  std::string known;
  for (size_t i = 0; i < all_.size(); ++i) {
    const bool last = i + 1 == all_.size();
    absl::StrAppend(&known,
                    i == 0 ? ""
                    : last ? " and "
                           : ", ",
                    DeviceName(all_[i]->device().info()));
  }
  return WithField(
      absl::NotFoundError(absl::StrCat("no device \"", std::string(device),
                                       "\"; this server has ", known)),
      "device");
}

std::optional<int64_t> Engines::free_bytes(const Engine& engine) const {
  for (size_t i = 0; i < all_.size(); ++i) {
    if (all_[i] == &engine) return memory_[i].free_bytes();
  }
  return std::nullopt;
}

}  // namespace weir
