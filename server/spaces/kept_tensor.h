// What a tensor's number stands for: an output of a work, from when that is
// accepted, the failure that there is in its place, or room for a tensor that
// is to be written. Works that read it hold it until they are done, however
// soon the number is freed.
//
// A write into a number makes another KeptTensor, which stands there from then
// on: so whoever reads it reads the elements that it had when it was accepted,
// and no writer waits for a reader. What a number is allocated for, and whether
// that is committed, passes from one to the next.
//
// Thread-safe, but for Await, which belongs to whoever makes it.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "kernels/base/atomic.h"
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
      : KeptTensor(engine, dtype, std::move(declared),
                   std::make_shared<const Account::Share>(std::move(share))) {}
  // Room for a tensor of `dims`, for which `bytes` count already: to be
  // written, and not to be read until it is committed.
  static std::shared_ptr<KeptTensor> Allocate(Engine* engine, DType dtype,
                                              const Dims& dims,
                                              Account::Share share,
                                              Account::Share bytes);
  // What is written into this one's number, of whose type it is, and of whose
  // shape, as far as that is known: it counts in its place. `declared` of the
  // output that is written.
  std::shared_ptr<KeptTensor> Rewrite(const SymbolicShape& declared) const;
  // Whether one was made of the other so, in however many steps.
  bool SharesNumberWith(const KeptTensor& other) const {
    return share_ == other.share_;
  }

  Engine& engine() const { return *engine_; }
  DType dtype() const { return dtype_; }

  // Before others have it: `work`, which was accepted or is about to be, makes
  // it as this output, and `made` is reached once it has. Who holds `work`
  // wants the tensor, and so this does, until its number is freed.
  void Await(std::shared_ptr<Work> work, size_t output, Point made);
  // Its bytes, once they are known.
  void Charge(Account::Share bytes);
  // Those of room that nothing was written into, for the first that is; else
  // none.
  Account::Share TakeRoom();
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
  // for it, if that has failed; FAILED_PRECONDITION, reason
  // TENSOR_NOT_COMMITTED, before it is committed.
  absl::Status FillSource(InputSource* source) const;
  // What FillSource would say.
  absl::Status CheckReadable() const;
  // From here on it may be read. FAILED_PRECONDITION, reason TENSOR_COMMITTED,
  // if it may be; TENSOR_NOT_WRITTEN if nothing was accepted that writes it;
  // and its failure, if it has one.
  absl::Status Commit();
  // Whether it is to be committed yet.
  bool uncommitted() const {
    return uncommitted_ != nullptr && uncommitted_->load();
  }
  // FAILED_PRECONDITION, reason TENSOR_NOT_WRITTEN, for room into which nothing
  // writes, or did.
  absl::Status CheckWritten() const;
  // FAILED_PRECONDITION, reason TENSOR_MISMATCH, for what cannot be written
  // into it: another type, or a shape that is not its own, as far as both are
  // known.
  absl::Status CheckFits(DType dtype, const SymbolicShape& shape) const;

  // What it counts for; 0 while that is not known.
  uint64_t bytes() const;
  // As far as it is known by now: not even the rank, perhaps.
  SymbolicShape shape() const;
  // Its shape, if it is there.
  std::optional<Dims> dims() const;
  // It, if it is there; else no valid one.
  Tensor tensor() const;
  // Reached when it is there, or with the failure of its maker. Null once
  // either is so.
  Point made() const;
  // Why there is none and will be none, as soon as a reader is told; else OK.
  absl::Status failure() const;

 private:
  KeptTensor(Engine* engine, DType dtype, SymbolicShape declared,
             std::shared_ptr<const Account::Share> share)
      : engine_(engine),
        dtype_(dtype),
        declared_(std::move(declared)),
        share_(std::move(share)) {}

  Engine* const engine_;
  const DType dtype_;
  const SymbolicShape declared_;
  const std::shared_ptr<const Account::Share> share_;
  // Of all that stand for a number that was allocated; null for others.
  std::shared_ptr<Atomic<bool>> uncommitted_;

  mutable Mutex mu_;
  Account::Share bytes_ WEIR_GUARDED_BY(mu_);
  std::shared_ptr<Work> Maker() const WEIR_REQUIRES(mu_);
  bool IsRoom() const WEIR_REQUIRES(mu_);

  // One of the three, or none: then it is room. The maker is held until the
  // tensor is freed.
  std::shared_ptr<Work> maker_ WEIR_GUARDED_BY(mu_);
  std::weak_ptr<Work> freed_maker_ WEIR_GUARDED_BY(mu_);
  Point made_ WEIR_GUARDED_BY(mu_);  // with it
  Tensor tensor_ WEIR_GUARDED_BY(mu_);
  absl::Status failure_ WEIR_GUARDED_BY(mu_);

  size_t output_ WEIR_GUARDED_BY(mu_) = 0;          // of the maker
  mutable bool lent_ WEIR_GUARDED_BY(mu_) = false;  // the maker, to a reader
};

}  // namespace weir
