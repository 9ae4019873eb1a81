// A tensor in process: dtype, shape and layout over memory of one device, with
// the point of its last writer and one reader point per stream. Copyable
// handle; handles share the memory. The points are guarded, the contents are
// not: order comes from the points.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/base/export.h"
#include "kernels/base/mutex.h"
#include "kernels/device/point.h"
#include "kernels/tensor/dtype.h"
#include "kernels/tensor/shape.h"

namespace weir {

class Device;

// What a tensor is, without its memory.
struct TensorSpec {
  DType dtype = DType::kInvalid;
  Dims dims;
  std::string layout;  // "HWC", "NCHW", or empty
};

// Host bytes with a type: constants, host inputs and results. Not an owner.
struct HostTensor {
  DType dtype = DType::kInvalid;
  Dims dims;
  const void* data = nullptr;  // dense, row-major; StringRef for kString

  template <typename T>
  const T* as() const {
    return static_cast<const T*>(data);
  }
};

// Memory that a tensor's handles share, given back to its pool by the last of
// them once every point that uses it was seen reached.
class WEIR_EXPORT TensorStorage {
 public:
  virtual ~TensorStorage() = default;
  virtual Device& device() const = 0;
  virtual std::byte* data() const = 0;
  virtual size_t size() const = 0;

  // Its outcome is remembered as long as it is the writer.
  Point writer() const;
  // A new writer must be ordered after the old writer and all readers; its
  // point replaces them.
  void SetWriter(Point point);
  // Keeps one point per timeline, the newest.
  void AddReader(Point point);
  // What a new writer (or the pool) waits for: the writer and all readers.
  std::vector<Point> Uses() const;

 private:
  mutable Mutex mu_;
  HeldPoint writer_ WEIR_GUARDED_BY(mu_);
  std::vector<Point> readers_ WEIR_GUARDED_BY(mu_);
};

class WEIR_EXPORT Tensor {
 public:
  Tensor() = default;
  Tensor(TensorSpec spec, std::shared_ptr<TensorStorage> storage,
         size_t offset = 0)
      : spec_(std::move(spec)), storage_(std::move(storage)), offset_(offset) {}

  bool valid() const { return storage_ != nullptr; }
  const TensorSpec& spec() const { return spec_; }
  TensorStorage& storage() const { return *storage_; }
  std::byte* data() const { return storage_->data() + offset_; }
  // `size` of its bytes from `from` on, as they lie there; the memory is
  // shared. REQUIRES: it has them.
  Tensor Bytes(int64_t from, int64_t size) const {
    return Tensor({DType::kUint8, {size}, ""}, storage_,
                  offset_ + static_cast<size_t>(from));
  }

 private:
  TensorSpec spec_;
  std::shared_ptr<TensorStorage> storage_;
  size_t offset_ = 0;
};

}  // namespace weir
