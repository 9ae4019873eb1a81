#include "kernels/ops/matrix_product.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/saturating.h"
#include "kernels/base/status_macros.h"
#include "kernels/ops/convert.h"
#include "kernels/ops/onednn_adapter.h"
#include "kernels/ops/packed_constants.h"
#include "kernels/ops/parallel_for.h"
#include "kernels/ops/scalar_functions.h"
#include "kernels/ops/type_dispatch.h"

namespace weir {
namespace {

using OwnTypeList = TypeList<double, int32_t, int64_t, uint32_t, uint64_t>;

// A part of C that one thread computes.
struct Tile {
  int64_t m_begin, m_size, n_begin, n_size;
};

// From the shapes alone: 32 tiles until each would take seconds. A tile packs
// its own part of B: cut into columns, B is packed once; cut into rows, as
// often as there are rows of tiles. Tiles of fewer columns sum up more slowly.
std::vector<Tile> MakeTiles(int64_t m, int64_t n, int64_t k) {
  if (m == 0 || n == 0) return {};
  constexpr double kFlopsPerTile = 16e6, kMostFlopsPerTile = 2e10;
  constexpr double kMaxTiles = 32, kMaxColumns = 16;  // of tiles
  constexpr int64_t kColumns = 96, kRows = 128;
  const double flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) *
                       static_cast<double>(k);
  const auto count = [flops](double most) {
    return static_cast<int64_t>(std::clamp(
        flops / kFlopsPerTile, 1.0, std::max(most, flops / kMostFlopsPerTile)));
  };
  const int64_t wanted = count(kMaxTiles);
  const auto cut = [](int64_t size, int64_t parts, int64_t unit) {
    const int64_t part = (size + parts - 1) / parts;
    return std::max<int64_t>(unit, (part + unit - 1) / unit * unit);
  };
  const int64_t n_step = cut(n, count(kMaxColumns), kColumns);
  const int64_t columns = (n + n_step - 1) / n_step;
  const int64_t m_step = cut(m, (wanted + columns - 1) / columns, kRows);
  std::vector<Tile> tiles;
  for (int64_t i = 0; i < m; i += m_step) {
    for (int64_t j = 0; j < n; j += n_step) {
      tiles.push_back({i, std::min(m_step, m - i), j, std::min(n_step, n - j)});
    }
  }
  return tiles;
}

// A call of the library takes as long as some hundred products.
constexpr int64_t kTinyProducts = 256;

// A part of a tile that one call of the library computes, which asks nobody
// whether to go on: it takes a tenth of a second. A part packs its own part of
// B, so it has that many rows first, then less of the depth.
struct Part {
  int64_t rows, depth;
};

Part PartOf(const ProductShape& p, const Tile& t) {
  constexpr int64_t kMostProducts = 2'500'000'000, kLeastRows = 128;
  const auto fit = [](int64_t a, int64_t b) {
    return kMostProducts / std::max<int64_t>(1, SaturatingMul(a, b));
  };
  Part part;
  part.rows = std::clamp<int64_t>(fit(t.n_size, p.k) / kLeastRows * kLeastRows,
                                  std::min(kLeastRows, t.m_size), t.m_size);
  part.depth = std::clamp<int64_t>(fit(t.n_size, part.rows), 1, p.k);
  return part;
}

// The same by plain loops. As in the library, an alpha of 0 reads nothing.
void TinyTile(const ProductShape& p, const Tile& t, float alpha, const float* a,
              const float* b, float beta, float* c) {
  const int64_t row_a = p.transpose_a ? 1 : p.k;
  const int64_t column_a = p.transpose_a ? p.m : 1;
  const int64_t row_b = p.transpose_b ? 1 : p.n;
  const int64_t column_b = p.transpose_b ? p.k : 1;
  for (int64_t i = t.m_begin; i < t.m_begin + t.m_size; ++i) {
    for (int64_t j = t.n_begin; j < t.n_begin + t.n_size; ++j) {
      float sum = 0;
      for (int64_t l = 0; alpha != 0.0f && l < p.k; ++l) {
        sum += a[i * row_a + l * column_a] * b[l * row_b + j * column_b];
      }
      float& to = c[i * p.n + j];
      to = alpha * sum + (beta == 0.0f ? 0.0f : beta * to);
    }
  }
}

// Of the products along k from `k_begin`, `depth`.
absl::Status FloatTile(const ProductShape& p, const Tile& t, int64_t k_begin,
                       int64_t depth, float alpha, const float* a,
                       const float* b, float beta, float* c) {
  if (t.m_size <= kTinyProducts / std::max(t.n_size, p.k) &&
      t.m_size * t.n_size * p.k <= kTinyProducts) {
    TinyTile(p, t, alpha, a, b, beta, c);
    return absl::OkStatus();
  }
  a += t.m_begin * (p.transpose_a ? 1 : p.lda()) +
       k_begin * (p.transpose_a ? p.lda() : 1);
  b += t.n_begin * (p.transpose_b ? p.ldb() : 1) +
       k_begin * (p.transpose_b ? 1 : p.ldb());
  return onednn::Sgemm(p.transpose_a, p.transpose_b, t.m_size, t.n_size, depth,
                       alpha, a, p.lda(), b, p.ldb(), beta,
                       c + t.m_begin * p.n + t.n_begin, p.n);
}

// B in panels of columns, each dense, one after the other. What packs a part of
// B reads it by rows: where they are longer than a page, every one is another
// page, and reading takes longer than the sums of few rows of A.
constexpr int64_t kPanelColumns = 192;
constexpr int64_t kRowFloats = 1024;  // of a page

bool WantsPanels(const ProductShape& p) {
  return !p.transpose_b && p.n > kRowFloats;
}

// Calls fn(first column, columns) for each panel.
template <typename Fn>
void ForEachPanel(int64_t n, const Fn& fn) {
  for (int64_t begin = 0; begin < n; begin += kPanelColumns) {
    fn(begin, std::min(kPanelColumns, n - begin));
  }
}

absl::Status PanelTile(const ProductShape& p, const Tile& t, int64_t k_begin,
                       int64_t depth, float alpha, const float* a,
                       const float* panels, float beta, float* c) {
  const int64_t end = t.n_begin + t.n_size;
  a += t.m_begin * (p.transpose_a ? 1 : p.lda()) +
       k_begin * (p.transpose_a ? p.lda() : 1);
  for (int64_t j = t.n_begin; j < end;) {
    const int64_t begin = j / kPanelColumns * kPanelColumns;
    const int64_t columns = std::min(kPanelColumns, p.n - begin);
    const int64_t size = std::min(end, begin + columns) - j;
    WEIR_RETURN_IF_ERROR(onednn::Sgemm(
        p.transpose_a, false, t.m_size, size, depth, alpha, a, p.lda(),
        panels + begin * p.k + k_begin * columns + (j - begin), columns, beta,
        c + t.m_begin * p.n + j, p.n));
    j += size;
  }
  return absl::OkStatus();
}

// Sums of integers wrap: they are computed without sign.
template <typename T, bool = std::is_integral_v<T>>
struct Wrapping {
  using Type = T;
};
template <typename T>
struct Wrapping<T, true> {
  using Type = std::make_unsigned_t<T>;
};

// Adds to sums of `height` rows and `width` columns the products of a block.
template <typename U, typename T, typename Packed, typename Sums,
          typename Width>
void AddProducts(const T* a, int64_t row_a, int64_t column_a, int64_t height,
                 int64_t depth, Width width, const Packed& packed, Sums& sums) {
  for (int64_t l = 0; l < depth; ++l) {
    for (int64_t i = 0; i < height; ++i) {
      const U x = static_cast<U>(a[i * row_a + l * column_a]);
      for (int64_t j = 0; j < width; ++j) sums[i][j] += x * packed[l][j];
    }
  }
}

// C = A * B for a tile. B is packed in blocks that stay in the first-level
// cache; four rows of C are summed at once. The order of the sums is that of k.
template <typename T>
void OwnTile(const ProductShape& p, const Tile& t, CpuTeam* team, const T* a,
             const T* b, T* c) {
  using U = typename Wrapping<T>::Type;
  constexpr int64_t kDepth = 64, kWidth = 64, kHeight = 4;
  U packed[kDepth][kWidth];
  const int64_t row_a = p.transpose_a ? 1 : p.k;
  const int64_t column_a = p.transpose_a ? p.m : 1;
  const int64_t row_b = p.transpose_b ? 1 : p.n;
  const int64_t column_b = p.transpose_b ? p.k : 1;
  GiveUpQuestion question(team);
  for (int64_t j0 = t.n_begin; j0 < t.n_begin + t.n_size; j0 += kWidth) {
    const int64_t width = std::min(kWidth, t.n_begin + t.n_size - j0);
    for (int64_t k0 = 0; k0 < p.k; k0 += kDepth) {
      const int64_t depth = std::min(kDepth, p.k - k0);
      for (int64_t l = 0; l < depth; ++l) {
        for (int64_t j = 0; j < width; ++j) {
          packed[l][j] =
              static_cast<U>(b[(k0 + l) * row_b + (j0 + j) * column_b]);
        }
      }
      for (int64_t i0 = t.m_begin; i0 < t.m_begin + t.m_size; i0 += kHeight) {
        const int64_t height = std::min(kHeight, t.m_begin + t.m_size - i0);
        if (question.Asked(height * depth * width)) return;
        U sums[kHeight][kWidth];
        for (int64_t i = 0; i < height; ++i) {
          for (int64_t j = 0; j < width; ++j) {
            sums[i][j] =
                k0 == 0 ? U{0} : static_cast<U>(c[(i0 + i) * p.n + j0 + j]);
          }
        }
        const T* const rows = a + i0 * row_a + k0 * column_a;
        if (width == kWidth) {
          AddProducts<U>(rows, row_a, column_a, height, depth,
                         std::integral_constant<int64_t, kWidth>(), packed,
                         sums);
        } else {
          AddProducts<U>(rows, row_a, column_a, height, depth, width, packed,
                         sums);
        }
        for (int64_t i = 0; i < height; ++i) {
          for (int64_t j = 0; j < width; ++j) {
            c[(i0 + i) * p.n + j0 + j] = static_cast<T>(sums[i][j]);
          }
        }
      }
    }
  }
}

constexpr int64_t kConvertGrain = 1 << 15;

void ConvertParallel(CpuTeam* team, DType from, DType to, const void* source,
                     void* target, int64_t n) {
  const ConvertLoop loop = FindConvertLoop(from, to);
  const auto* in = static_cast<const std::byte*>(source);
  auto* out = static_cast<std::byte*>(target);
  ParallelRange(team, n, kConvertGrain, [&](int64_t begin, int64_t end) {
    loop(in + static_cast<size_t>(begin) * SizeOf(from),
         out + static_cast<size_t>(begin) * SizeOf(to), end - begin);
  });
}

class MatrixPlan : public KernelPlan {
 public:
  MatrixPlan(const PlanArgs& args, const ProductShape& product, float alpha,
             float beta, const Addend& addend)
      : dtype_(args.inputs[0].dtype),
        product_(product),
        // Of no products there may be more than anyone can count.
        tiles_(args.outputs[0].elements == 0
                   ? std::vector<Tile>()
                   : MakeTiles(product_.m, product_.n, Depth())),
        alpha_(alpha),
        beta_(beta),
        addend_(addend),
        a_elements_(args.inputs[0].elements),
        b_elements_(args.inputs[1].elements),
        c_elements_(args.outputs[0].elements) {}

  // Brings a constant B into the form in which runs read it, where that is
  // another: once for all plans of a program.
  absl::Status HoldWeights(const PlanArgs& args) {
    const void* const constant = args.Constant(1);
    const bool panels = WantsPanels(product_);
    const bool widens = Half();
    if (constant == nullptr || args.packed == nullptr || c_elements_ == 0 ||
        b_elements_ == 0 || !product_.batch.empty() ||
        (!widens && !(dtype_ == DType::kFloat && panels))) {
      return absl::OkStatus();
    }
    WEIR_ASSIGN_OR_RETURN(
        weights_,
        args.packed->Get(constant,
                         absl::StrCat("product/", static_cast<int>(dtype_), "/",
                                      panels ? product_.n : 0),
                         FloatBytes(b_elements_), [&](std::byte* to) {
                           Pack(constant, panels, reinterpret_cast<float*>(to));
                           return absl::OkStatus();
                         }));
    return absl::OkStatus();
  }

  size_t scratch_bytes() const override {
    if (!Half() || c_elements_ == 0) return 0;
    return FloatBytes(a_elements_) + ScratchOfB() + FloatBytes(c_elements_) +
           FloatBytes(addend_.elements);
  }

  absl::Status Run(const RunArgs& run) const override {
    if (c_elements_ == 0) return absl::OkStatus();
    const void* addend = addend_.present ? run.inputs[2] : nullptr;
    if (dtype_ == DType::kFloat) {
      return RunFloat(run.team, static_cast<const float*>(run.inputs[0]),
                      static_cast<const float*>(run.inputs[1]),
                      static_cast<const float*>(addend),
                      static_cast<float*>(run.outputs[0]));
    }
    if (Half()) return RunHalf(run, addend);
    DispatchType(OwnTypeList(), dtype_, [&](auto tag) {
      using T = typename decltype(tag)::Type;
      RunOwn(run.team, static_cast<const T*>(run.inputs[0]),
             static_cast<const T*>(run.inputs[1]),
             static_cast<const T*>(addend), static_cast<T*>(run.outputs[0]));
    });
    return absl::OkStatus();
  }

 private:
  // Of sums of nothing the elements are still written.
  int64_t Depth() const { return std::max<int64_t>(1, product_.k); }
  bool Half() const { return ComputeType(dtype_) != dtype_; }
  size_t ScratchOfB() const {
    return weights_ == nullptr ? FloatBytes(b_elements_) : 0;
  }

  void Pack(const void* constant, bool panels, float* to) const {
    const ConvertLoop loop = FindConvertLoop(dtype_, DType::kFloat);
    const auto* from = static_cast<const std::byte*>(constant);
    const auto size = static_cast<int64_t>(SizeOf(dtype_));
    if (!panels) return loop(from, to, b_elements_);
    ForEachPanel(product_.n, [&](int64_t begin, int64_t columns) {
      for (int64_t l = 0; l < product_.k; ++l, to += columns) {
        loop(from + (l * product_.n + begin) * size, to, columns);
      }
    });
  }

  int64_t Pieces() const {
    return product_.count() * static_cast<int64_t>(tiles_.size());
  }
  ProductShape::Offsets BatchOf(int64_t piece) const {
    return product_.At(piece / static_cast<int64_t>(tiles_.size()));
  }
  const Tile& TileOf(int64_t piece) const {
    return tiles_[static_cast<size_t>(piece) % tiles_.size()];
  }

  // Calls fn(i, j) for each element of a tile; false if it was given up.
  template <typename Fn>
  static bool ForEachOf(const Tile& t, CpuTeam* team, const Fn& fn) {
    GiveUpQuestion question(team);
    for (int64_t i = t.m_begin; i < t.m_begin + t.m_size; ++i) {
      int64_t j = 0;
      for (int64_t end = 0; question.NextPart(t.n_size, &end);) {
        for (; j < end; ++j) fn(i, t.n_begin + j);
      }
      if (question.given_up()) return false;
    }
    return true;
  }

  // What sums start from: beta times the addend, or 0.
  template <typename T>
  T Start(const T* addend, int64_t i, int64_t j) const {
    if (addend == nullptr) return T{0};
    const T value = addend[i * addend_.row_stride + j * addend_.column_stride];
    if (beta_ == 1.0f) return value;
    if constexpr (std::is_same_v<T, float>) {
      return beta_ * value;
    } else {
      return scalar::Convert<T>(static_cast<double>(beta_) *
                                static_cast<double>(value));
    }
  }

  // `b` is not read where weights are held.
  absl::Status RunFloat(CpuTeam* team, const float* a, const float* b,
                        const float* addend, float* c) const {
    if (weights_ != nullptr) b = reinterpret_cast<const float*>(weights_.get());
    // Small pieces are bundled: a call into the team costs microseconds.
    constexpr double kFlopsPerCall = 1e6;
    const Tile& first = tiles_.front();
    const double flops = 2.0 * static_cast<double>(first.m_size) *
                         static_cast<double>(first.n_size) *
                         static_cast<double>(Depth());
    const auto bundle = static_cast<int64_t>(
        kFlopsPerCall / std::clamp(flops, 1.0, kFlopsPerCall));
    const int64_t pieces = Pieces();
    return ParallelForStatus(
        team, (pieces + bundle - 1) / bundle, [&](int64_t call) {
          const int64_t end = std::min(pieces, (call + 1) * bundle);
          for (int64_t i = call * bundle; i < end; ++i) {
            const ProductShape::Offsets at = BatchOf(i);
            WEIR_RETURN_IF_ERROR(FloatPiece(team, TileOf(i), a + at.a, b + at.b,
                                            addend, c + at.c));
          }
          return absl::OkStatus();
        });
  }

  absl::Status FloatPiece(CpuTeam* team, const Tile& t, const float* a,
                          const float* b, const float* addend, float* c) const {
    // Of alpha 0 the library would scale what lies in `c`, where it has no AVX.
    const bool empty = product_.k == 0 || alpha_ == 0.0f;
    const auto start = [&](int64_t i, int64_t j) {
      c[i * product_.n + j] = Start(addend, i, j);
    };
    if ((addend != nullptr || empty) && !ForEachOf(t, team, start)) {
      return absl::OkStatus();
    }
    if (empty) return absl::OkStatus();
    const bool panels = weights_ != nullptr && WantsPanels(product_);
    const Part part = PartOf(product_, t);
    Tile rows = t;
    for (int64_t i = 0; i < t.m_size; i += part.rows) {
      rows.m_begin = t.m_begin + i;
      rows.m_size = std::min(part.rows, t.m_size - i);
      for (int64_t l = 0; l < product_.k; l += part.depth) {
        if (i + l > 0 && team != nullptr && team->GivenUp()) {
          return absl::OkStatus();
        }
        const int64_t depth = std::min(part.depth, product_.k - l);
        const float beta = addend == nullptr && l == 0 ? 0.0f : 1.0f;
        WEIR_RETURN_IF_ERROR(
            panels
                ? PanelTile(product_, rows, l, depth, alpha_, a, b, beta, c)
                : FloatTile(product_, rows, l, depth, alpha_, a, b, beta, c));
      }
    }
    return absl::OkStatus();
  }

  absl::Status RunHalf(const RunArgs& run, const void* addend) const {
    auto* a = static_cast<std::byte*>(run.scratch);
    std::byte* b = a + FloatBytes(a_elements_);
    std::byte* c = b + ScratchOfB();
    std::byte* d = c + FloatBytes(c_elements_);
    const auto to_float = [&](const void* from, void* to, int64_t n) {
      ConvertParallel(run.team, dtype_, DType::kFloat, from, to, n);
    };
    to_float(run.inputs[0], a, a_elements_);
    if (weights_ == nullptr) to_float(run.inputs[1], b, b_elements_);
    if (addend != nullptr) to_float(addend, d, addend_.elements);
    WEIR_RETURN_IF_ERROR(RunFloat(
        run.team, reinterpret_cast<const float*>(a),
        reinterpret_cast<const float*>(b),
        addend == nullptr ? nullptr : reinterpret_cast<const float*>(d),
        reinterpret_cast<float*>(c)));
    ConvertParallel(run.team, DType::kFloat, dtype_, c, run.outputs[0],
                    c_elements_);
    return absl::OkStatus();
  }

  template <typename T>
  void RunOwn(CpuTeam* team, const T* a, const T* b, const T* addend,
              T* c) const {
    using U = typename Wrapping<T>::Type;
    // As in BLAS, an alpha of 0 reads neither A nor B.
    const bool sums = product_.k > 0 && alpha_ != 0.0f;
    ParallelFor(team, Pieces(), [&](int64_t piece) {
      const ProductShape::Offsets at = BatchOf(piece);
      const Tile& t = TileOf(piece);
      T* to = c + at.c;
      if (sums) OwnTile(product_, t, team, a + at.a, b + at.b, to);
      ForEachOf(t, team, [&](int64_t i, int64_t j) {
        T& value = to[i * product_.n + j];
        if (!sums) value = T{0};
        if (sums && alpha_ != 1.0f) {
          value = scalar::Convert<T>(static_cast<double>(alpha_) *
                                     static_cast<double>(value));
        }
        if (addend != nullptr) {
          value = static_cast<T>(static_cast<U>(value) +
                                 static_cast<U>(Start(addend, i, j)));
        }
      });
    });
  }

  const DType dtype_;
  const ProductShape product_;
  const std::vector<Tile> tiles_;
  const float alpha_, beta_;
  const Addend addend_;
  const int64_t a_elements_, b_elements_, c_elements_;
  // B in floats, in panels if it wants them; null: read where it lies.
  std::shared_ptr<const std::byte> weights_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<const KernelPlan>> PlanProduct(
    const PlanArgs& args, const ProductShape& product, float alpha, float beta,
    const Addend& addend) {
  auto plan = std::make_unique<MatrixPlan>(args, product, alpha, beta, addend);
  WEIR_RETURN_IF_ERROR(plan->HoldWeights(args));
  return std::unique_ptr<const KernelPlan>(std::move(plan));
}

}  // namespace weir
