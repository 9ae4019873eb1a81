#include "kernels/tensor/tensor.h"

#include <algorithm>
#include <utility>

namespace weir {
namespace {

// Above this many readers those already seen reached are dropped.
constexpr size_t kReadersToKeep = 8;

}  // namespace

Point TensorStorage::writer() const {
  MutexLock lock(&mu_);
  return *writer_;
}

void TensorStorage::SetWriter(Point point) {
  // A timeline may die with its last point.
  HeldPoint writer(std::move(point));
  std::vector<Point> dropped;
  MutexLock lock(&mu_);
  std::swap(writer_, writer);
  dropped.swap(readers_);
}

void TensorStorage::AddReader(Point point) {
  if (point.is_null()) return;
  MutexLock lock(&mu_);
  for (Point& reader : readers_) {
    if (reader.timeline == point.timeline) {
      reader.value = std::max(reader.value, point.value);
      return;
    }
  }
  if (readers_.size() >= kReadersToKeep) {
    std::erase_if(readers_,
                  [](const Point& r) { return r.Outcome().has_value(); });
  }
  readers_.push_back(std::move(point));
}

std::vector<Point> TensorStorage::Uses() const {
  MutexLock lock(&mu_);
  std::vector<Point> uses;
  uses.reserve(readers_.size() + 1);
  if (!writer_->is_null()) uses.push_back(*writer_);
  uses.insert(uses.end(), readers_.begin(), readers_.end());
  return uses;
}

}  // namespace weir
