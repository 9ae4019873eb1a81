#include "kernels/ops/strided_copy.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/ops/merged_loop.h"
#include "kernels/ops/parallel_for.h"
#include "kernels/ops/type_dispatch.h"

namespace weir {
namespace {

constexpr int64_t kGrainBytes = 128 << 10;
constexpr int64_t kTile = 32;

// Rows of `bytes` that are worth a thread.
int64_t RowGrain(int64_t bytes) {
  return std::max<int64_t>(1, kGrainBytes / std::max<int64_t>(bytes, 1));
}

// Calls fn(row, begin, end) for all rows of `length` columns of `column_bytes`,
// long ones in parts.
template <typename Fn>
void ForEachPart(CpuTeam* team, int64_t rows, int64_t length,
                 int64_t column_bytes, const Fn& fn) {
  if (length <= 0) return;
  const int64_t part =
      std::min(length, std::max(kTile, kGrainBytes / column_bytes));
  const int64_t parts = (length + part - 1) / part;
  ParallelRange(team, rows * parts, RowGrain(part * column_bytes),
                [&](int64_t first, int64_t past) {
                  if (parts == 1) {
                    for (int64_t row = first; row < past; ++row) {
                      fn(row, int64_t{0}, length);
                    }
                    return;
                  }
                  for (int64_t i = first; i < past; ++i) {
                    const int64_t begin = i % parts * part;
                    fn(i / parts, begin, std::min(begin + part, length));
                  }
                });
}

}  // namespace

StridedCopy::StridedCopy(const StridedView& view, size_t element_size)
    : offset_(view.offset),
      elements_(SaturatingProduct(view.dims)),
      element_size_(element_size) {
  MergedLoop loop(1);
  for (size_t d = 0; d < view.dims.size(); ++d) {
    loop.Append(view.dims[d], {view.strides[d]});
  }
  loop.AtLeastOne(1);
  dims_ = std::move(loop.dims);
  strides_ = std::move(loop.strides[0]);
  dense_ = DenseStrides(dims_);
  if (strides_.back() != 0 && strides_.back() != 1) {
    for (size_t d = 0; d + 1 < dims_.size(); ++d) {
      if (strides_[d] == 1) tile_dim_ = d;
    }
  }
}

void StridedCopy::RowOffsets(int64_t row, size_t skip, int64_t* source,
                             int64_t* target) const {
  *source = offset_;
  *target = 0;
  for (size_t d = dims_.size() - 1; d-- > 0;) {
    if (d == skip) continue;
    const int64_t index = row % dims_[d];
    row /= dims_[d];
    *source += index * strides_[d];
    *target += index * dense_[d];
  }
}

template <typename T>
void StridedCopy::TransposeTiles(CpuTeam* team, const T* source,
                                 T* target) const {
  const int64_t across = dims_.back();
  const int64_t stride = strides_.back();
  const int64_t down = dims_[tile_dim_];
  const int64_t pitch = dense_[tile_dim_];
  const int64_t bands = (down + kTile - 1) / kTile;
  const int64_t rows = elements_ / (across * down);
  const auto bytes = static_cast<int64_t>(sizeof(T));
  ForEachPart(team, rows * bands, across, std::min(kTile, down) * bytes,
              [&](int64_t band, int64_t begin, int64_t end) {
                int64_t from = 0;
                int64_t to = 0;
                RowOffsets(band / bands, tile_dim_, &from, &to);
                const int64_t first = band % bands * kTile;
                const int64_t last = std::min(first + kTile, down);
                for (int64_t left = begin; left < end; left += kTile) {
                  const int64_t right = std::min(left + kTile, end);
                  for (int64_t y = first; y < last; ++y) {
                    const T* __restrict in = source + from + y;
                    T* __restrict out = target + to + y * pitch;
                    for (int64_t x = left; x < right; ++x) {
                      out[x] = in[x * stride];
                    }
                  }
                }
              });
}

template <typename T>
void StridedCopy::RunAs(CpuTeam* team, const T* source, T* target) const {
  if (tile_dim_ != kNone) return TransposeTiles(team, source, target);
  const int64_t length = dims_.back();
  const int64_t stride = strides_.back();
  const int64_t rows = elements_ / length;
  const auto copy = [stride](const T* in, T* out, int64_t n) {
    if (stride == 1) {
      std::memcpy(out, in, static_cast<size_t>(n) * sizeof(T));
    } else if (stride == 0) {
      std::fill(out, out + n, *in);
    } else {
      for (int64_t i = 0; i < n; ++i) out[i] = in[i * stride];
    }
  };
  ForEachPart(team, rows, length, sizeof(T),
              [&](int64_t row, int64_t begin, int64_t end) {
                int64_t from = 0;
                int64_t to = 0;
                RowOffsets(row, kNone, &from, &to);
                copy(source + from + begin * stride, target + to + begin,
                     end - begin);
              });
}

void StridedCopy::Run(CpuTeam* team, const void* source, void* target) const {
  if (elements_ == 0) return;
  DispatchSize(element_size_, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    RunAs(team, static_cast<const T*>(source), static_cast<T*>(target));
  });
}

PadCopy::PadCopy(std::vector<Axis> axes, Mode mode, size_t element_size)
    : axes_(std::move(axes)), mode_(mode), element_size_(element_size) {
  if (axes_.empty()) axes_.push_back({1, 0, 1});
  Dims dims;
  for (const Axis& axis : axes_) dims.push_back(axis.source);
  strides_ = DenseStrides(dims);
}

int64_t PadCopy::Period(const Axis& axis) const {
  return mode_ == Mode::kWrap ? axis.source
                              : std::max<int64_t>(1, 2 * (axis.source - 1));
}

int64_t PadCopy::Phase(const Axis& axis, int64_t i) const {
  const int64_t period = Period(axis);
  const int64_t rest = (i - axis.before) % period;
  return rest < 0 ? rest + period : rest;
}

int64_t PadCopy::Map(const Axis& axis, int64_t i) const {
  const int64_t p = i - axis.before;
  if (p >= 0 && p < axis.source) return p;
  if (mode_ == Mode::kConstant) return -1;
  if (mode_ == Mode::kEdge) return p < 0 ? 0 : axis.source - 1;
  const int64_t phase = Phase(axis, i);
  return phase < axis.source ? phase : Period(axis) - phase;
}

template <typename T>
void PadCopy::PadRow(const T* in, T fill, int64_t begin, int64_t end,
                     T* out) const {
  if (begin >= end) return;
  const Axis& last = axes_.back();
  if (mode_ == Mode::kConstant || mode_ == Mode::kEdge) {
    const int64_t index = Map(last, begin);
    std::fill(out + begin, out + end, index < 0 ? fill : in[index]);
    return;
  }
  const int64_t period = Period(last);
  int64_t phase = Phase(last, begin);
  for (int64_t i = begin; i < end; ++i) {
    out[i] = in[phase < last.source ? phase : period - phase];
    if (++phase == period) phase = 0;
  }
}

template <typename T>
void PadCopy::RunAs(CpuTeam* team, const T* source, T fill, T* target) const {
  const Axis& last = axes_.back();
  const int64_t length = last.size;
  int64_t rows = 1;
  for (size_t d = 0; d + 1 < axes_.size(); ++d) rows *= axes_[d].size;
  // [from, to) of a row is one piece of a source row.
  const int64_t from = std::clamp<int64_t>(last.before, 0, length);
  const int64_t to =
      std::clamp<int64_t>(last.before + last.source, from, length);
  ForEachPart(team, rows, length, sizeof(T),
              [&](int64_t row, int64_t begin, int64_t end) {
                int64_t offset = 0;
                bool filled = false;
                int64_t rest = row;
                for (size_t d = axes_.size() - 1; d-- > 0;) {
                  const int64_t index = Map(axes_[d], rest % axes_[d].size);
                  rest /= axes_[d].size;
                  filled |= index < 0;
                  offset += index * strides_[d];
                }
                T* out = target + row * length;
                if (filled) {
                  std::fill(out + begin, out + end, fill);
                  return;
                }
                const T* in = source + offset;
                const int64_t left = std::clamp(from, begin, end);
                const int64_t right = std::clamp(to, left, end);
                PadRow(in, fill, begin, left, out);
                if (right > left) {
                  std::memcpy(out + left, in + (left - last.before),
                              static_cast<size_t>(right - left) * sizeof(T));
                }
                PadRow(in, fill, right, end, out);
              });
}

void PadCopy::Run(CpuTeam* team, const void* source, const void* fill,
                  void* target) const {
  for (const Axis& axis : axes_) {
    if (axis.size == 0) return;
  }
  DispatchSize(element_size_, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    T value = {};
    if (fill != nullptr) std::memcpy(&value, fill, sizeof(T));
    RunAs(team, static_cast<const T*>(source), value, static_cast<T*>(target));
  });
}

void CopyRows(CpuTeam* team, int64_t rows, int64_t bytes, const void* source,
              int64_t source_pitch, void* target, int64_t target_pitch) {
  ForEachPart(
      team, rows, bytes, 1, [&](int64_t row, int64_t begin, int64_t end) {
        std::memcpy(
            static_cast<std::byte*>(target) + row * target_pitch + begin,
            static_cast<const std::byte*>(source) + row * source_pitch + begin,
            static_cast<size_t>(end - begin));
      });
}

}  // namespace weir
