#include "kernels/ops/strided_copy.h"

#include <algorithm>
#include <cstring>
#include <utility>

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

}  // namespace

StridedCopy::StridedCopy(absl::Span<const int64_t> dims,
                         absl::Span<const int64_t> strides, int64_t offset,
                         size_t element_size)
    : offset_(offset), elements_(1), element_size_(element_size) {
  for (size_t d = 0; d < dims.size(); ++d) {
    elements_ *= dims[d];
    if (dims[d] == 1) continue;
    if (!dims_.empty() && strides_.back() == strides[d] * dims[d]) {
      dims_.back() *= dims[d];
      strides_.back() = strides[d];
    } else {
      dims_.push_back(dims[d]);
      strides_.push_back(strides[d]);
    }
  }
  if (dims_.empty()) {
    dims_.push_back(1);
    strides_.push_back(1);
  }
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
  const int64_t band_bytes = kTile * across * static_cast<int64_t>(sizeof(T));
  ParallelRange(team, rows * bands, RowGrain(band_bytes),
                [&](int64_t begin, int64_t end) {
                  for (int64_t band = begin; band < end; ++band) {
                    int64_t from = 0;
                    int64_t to = 0;
                    RowOffsets(band / bands, tile_dim_, &from, &to);
                    const int64_t first = band % bands * kTile;
                    const int64_t last = std::min(first + kTile, down);
                    for (int64_t left = 0; left < across; left += kTile) {
                      const int64_t right = std::min(left + kTile, across);
                      for (int64_t y = first; y < last; ++y) {
                        const T* __restrict in = source + from + y;
                        T* __restrict out = target + to + y * pitch;
                        for (int64_t x = left; x < right; ++x) {
                          out[x] = in[x * stride];
                        }
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
  const int64_t bytes = length * static_cast<int64_t>(sizeof(T));
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
  if (rows == 1) {
    ParallelRange(
        team, length, RowGrain(sizeof(T)), [&](int64_t begin, int64_t end) {
          copy(source + offset_ + begin * stride, target + begin, end - begin);
        });
    return;
  }
  ParallelRange(team, rows, RowGrain(bytes), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      int64_t from = 0;
      int64_t to = 0;
      RowOffsets(row, kNone, &from, &to);
      copy(source + from, target + to, length);
    }
  });
}

void StridedCopy::Run(CpuTeam* team, const void* source, void* target) const {
  if (elements_ == 0) return;
  DispatchSize(element_size_, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    RunAs(team, static_cast<const T*>(source), static_cast<T*>(target));
  });
}

StridedCopy RelayoutCopy(int64_t images, int64_t channels, int64_t pixels,
                         bool to_channels_last, size_t element_size) {
  const int64_t rows = to_channels_last ? pixels : channels;
  const int64_t columns = to_channels_last ? channels : pixels;
  const Dims dims = {images, rows, columns};
  const Dims strides = {rows * columns, 1, rows};
  return StridedCopy(dims, strides, 0, element_size);
}

PadCopy::PadCopy(std::vector<Axis> axes, Mode mode, size_t element_size)
    : axes_(std::move(axes)), mode_(mode), element_size_(element_size) {
  if (axes_.empty()) axes_.push_back({1, 0, 1});
  Dims dims;
  for (const Axis& axis : axes_) dims.push_back(axis.source);
  strides_ = DenseStrides(dims);
}

int64_t PadCopy::Map(const Axis& axis, int64_t i) const {
  const int64_t p = i - axis.before;
  if (p >= 0 && p < axis.source) return p;
  switch (mode_) {
    case Mode::kConstant:
      return -1;
    case Mode::kEdge:
      return p < 0 ? 0 : axis.source - 1;
    case Mode::kWrap: {
      const int64_t rest = p % axis.source;
      return rest < 0 ? rest + axis.source : rest;
    }
    case Mode::kReflect:
      break;
  }
  if (axis.source == 1) return 0;
  const int64_t period = 2 * (axis.source - 1);
  int64_t rest = p % period;
  if (rest < 0) rest += period;
  return rest < axis.source ? rest : period - rest;
}

template <typename T>
void PadCopy::RunAs(CpuTeam* team, const T* source, T fill, T* target) const {
  const Axis& last = axes_.back();
  const int64_t length = last.size;
  const int64_t bytes = length * static_cast<int64_t>(sizeof(T));
  int64_t rows = 1;
  for (size_t d = 0; d + 1 < axes_.size(); ++d) rows *= axes_[d].size;
  // [begin, end) of a row is one piece of a source row.
  const int64_t begin = std::clamp<int64_t>(last.before, 0, length);
  const int64_t end =
      std::clamp<int64_t>(last.before + last.source, begin, length);
  ParallelRange(team, rows, RowGrain(bytes), [&](int64_t first, int64_t past) {
    for (int64_t row = first; row < past; ++row) {
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
        std::fill(out, out + length, fill);
        continue;
      }
      const T* in = source + offset;
      const auto pad = [&](int64_t from, int64_t to) {
        for (int64_t i = from; i < to; ++i) {
          const int64_t index = Map(last, i);
          out[i] = index < 0 ? fill : in[index];
        }
      };
      pad(0, begin);
      if (end > begin) {
        std::memcpy(out + begin, in + (begin - last.before),
                    static_cast<size_t>(end - begin) * sizeof(T));
      }
      pad(end, length);
    }
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
  if (bytes == 0) return;
  ParallelRange(team, rows, RowGrain(bytes), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      std::memcpy(static_cast<std::byte*>(target) + row * target_pitch,
                  static_cast<const std::byte*>(source) + row * source_pitch,
                  static_cast<size_t>(bytes));
    }
  });
}

}  // namespace weir
