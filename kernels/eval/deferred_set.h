// The works of a context that wait for Flush, or for a use of what they make:
// in the order of their submission. Belongs to the handler inside.
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <vector>

#include "kernels/base/export.h"
#include "kernels/eval/work.h"

namespace weir {

class WEIR_EXPORT DeferredSet {
 public:
  using Works = std::vector<std::shared_ptr<Work>>;

  size_t size() const { return works_.size(); }
  void Add(std::shared_ptr<Work> work);

  // Takes out what `work` reads or comes after, what that depends on, and so
  // on: everything up to the last of them, so that order is kept.
  Works TakeBefore(const Work& work);
  Works TakeAll();

 private:
  std::deque<std::shared_ptr<Work>> works_;
};

}  // namespace weir
