#include "kernels/eval/deferred_set.h"

#include <iterator>
#include <utility>

#include "absl/algorithm/container.h"

namespace weir {
namespace {

// Whether `work` reads what the deferred one makes, or comes after it.
bool ComesAfter(const Work& work, const std::shared_ptr<Work>& deferred) {
  const WorkRequest& request = work.request;
  const Point end = deferred->point();
  return absl::c_any_of(
             request.inputs,
             [&](const InputSource& in) { return in.producer == deferred; }) ||
         absl::c_any_of(request.after, [&](const Point& point) {
           return point == end ||
                  absl::c_any_of(deferred->request.signal,
                                 [&](const Signal& signal) {
                                   return point.timeline == signal.timeline &&
                                          point.value <= signal.value;
                                 });
         });
}

}  // namespace

void DeferredSet::Add(std::shared_ptr<Work> work) {
  works_.push_back(std::move(work));
}

DeferredSet::Works DeferredSet::TakeBefore(const Work& work) {
  size_t count = 0;
  for (size_t i = 0; i < works_.size(); ++i) {
    if (ComesAfter(work, works_[i])) count = i + 1;
  }
  const auto end = works_.begin() + static_cast<ptrdiff_t>(count);
  Works taken(std::make_move_iterator(works_.begin()),
              std::make_move_iterator(end));
  works_.erase(works_.begin(), end);
  return taken;
}

DeferredSet::Works DeferredSet::TakeAll() {
  Works taken(std::make_move_iterator(works_.begin()),
              std::make_move_iterator(works_.end()));
  works_.clear();
  return taken;
}

}  // namespace weir
