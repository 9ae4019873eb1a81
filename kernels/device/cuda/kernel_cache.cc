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
      ++stats_.memory_hits_total;
      recent_.splice(recent_.begin(), recent_, entry->position);
      while (!entry->done) made_.Wait(&mu_);
      return entry->result;
    }
    entry = std::make_shared<Entry>(source);
    recent_.push_front(entry);
    entry->position = recent_.begin();
    entries_[entry->source] = entry;
  }
  size_t image_bytes = 0;
  auto result = Make(source, &image_bytes);
  Entries evicted;  // unloaded outside the lock
  {
    MutexLock lock(&mu_);
    entry->done = true;
    entry->result = result;
    entry->bytes = source.size() + image_bytes;
    stats_.bytes += entry->bytes;
    if (!result.ok()) {
      Remove(*entry);  // a later caller tries again
    } else {
      evicted = TakeOldest();
    }
    made_.NotifyAll();
  }
  return result;
}

void KernelCache::Remove(const Entry& entry) {
  stats_.bytes -= entry.bytes;
  entries_.erase(entry.source);
  recent_.erase(entry.position);
}

KernelCache::Entries KernelCache::TakeOldest() {
  Entries taken;
  while (recent_.size() > 1 && recent_.back()->done &&
         (recent_.size() > kMaxKernels || stats_.bytes > kMaxBytes)) {
    taken.push_back(recent_.back());
    Remove(*taken.back());
  }
  return taken;
}

absl::StatusOr<std::shared_ptr<const CudaFunction>> KernelCache::Make(
    const std::string& source, size_t* image_bytes) {
  const std::string key = absl::StrCat(environment_, "\n", source);
  if (std::optional<std::string> image = disk_.Find(key)) {
    auto loaded = load_(*image);
    if (loaded.ok()) {
      *image_bytes = image->size();
      MutexLock lock(&mu_);
      ++stats_.disk_hits_total;
      return loaded;
    }
  }
  {
    MutexLock lock(&mu_);
    ++stats_.misses_total;
  }
  absl::StatusOr<std::string> image = compile_(source);
  if (!image.ok()) return image.status();
  auto loaded = load_(*image);
  if (!loaded.ok()) return loaded;
  *image_bytes = image->size();
  if (absl::Status written = disk_.Insert(key, *image); !written.ok()) {
    MutexLock lock(&mu_);
    ++stats_.write_failures_total;
    stats_.write_failure = std::string(written.message());
  }
  return loaded;
}

KernelCache::Stats KernelCache::stats() const {
  MutexLock lock(&mu_);
  Stats result = stats_;
  result.kernels = entries_.size();
  return result;
}

}  // namespace weir
