// What the numbers of an EvaluateRequest stand for in the caller's space:
// looked up once, when the request is read, so that whoever frees or replaces
// them later does not change what it means. For one thread at a time.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "kernels/device/point.h"
#include "kernels/eval/work_request.h"
#include "server/bytes/call_arena.h"
#include "server/rpc/wire/evaluate_request.h"
#include "server/spaces/space.h"

namespace weir {

class SpaceNumbers {
 public:
  // NOT_FOUND, with the field, for what the space does not have;
  // FAILED_PRECONDITION for a spec that is not the tensor's. Specs that were
  // left out are filled in: extents that are not known are -1 then.
  absl::Status Find(Space& space, CallArena* arena,
                    EvaluateRequestView* request);

  // Null if input i brings its elements.
  const std::shared_ptr<KeptTensor>& input(size_t i) const {
    return inputs_[i];
  }
  // Of the first input that is kept, or null.
  Engine* first_engine() const;
  // Null: it has none.
  const KeptContext* context() const { return context_.get(); }
  const std::vector<Point>& after() const { return after_; }
  const std::vector<Signal>& signal() const { return signal_; }

 private:
  std::vector<std::shared_ptr<KeptTensor>> inputs_;
  // Whoever frees them now does not keep them from being made.
  std::vector<std::shared_ptr<const void>> wanted_;
  std::shared_ptr<KeptContext> context_;
  std::vector<Point> after_;
  std::vector<Signal> signal_;
};

}  // namespace weir
