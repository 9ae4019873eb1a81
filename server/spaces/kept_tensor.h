// What a tensor's number stands for: an output of a work, from when that is
// accepted, or the failure that there is in its place. Works that read it hold
// it until they are done, however soon the number is freed.
//
// Thread-safe, but for Await, which belongs to whoever makes it.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "kernels/base/mutex.h"
#include "kernels/eval/engine.h"
#include "kernels/eval/work.h"
#include "kernels/graph/graph.h"
#include "kernels/tensor/tensor.h"
#include "server/spaces/account.h"

namespace weir {

class KeptTensor {
 public:
  // On a device of `engine`, which outlives it. `share` counts it.
  // `declared`: of the output of the program that makes it.
  KeptTensor(Engine* engine, DType dtype, SymbolicShape declared,
             Account::Share share)
      : engine_(engine),
        dtype_(dtype),
        declared_(std::move(declared)),
        share_(std::move(share)) {}

  Engine& engine() const { return *engine_; }
  DType dtype() const { return dtype_; }

  // Before others have it: `work`, which was accepted or is about to be, makes
  // it as this output, and `made` is reached once it has. Who holds `work`
  // wants the tensor, and so this does, until its number is freed.
  void Await(std::shared_ptr<Work> work, size_t output, Point made);
  // Its bytes, once they are known.
  void Charge(Account::Share bytes);
  // One of them once, when the work is done: whether works read the tensor
  // before, which hold its maker with all that this has made.
  bool Made(Tensor tensor);
  bool Failed(const absl::Status& status);

  // No number stands for it any more: from here on those want it who read it.
  void Freed();
  // Who holds this wants it. Null once it is there, or failed, or is freed and
  // nobody reads it.
  std::shared_ptr<const void> Hold() const;

  // As an input of a work of the same engine: what its maker's failure means
  // for it, if that has failed.
  absl::Status FillSource(InputSource* source) const;

  // What it counts for; 0 while that is not known.
  uint64_t bytes() const;
  // As far as it is known by now: not even the rank, perhaps.
  SymbolicShape shape() const;
  // Its shape, if it is there.
  std::optional<Dims> dims() const;
  // Reached when it is there, or with the failure of its maker. Null once
  // either is so.
  Point made() const;
  // Why there is none and will be none, as soon as a reader is told; else OK.
  absl::Status failure() const;

 private:
  Engine* const engine_;
  const DType dtype_;
  const SymbolicShape declared_;
  const Account::Share share_;

  mutable Mutex mu_;
  Account::Share bytes_ WEIR_GUARDED_BY(mu_);
  std::shared_ptr<Work> Maker() const WEIR_REQUIRES(mu_);

  // One of the three; the maker is held until the tensor is freed.
  std::shared_ptr<Work> maker_ WEIR_GUARDED_BY(mu_);
  std::weak_ptr<Work> freed_maker_ WEIR_GUARDED_BY(mu_);
  Point made_ WEIR_GUARDED_BY(mu_);  // with it
  Tensor tensor_ WEIR_GUARDED_BY(mu_);
  absl::Status failure_ WEIR_GUARDED_BY(mu_);

  size_t output_ WEIR_GUARDED_BY(mu_) = 0;          // of the maker
  mutable bool lent_ WEIR_GUARDED_BY(mu_) = false;  // the maker, to a reader
};

}  // namespace weir
