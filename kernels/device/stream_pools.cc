#include "kernels/device/stream_pools.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "kernels/device/device.h"

namespace weir {
namespace {

// Of the first priority's lanes.
constexpr size_t kFurtherPart = 4;

// Two where there are as many, of which one may be acquired.
size_t FurtherLanes(size_t main) {
  return std::max(std::min<size_t>(main, 2), main / kFurtherPart);
}

}  // namespace

absl::StatusOr<std::unique_ptr<StreamPools>> StreamPools::Create(
    Device* device, TimerQueue* timers, const StreamPoolOptions& options,
    const StreamPoolThreads& threads) {
  std::unique_ptr<StreamPools> pools(
      new StreamPools(device, timers, options, threads));
  StreamPoolOptions main = options;
  main.name =
      absl::StrCat(DeviceName(device->info()), "/priority ", options.priority);
  WEIR_ASSIGN_OR_RETURN(pools->main_, pools->Make(std::move(main)));
  return pools;
}

StreamPools::StreamPools(Device* device, TimerQueue* timers,
                         const StreamPoolOptions& options,
                         const StreamPoolThreads& threads)
    : device_(device),
      timers_(timers),
      options_(options),
      threads_(threads),
      default_priority_(options.priority) {}

absl::StatusOr<std::unique_ptr<StreamPool>> StreamPools::Make(
    StreamPoolOptions options) {
  options.arena_bytes = &arena_bytes_;
  const size_t max = options.max;
  auto pool = StreamPool::Create(device_, timers_, options, threads_);
  if (pool.ok()) max_lanes_.fetch_add(max);
  return pool;
}

absl::Status StreamPools::CheckPriority(int priority) const {
  const DeviceInfo& info = device_->info();
  if (priority >= info.greatest_priority && priority <= info.least_priority) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(DeviceName(info), " has streams of the priorities ",
                   info.greatest_priority, " (most urgent) to ",
                   info.least_priority, ", and none of ", priority));
}

absl::StatusOr<StreamPool*> StreamPools::OfPriority(int priority) {
  if (priority == options_.priority) return main_.get();
  WEIR_RETURN_IF_ERROR(CheckPriority(priority));
  MutexLock lock(&mu_);
  std::unique_ptr<StreamPool>& pool = further_[priority];
  if (pool == nullptr) {
    StreamPoolOptions options = options_;
    options.name =
        absl::StrCat(DeviceName(device_->info()), "/priority ", priority);
    options.priority = priority;
    options.reserved = 0;
    options.max = FurtherLanes(options_.max);
    options.most = std::max(options.max, options_.most / kFurtherPart);
    auto made = Make(std::move(options));
    if (!made.ok()) {
      further_.erase(priority);
      return made.status();
    }
    pool = *std::move(made);
    if (stopped_) pool->Stop();
  }
  return pool.get();
}

absl::StatusOr<StreamPool*> StreamPools::DefaultOf(int priority) {
  std::unique_ptr<StreamPool>& pool = defaults_[priority];
  if (pool == nullptr) {
    StreamPoolOptions options = options_;
    options.name = absl::StrCat(DeviceName(device_->info()),
                                "/default, priority ", priority);
    options.priority = priority;
    options.reserved = 0;
    options.max = 1;
    options.most = 1;
    options.max_name = "the server's default stream";
    auto made = Make(std::move(options));
    if (!made.ok()) {
      defaults_.erase(priority);
      return made.status();
    }
    pool = *std::move(made);
    if (stopped_) pool->Stop();
  }
  return pool.get();
}

absl::StatusOr<StreamPools::Default> StreamPools::ServerDefault() {
  MutexLock lock(&mu_);
  WEIR_ASSIGN_OR_RETURN(StreamPool* const pool, DefaultOf(default_priority_));
  return Default{pool, default_version_};
}

absl::StatusOr<StreamPools::Default> StreamPools::SetServerDefault(
    int priority) {
  WEIR_RETURN_IF_ERROR(CheckPriority(priority));
  MutexLock lock(&mu_);
  WEIR_ASSIGN_OR_RETURN(StreamPool* const pool, DefaultOf(priority));
  if (priority != default_priority_) {
    default_priority_ = priority;
    ++default_version_;
  }
  return Default{pool, default_version_};
}

std::vector<StreamPool*> StreamPools::all() const {
  std::vector<StreamPool*> pools = {main_.get()};
  MutexLock lock(&mu_);
  for (const auto& [priority, pool] : further_) pools.push_back(pool.get());
  for (const auto& [priority, pool] : defaults_) pools.push_back(pool.get());
  return pools;
}

absl::StatusOr<StreamPool*> StreamPools::Find(std::string_view name) const {
  std::vector<std::string> known;
  for (StreamPool* const pool : all()) {
    if (pool->options().name == name) return pool;
    known.push_back(absl::StrCat("\"", pool->options().name, "\""));
  }
  return WithReason(absl::NotFoundError(absl::StrCat(
                        "no pool \"", std::string(name), "\"; there are ",
                        absl::StrJoin(known, ", "))),
                    "POOL_NOT_FOUND");
}

absl::Status StreamPools::SetMax(StreamPool& pool, size_t max) {
  MutexLock lock(&mu_);
  const size_t before = pool.stats().max;
  WEIR_RETURN_IF_ERROR(pool.SetMax(max));
  max_lanes_.fetch_add(max - before);  // wraps, as it is meant to
  return absl::OkStatus();
}

size_t StreamPools::most_lanes() const {
  const DeviceInfo& info = device_->info();
  const auto priorities = static_cast<size_t>(
      std::max(1, info.least_priority - info.greatest_priority + 1));
  const size_t main = std::max(options_.max, options_.most);
  return main + priorities +
         (priorities - 1) *
             std::max(FurtherLanes(options_.max), options_.most / kFurtherPart);
}

StreamPoolStats StreamPools::stats() const {
  StreamPoolStats sum;
  for (const StreamPool* const pool : all()) {
    const StreamPoolStats stats = pool->stats();
    sum.idle += stats.idle;
    sum.leased += stats.leased;
    sum.draining += stats.draining;
    sum.retired += stats.retired;
    sum.max += stats.max;
    sum.waiting += stats.waiting;
    sum.created_total += stats.created_total;
    sum.destroyed_total += stats.destroyed_total;
    sum.leases_total += stats.leases_total;
    sum.waited_total += stats.waited_total;
    sum.refused_total += stats.refused_total;
    sum.expired_total += stats.expired_total;
    sum.arena_bytes += stats.arena_bytes;
  }
  return sum;
}

void StreamPools::Stop() {
  {
    MutexLock lock(&mu_);
    stopped_ = true;
  }
  for (StreamPool* const pool : all()) pool->Stop();
}

}  // namespace weir
