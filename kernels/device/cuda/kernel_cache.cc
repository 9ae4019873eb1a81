#include "kernels/device/cuda/kernel_cache.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

namespace weir {

KernelCache::KernelCache(std::string cache_dir, std::string environment,
                         Compile compile, LoadImage load)
    : environment_(std::move(environment)),
      disk_(std::move(cache_dir)),
      compile_(std::move(compile)),
      load_(std::move(load)) {}

absl::StatusOr<std::shared_ptr<const CudaFunction>> KernelCache::Get(
    const std::string& source) {
  std::shared_ptr<Entry> entry;
  {
    MutexLock lock(&mu_);
    auto it = entries_.find(source);
    if (it != entries_.end()) {
      entry = it->second;
      recent_.splice(recent_.begin(), recent_, entry->position);
      while (!entry->done) made_.Wait(&mu_);
      return entry->result;
    }
    entry = std::make_shared<Entry>();
    recent_.push_front(source);
    entry->position = recent_.begin();
    entries_[source] = entry;
  }
  auto result = Make(source);
  std::shared_ptr<Entry> evicted;  // unloaded outside the lock
  {
    MutexLock lock(&mu_);
    entry->done = true;
    entry->result = result;
    if (!result.ok()) {
      recent_.erase(entry->position);
      entries_.erase(source);  // a later caller tries again
    } else if (entries_.size() > kMaxKernels) {
      auto oldest = entries_.find(recent_.back());
      if (oldest->second->done) {
        evicted = oldest->second;
        entries_.erase(oldest);
        recent_.pop_back();
      }
    }
    made_.NotifyAll();
  }
  return result;
}

absl::StatusOr<std::shared_ptr<const CudaFunction>> KernelCache::Make(
    const std::string& source) {
  const std::string key = absl::StrCat(environment_, "\n", source);
  if (std::optional<std::string> image = disk_.Find(key)) {
    auto loaded = load_(*image);
    if (loaded.ok()) {
      MutexLock lock(&mu_);
      ++stats_.disk_hits_total;
      return loaded;
    }
  }
  absl::StatusOr<std::string> image = compile_(source);
  if (!image.ok()) return image.status();
  auto loaded = load_(*image);
  if (!loaded.ok()) return loaded;
  disk_.Insert(key, *image);
  MutexLock lock(&mu_);
  ++stats_.compiled_total;
  return loaded;
}

KernelCache::Stats KernelCache::stats() const {
  MutexLock lock(&mu_);
  Stats result = stats_;
  result.kernels = entries_.size();
  return result;
}

}  // namespace weir
