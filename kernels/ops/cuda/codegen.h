// What the generated kernels share on the host: the text that stands before
// them, the names of element types, and the packing and launching of their
// arguments. A kernel is extern "C" `weir_kernel` with one by-value argument, a
// struct of 8-byte fields, so that host and device agree on its layout. Any
// thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device/cuda/cuda_device.h"
#include "kernels/ops/op.h"
#include "kernels/tensor/dtype.h"

namespace weir::cuda {

// The type that stands for stored elements in kernel text: "float", "Float16".
// Empty for types that kernels cannot hold (strings).
std::string_view StorageType(DType dtype);
// The type computed in: float for the half types, bool for bool.
std::string_view ComputeType(DType dtype);
// "uint32_t" for 4: for kernels that only move elements. Empty unless the size
// is 1, 2, 4 or 8.
std::string_view WordType(size_t bytes);

// Texts that CMake embeds: those of kernels.def, and two from elsewhere.
std::string_view PreludeSource();  // with the fault slot
std::string_view PhiloxSource();
#define KERNELS(file, Name)
#define TEXT(file, Name) std::string_view Name##Source();
#include "kernels/ops/cuda/kernels.def"
#undef TEXT
#undef KERNELS

// "#define NAME value".
std::string Define(std::string_view name, std::string_view value);

// A prepared division, packed as three words. REQUIRES: 0 < divisor < 2^31.
struct FastDivisor {
  explicit FastDivisor(uint64_t divisor);
  uint64_t divisor, multiplier, shift;
};

// The words of a kernel's argument struct, in the order of its fields.
class Words {
 public:
  Words& Add(uint64_t word) {
    words_.push_back(word);
    return *this;
  }
  Words& Add(int64_t word) { return Add(static_cast<uint64_t>(word)); }
  Words& Add(int word) { return Add(static_cast<int64_t>(word)); }
  Words& Add(double value);
  Words& Add(const void* pointer) {
    return Add(reinterpret_cast<uint64_t>(pointer));
  }
  Words& Add(const FastDivisor& d) {
    return Add(d.divisor).Add(d.multiplier).Add(d.shift);
  }
  // An array field of `size` words, the rest 0.
  Words& AddArray(absl::Span<const int64_t> values, size_t size);

  // All of `other`.
  Words& AddWords(const Words& other) {
    words_.insert(words_.end(), other.words_.begin(), other.words_.end());
    return *this;
  }

  uint64_t& operator[](size_t i) { return words_[i]; }
  size_t size() const { return words_.size(); }
  uint64_t* data() { return words_.data(); }

 private:
  absl::InlinedVector<uint64_t, 64> words_;
};

struct Grid {
  uint64_t x = 1;
  unsigned y = 1;
  unsigned z = 1;
  unsigned block = 256;
  unsigned shared_bytes = 0;
};

// Blocks of `block` threads for `threads` threads, at least one.
inline Grid GridFor(uint64_t threads, unsigned block = 256) {
  Grid grid;
  grid.x = threads == 0 ? 1 : (threads + block - 1) / block;
  grid.block = block;
  return grid;
}

// A compiled kernel on its device.
class GeneratedKernel {
 public:
  static absl::StatusOr<GeneratedKernel> Make(CudaDevice* device,
                                              const std::string& source);

  // Enqueues on `stream`. REQUIRES: called inside StreamTask::Launch.
  absl::Status Launch(Stream& stream, const Grid& grid, Words& words) const;

  // For PlannedRun::shared_holds of who keeps it.
  SharedHold hold() const { return {function_.get(), function_->held_bytes()}; }

 private:
  CudaDevice* device_ = nullptr;
  std::shared_ptr<const CudaFunction> function_;
};

}  // namespace weir::cuda
