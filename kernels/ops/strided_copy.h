// Moves elements by index arithmetic: Transpose, Slice and Expand read with
// strides, Pad through a rule per axis, Concat and Split copy blocks.
// Only the size of an element matters. Immutable once made; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "kernels/device/cpu_team.h"
#include "kernels/tensor/shape.h"

namespace weir {

// A tensor of `dims` whose elements lie in another one, at
// offset + sum(index[d] * strides[d]); strides may be 0 or negative.
struct StridedView {
  Dims dims;
  Dims strides;
  int64_t offset = 0;
};

// Fills a dense target with the elements of a view of the source.
class StridedCopy {
 public:
  StridedCopy(const StridedView& view, size_t element_size);

  void Run(CpuTeam* team, const void* source, void* target) const;

 private:
  template <typename T>
  void RunAs(CpuTeam* team, const T* source, T* target) const;
  template <typename T>
  void TransposeTiles(CpuTeam* team, const T* source, T* target) const;
  // Element offsets of the row with this number, in source and target, over all
  // dimensions but `skip` and the last.
  void RowOffsets(int64_t row, size_t skip, int64_t* source,
                  int64_t* target) const;

  Dims dims_;     // merged, at least one
  Dims strides_;  // of the source
  Dims dense_;    // of the target
  int64_t offset_;
  int64_t elements_;
  size_t element_size_;
  // The dimension along which the source is dense, when the last is not: the
  // two are then copied in tiles.
  static constexpr size_t kNone = ~size_t{0};
  size_t tile_dim_ = kNone;
};

// Fills a dense target with a dense source that has padding around it, or is
// cropped where the padding is negative.
class PadCopy {
 public:
  enum class Mode { kConstant, kReflect, kEdge, kWrap };
  struct Axis {
    int64_t size;    // of the target
    int64_t before;  // padding before the first source element
    int64_t source;  // size of the source; > 0 unless kConstant
  };

  PadCopy(std::vector<Axis> axes, Mode mode, size_t element_size);

  // `fill` is one element; only kConstant reads it.
  void Run(CpuTeam* team, const void* source, const void* fill,
           void* target) const;

 private:
  // The source index for target index i; -1 is the fill.
  int64_t Map(const Axis& axis, int64_t i) const;
  // kReflect and kWrap: after how many elements they begin anew, and how far
  // along target index i is.
  int64_t Period(const Axis& axis) const;
  int64_t Phase(const Axis& axis, int64_t i) const;
  // Fills [begin, end) of a row, all on one side of the source.
  template <typename T>
  void PadRow(const T* in, T fill, int64_t begin, int64_t end, T* out) const;
  template <typename T>
  void RunAs(CpuTeam* team, const T* source, T fill, T* target) const;

  std::vector<Axis> axes_;  // at least one
  Dims strides_;            // of the source
  const Mode mode_;
  const size_t element_size_;
};

// `rows` blocks of `bytes`, `source_pitch` and `target_pitch` bytes apart.
void CopyRows(CpuTeam* team, int64_t rows, int64_t bytes, const void* source,
              int64_t source_pitch, void* target, int64_t target_pitch);

}  // namespace weir
