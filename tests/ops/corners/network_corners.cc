// Products, convolutions, pooling and normalization.
#include <algorithm>
#include <cmath>

#include "tests/ops/corners/corner.h"

namespace weir::corners {
namespace {

Reals Finite(const Reals& values) {
  Reals finite;
  for (const Real x : values) {
    if (std::isfinite(x)) finite.push_back(x);
  }
  return finite;
}

Reals Ordinary(DType dtype) {
  return kUnsignedIntTypes.Has(dtype) ? Reals{1, 2, 3, 5}
                                      : Reals{1, -2, 3, -1, 2};
}

// -- Products -----------------------------------------------------------------

// Integers wrap to their own width.
Real Wrapped(DType dtype, __int128 x) {
  Real result = 0;
  DispatchType(IntTypeList(), dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    result = static_cast<Real>(static_cast<T>(x));
  });
  return result;
}

// A sum of products, exact until it is rounded to Real, or wrapping.
class Products {
 public:
  explicit Products(DType dtype) : dtype_(dtype) {}
  void Add(Real a, Real b) {
    if (IsFloating(dtype_)) {
      sum_ += a * b;
    } else {
      bits_ += static_cast<unsigned __int128>(static_cast<__int128>(a)) *
               static_cast<unsigned __int128>(static_cast<__int128>(b));
    }
  }
  Real sum() const {
    return IsFloating(dtype_) ? sum_
                              : Wrapped(dtype_, static_cast<__int128>(bits_));
  }

 private:
  const DType dtype_;
  Real sum_ = 0;
  unsigned __int128 bits_ = 0;
};

Reals MatMul(const Arguments& arguments) {
  const Array& a = arguments.in[0];
  const Array& b = arguments.in[1];
  Dims da = a.dims, db = b.dims, out = arguments.out.dims;
  if (da.size() == 1) {
    da.insert(da.begin(), 1);
    out.insert(out.end() - (db.size() == 1 ? 0 : 1), 1);
  }
  if (db.size() == 1) {
    db.push_back(1);
    out.push_back(1);
  }
  const int64_t m = da[da.size() - 2], n = db.back(), k = da.back();
  const Dims batch(out.begin(), out.end() - 2);
  const Dims batch_a(da.begin(), da.end() - 2),
      batch_b(db.begin(), db.end() - 2);
  Reals result;
  for (int64_t p = 0; p < Elements(batch); ++p) {
    const int64_t at_a = Broadcast(batch, batch_a, p) * m * k;
    const int64_t at_b = Broadcast(batch, batch_b, p) * k * n;
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        Products sum(a.dtype);
        for (int64_t l = 0; l < k; ++l) {
          sum.Add(a.at(at_a + i * k + l), b.at(at_b + l * n + j));
        }
        result.push_back(sum.sum());
      }
    }
  }
  return result;
}

void AddProducts(Corners* corners) {
  // Products of denormals are below what the libraries must keep.
  const Bound bound = {.ulps = 8, .absolute = 0x1p-120};
  const Bound half = {.ulps = 0.51, .absolute = 0x1p-24};
  Corner matmul;
  matmul.cases = [](DType dtype) {
    std::vector<Case> cases;
    const auto add = [&](const Dims& a, const Dims& b, const Reals& of_a,
                         const Reals& of_b) {
      cases.push_back({Node("MatMul"),
                       {Filled(dtype, a, of_a), Filled(dtype, b, of_b, 2)}});
    };
    const Reals specials = Specials(dtype, Ends::kNoLargest);
    const Reals ordinary = Ordinary(dtype);
    const std::vector<std::pair<Dims, Dims>> shapes = {
        {{3}, {3}},
        {{2, 3}, {3}},
        {{3}, {3, 4}},
        {{5, 3}, {3, 4}},
        {{0, 3}, {3, 4}},
        {{2, 0}, {0, 3}},
        {{0}, {0}},
        {{2, 3, 0}, {2, 0, 4}},
        {{0, 2, 3}, {3, 4}},
        {{1, 2, 3}, {0, 3, 2}},
        {{2, 1, 2, 3}, {3, 3, 2}},
        {{3, 1, 1, 1}, {1, 2, 1, 1}},
        {{20, 33}, {33, 17}},
    };
    for (const auto& [a, b] : shapes) {
      add(a, b, ordinary, ordinary);
      add(a, b, specials, ordinary);
      add(a, b, ordinary, specials);
      add(a, b, Finite(specials), Finite(specials));
    }
    return cases;
  };
  matmul.values = MatMul;
  matmul.float_bound = bound;
  matmul.half_bound = half;
  (*corners)[".MatMul"] = std::move(matmul);

  Corner gemm;
  gemm.cases = [](DType dtype) {
    std::vector<Case> cases;
    const Reals specials = Specials(dtype, Ends::kNoLargest);
    const Reals ordinary = Ordinary(dtype);
    const auto add = [&](const Dims& a, const Dims& b,
                         const std::optional<List>& c, int64_t transpose,
                         float beta) {
      for (const auto& [of_a, of_c] :
           {std::pair{specials, ordinary}, std::pair{ordinary, specials}}) {
        Case one{Node("Gemm", Attrs({{"transA", transpose},
                                     {"transB", transpose},
                                     {"beta", beta}})),
                 {Filled(dtype, a, of_a), Filled(dtype, b, ordinary, 1)}};
        if (c.has_value()) {
          one.inputs.push_back(Filled(dtype, Dims(c->begin(), c->end()), of_c));
        }
        cases.push_back(std::move(one));
      }
    };
    add({2, 3}, {3, 4}, {}, 0, 1);
    add({3, 2}, {4, 3}, List{4}, 1, 1);
    add({2, 3}, {3, 4}, List{2, 1}, 0, 2);
    add({2, 3}, {3, 4}, List{}, 0, 1);
    add({2, 3}, {3, 4}, List{2, 4}, 0, 0);  // C is not read, NaN or not
    add({2, 0}, {0, 4}, List{4}, 0, 1);
    add({2, 0}, {0, 4}, {}, 0, 1);
    add({0, 3}, {3, 4}, List{4}, 0, 1);
    return cases;
  };
  gemm.values = [](const Arguments& arguments) {
    const Array& a = arguments.in[0];
    const Array& b = arguments.in[1];
    const bool t = arguments.attributes().Int("transA", 0) != 0;
    const Real beta =
        static_cast<Real>(arguments.attributes().Float("beta", 1));
    const int64_t m = arguments.out.dims[0], n = arguments.out.dims[1];
    const int64_t k = a.dims[t ? 0 : 1];
    Reals result;
    for (int64_t i = 0; i < m * n; ++i) {
      Products sum(a.dtype);
      for (int64_t l = 0; l < k; ++l) {
        const int64_t row = i / n, column = i % n;
        sum.Add(a.at(t ? l * m + row : row * k + l),
                b.at(t ? column * k + l : l * n + column));
      }
      const bool has_c = arguments.in.size() > 2 && beta != 0;
      if (!has_c) {
        result.push_back(sum.sum());
        continue;
      }
      const Real c = arguments.in[2].at(
          Broadcast(arguments.out.dims, arguments.in[2].dims, i));
      if (IsFloating(a.dtype)) {
        result.push_back(sum.sum() + beta * c);
      } else {
        // beta C in double, saturated; then the sum wraps.
        Real scaled = c;
        if (beta != 1) {
          DispatchType(IntTypeList(), a.dtype, [&](auto tag) {
            using T = typename decltype(tag)::Type;
            const Real low = static_cast<Real>(std::numeric_limits<T>::min());
            const Real high = static_cast<Real>(std::numeric_limits<T>::max());
            const double exact =
                static_cast<double>(beta) * static_cast<double>(c);
            scaled =
                std::truncl(std::clamp(static_cast<Real>(exact), low, high));
          });
        }
        result.push_back(Wrapped(a.dtype, static_cast<__int128>(sum.sum()) +
                                              static_cast<__int128>(scaled)));
      }
    }
    return result;
  };
  gemm.float_bound = bound;
  gemm.half_bound = half;
  (*corners)[".Gemm"] = std::move(gemm);
}

// -- Windows ------------------------------------------------------------------

struct Window {
  Dims in;  // N, C, one or two spatial dims
  List kernel, strides, dilations, pads;
};

Attributes WindowAttributes(const Window& w) {
  return Attrs({{"kernel_shape", w.kernel},
                {"strides", w.strides},
                {"dilations", w.dilations},
                {"pads", w.pads}});
}

// Calls fn(plane, output index, flat positions inside the plane, taps that lie
// in the input or its padding) for each window; two spatial dims.
template <typename Fn>
void ForEachWindow(const Array& x, const Dims& out, const Attributes& a,
                   const Fn& fn) {
  const List k = a.Ints("kernel_shape"), s = a.Ints("strides"),
             d = a.Ints("dilations"), p = a.Ints("pads");
  const int64_t h = x.dims[2], w = x.dims[3];
  for (int64_t i = 0; i < Elements(out); ++i) {
    const Dims index = Unflatten(out, i);
    const int64_t plane = index[0] * x.dims[1] + index[1];
    std::vector<std::optional<int64_t>> taps;
    int64_t padded = 0;
    for (int64_t a0 = 0; a0 < k[0]; ++a0) {
      for (int64_t a1 = 0; a1 < k[1]; ++a1) {
        const int64_t row = index[2] * s[0] - p[0] + a0 * d[0];
        const int64_t column = index[3] * s[1] - p[1] + a1 * d[1];
        padded += row < h + p[2] && column < w + p[3];
        const bool inside = row >= 0 && column >= 0 && row < h && column < w;
        taps.push_back(
            inside ? std::optional<int64_t>((plane * h + row) * w + column)
                   : std::nullopt);
      }
    }
    fn(plane, i, taps, padded);
  }
}

const Window kWindows[] = {
    {{2, 3, 5, 4}, {3, 2}, {1, 2}, {1, 1}, {0, 0, 0, 0}},
    {{1, 2, 4, 4}, {2, 2}, {2, 2}, {1, 1}, {1, 1, 1, 1}},
    {{1, 1, 3, 3}, {3, 3}, {1, 1}, {2, 2}, {2, 2, 2, 2}},
    // Windows over padding alone.
    {{1, 2, 1, 1}, {2, 2}, {1, 1}, {3, 3}, {1, 1, 2, 2}},
    {{1, 2, 1, 1}, {1, 1}, {1, 1}, {1, 1}, {1, 1, 1, 1}},
    {{0, 2, 4, 4}, {2, 2}, {1, 1}, {1, 1}, {0, 0, 0, 0}},
    {{1, 0, 4, 4}, {2, 2}, {1, 1}, {1, 1}, {0, 0, 0, 0}},
    {{1, 1, 0, 3}, {2, 2}, {1, 1}, {1, 1}, {1, 0, 1, 0}},
    // A window far larger than what it sees.
    {{1, 1, 1, 1},
     {1 << 30, 1 << 30},
     {1, 1},
     {1, 1},
     {1 << 29, 1 << 29, 1 << 29, 1 << 29}},
};

std::vector<Case> PoolCases(const std::string& op, DType dtype, int outputs) {
  std::vector<Case> cases;
  for (const Window& w : kWindows) {
    for (const int64_t flag : {0, 1}) {
      Attributes attributes = WindowAttributes(w);
      attributes.Set(op == "MaxPool" ? "storage_order" : "count_include_pad",
                     flag);
      Case one{Node(op, std::move(attributes)),
               {Filled(dtype, w.in, Specials(dtype, Ends::kNoLargest),
                       static_cast<size_t>(flag) * 5)}};
      one.node.num_outputs = outputs;
      cases.push_back(one);
      one.inputs[0] =
          Filled(dtype, w.in, Finite(Specials(dtype, Ends::kNoLargest)));
      cases.push_back(std::move(one));
    }
  }
  return cases;
}

Real Lowest(DType dtype) {
  return IsFloating(dtype)       ? -INFINITY
         : dtype == DType::kInt8 ? Real{-128}
                                 : Real{0};
}

bool IsHuge(const Attributes& a) { return a.Ints("kernel_shape")[0] > 1000; }

void AddPooling(Corners* corners) {
  Corner max;
  max.cases = [](DType dtype) {
    std::vector<Case> cases = PoolCases("MaxPool", dtype, 2);
    for (Case& one : PoolCases("MaxPool", dtype, 1)) {
      cases.push_back(std::move(one));
    }
    return cases;
  };
  max.values = [](const Arguments& a) {
    const Array& x = a.in[0];
    if (IsHuge(a.attributes())) {  // one element, seen by all four windows
      return Reals(4, a.output == 0 ? x.at(0) : 0);
    }
    const bool column_major = a.attributes().Int("storage_order", 0) != 0;
    const int64_t h = x.dims[2], w = x.dims[3];
    Reals result;
    ForEachWindow(
        x, a.out.dims, a.attributes(),
        [&](int64_t, int64_t, const auto& taps, int64_t) {
          Real best = Lowest(x.dtype);
          int64_t where = -1;
          for (const auto& tap : taps) {
            if (!tap.has_value()) continue;
            const Real value = x.at(*tap);
            if (where < 0 || (best == best && !(best >= value))) {
              best = value;
              where = *tap;
            }
          }
          if (column_major && where >= 0) {
            const int64_t at = where % (h * w);
            where = where - at + at % w * h + at / w;
          }
          result.push_back(a.output == 0 ? best : static_cast<Real>(where));
        });
    return result;
  };
  (*corners)[".MaxPool"] = std::move(max);

  Corner average;
  average.cases = [](DType dtype) {
    return PoolCases("AveragePool", dtype, 1);
  };
  average.values = [](const Arguments& a) {
    const Array& x = a.in[0];
    const bool pad = a.attributes().Int("count_include_pad", 0) != 0;
    if (IsHuge(a.attributes())) {
      return Reals(4, pad ? x.at(0) / 0x1p60L : x.at(0));
    }
    Reals result;
    ForEachWindow(x, a.out.dims, a.attributes(),
                  [&](int64_t, int64_t, const auto& taps, int64_t padded) {
                    Real sum = 0;
                    int64_t inside = 0;
                    for (const auto& tap : taps) {
                      if (!tap.has_value()) continue;
                      sum += x.at(*tap);
                      ++inside;
                    }
                    const int64_t n = pad ? padded : inside;
                    result.push_back(n == 0 ? 0 : sum / static_cast<Real>(n));
                  });
    return result;
  };
  average.float_bound = {.ulps = 4, .absolute = 0x1p-40};
  average.half_bound = {.ulps = 0.51, .absolute = 0x1p-24};
  (*corners)[".AveragePool"] = std::move(average);

  Corner global;
  global.cases = [](DType dtype) {
    std::vector<Case> cases;
    const Reals specials = Specials(dtype, Ends::kNoLargest);
    for (const Dims& dims : {Dims{2, 3, 5}, Dims{1, 15, 1, 1}, Dims{2, 3},
                             Dims{0, 2, 3}, Dims{2, 0, 3}, Dims{1, 2, 9, 11}}) {
      cases.push_back(
          {Node("GlobalAveragePool"), {Filled(dtype, dims, specials)}});
      cases.push_back(
          {Node("GlobalAveragePool"), {Filled(dtype, dims, Finite(specials))}});
    }
    return cases;
  };
  global.values = [](const Arguments& a) {
    const Array& x = a.in[0];
    Reals result;
    const int64_t n = a.out.elements == 0 ? 0 : x.size() / a.out.elements;
    for (int64_t p = 0; p < a.out.elements; ++p) {
      Real sum = 0;
      for (int64_t i = 0; i < n; ++i) sum += x.at(p * n + i);
      result.push_back(sum / static_cast<Real>(n));
    }
    return result;
  };
  global.float_bound = {.ulps = 0.51, .absolute = 0x1p-40};
  (*corners)[".GlobalAveragePool"] = std::move(global);
}

void AddConv(Corners* corners) {
  Corner conv;
  conv.cases = [](DType dtype) {
    std::vector<Case> cases;
    const Reals specials = Specials(dtype, Ends::kNoLargest);
    const Reals ordinary = Ordinary(dtype);
    const auto add = [&](const Dims& x, const Dims& w, const List& strides,
                         const List& dilations, const List& pads,
                         const Reals& of_x, const Reals& of_w, bool bias) {
      Case one{Node("Conv", Attrs({{"kernel_shape", List{w[2], w[3]}},
                                   {"strides", strides},
                                   {"dilations", dilations},
                                   {"pads", pads}})),
               {Filled(dtype, x, of_x), Filled(dtype, w, of_w)}};
      if (bias) one.inputs.push_back(Filled(dtype, {w[0]}, specials, 1));
      cases.push_back(std::move(one));
    };
    for (const bool bias : {false, true}) {
      add({2, 3, 5, 4}, {4, 3, 3, 2}, {1, 2}, {1, 1}, {0, 0, 0, 0}, specials,
          ordinary, bias);
      add({2, 3, 5, 4}, {4, 3, 3, 2}, {1, 1}, {1, 1}, {1, 1, 1, 1}, specials,
          ordinary, bias);
      add({1, 2, 4, 4}, {3, 2, 2, 2}, {1, 1}, {2, 1}, {0, 1, 1, 0}, specials,
          ordinary, bias);
      // Zeros of the padding times infinity: left out.
      add({1, 2, 4, 4}, {3, 2, 2, 2}, {1, 1}, {1, 1}, {0, 0, 0, 0}, ordinary,
          specials, bias);
      add({1, 2, 4, 4}, {3, 2, 2, 2}, {1, 1}, {1, 1}, {1, 1, 1, 1}, ordinary,
          Finite(specials), bias);
      add({0, 2, 4, 4}, {3, 2, 2, 2}, {1, 1}, {1, 1}, {0, 0, 0, 0}, ordinary,
          ordinary, bias);
      add({1, 0, 4, 4}, {3, 0, 2, 2}, {1, 1}, {1, 1}, {0, 0, 0, 0}, ordinary,
          ordinary, bias);
      add({1, 2, 4, 4}, {0, 2, 2, 2}, {1, 1}, {1, 1}, {0, 0, 0, 0}, ordinary,
          ordinary, bias);
      add({1, 1, 1, 1}, {1, 1, 2, 2}, {1, 1}, {1, 1}, {2, 2, 2, 2}, ordinary,
          ordinary, bias);
    }
    return cases;
  };
  conv.values = [](const Arguments& a) {
    const Array& x = a.in[0];
    const Array& w = a.in[1];
    const int64_t channels = x.dims[1], h = x.dims[2], width = x.dims[3];
    const int64_t taps = w.dims[2] * w.dims[3];
    const Array plane{x.dtype, {x.dims[0], 1, h, width}, {}};
    const Dims planes = {a.out.dims[0], 1, a.out.dims[2], a.out.dims[3]};
    Reals result(static_cast<size_t>(a.out.elements));
    if (a.out.elements == 0) return result;
    const int64_t pixels = planes[2] * planes[3];
    ForEachWindow(
        plane, planes, a.attributes(),
        [&](int64_t image, int64_t i, const auto& positions, int64_t) {
          for (int64_t m = 0; m < w.dims[0]; ++m) {
            Real sum = a.in.size() > 2 ? a.in[2].at(m) : 0;
            for (int64_t c = 0; c < channels; ++c) {
              for (int64_t t = 0; t < taps; ++t) {
                const auto& at = positions[static_cast<size_t>(t)];
                if (!at.has_value()) continue;
                const int64_t in_plane = *at % (h * width);
                sum += x.at((image * channels + c) * h * width + in_plane) *
                       w.at((m * channels + c) * taps + t);
              }
            }
            result[static_cast<size_t>((image * w.dims[0] + m) * pixels +
                                       i % pixels)] = sum;
          }
        });
    return result;
  };
  conv.float_bound = {.ulps = 8, .absolute = 0x1p-120};
  conv.half_bound = {.ulps = 0.51, .absolute = 0x1p-24};
  (*corners)[".Conv"] = std::move(conv);
}

// -- Normalization ------------------------------------------------------------

void AddNormalization(Corners* corners) {
  Corner softmax;
  softmax.cases = [](DType dtype) {
    std::vector<Case> cases;
    const Reals specials = Specials(dtype);
    Reals without;  // what makes a whole row NaN
    for (const Real x : specials) {
      if (x == x && x != INFINITY) without.push_back(x);
    }
    for (const Dims& dims :
         {Dims{40}, Dims{}, Dims{1}, Dims{0}, Dims{2, 0}, Dims{0, 3},
          Dims{7, 13}, Dims{3, 37, 2}, Dims{5, 1}}) {
      const int64_t rank = static_cast<int64_t>(dims.size());
      if (rank == 0) continue;  // has no axis
      for (int64_t axis = 0; axis < rank; ++axis) {
        const NodeInfo node = Node("Softmax", Attrs({{"axis", axis}}));
        cases.push_back({node, {Filled(dtype, dims, specials)}});
        cases.push_back({node, {Filled(dtype, dims, without)}});
        cases.push_back({node, {Filled(dtype, dims, {-INFINITY})}});
      }
    }
    // Each special value alone, at every place of a vector and behind it.
    for (const Real x : specials) {
      for (const size_t at : std::vector<size_t>{0, 5, 16, 18}) {
        Reals row(19, 1);
        row[at] = x;
        cases.push_back({Node("Softmax"), {Make(dtype, {19}, row)}});
      }
    }
    return cases;
  };
  softmax.values = [](const Arguments& a) {
    const Array& x = a.in[0];
    const size_t axis = static_cast<size_t>(
        a.attributes().Int("axis", static_cast<int64_t>(x.dims.size()) - 1));
    int64_t stride = 1;
    for (size_t d = axis + 1; d < x.dims.size(); ++d) stride *= x.dims[d];
    const int64_t n = x.dims[axis];
    Reals result(x.v.size());
    for (int64_t first = 0; first < x.size(); ++first) {
      if (first / stride % n != 0) continue;
      Real largest = -INFINITY, sum = 0;
      for (int64_t i = 0; i < n; ++i) {
        const Real value = x.at(first + i * stride);
        largest = largest != largest || value != value
                      ? NAN
                      : std::max(largest, value);
      }
      for (int64_t i = 0; i < n; ++i) {
        sum += std::exp(x.at(first + i * stride) - largest);
      }
      for (int64_t i = 0; i < n; ++i) {
        result[static_cast<size_t>(first + i * stride)] =
            std::exp(x.at(first + i * stride) - largest) / sum;
      }
    }
    return result;
  };
  softmax.float_bound = {.ulps = 8, .relative = 128 * 0x1p-24};
  softmax.half_bound = {.ulps = 0.6, .relative = 128 * 0x1p-24};
  (*corners)[".Softmax"] = std::move(softmax);

  Corner layer;
  layer.cases = [](DType dtype) {
    std::vector<Case> cases;
    // Differences to a mean that is not rounded alike: moderate values only.
    const Reals specials = {0, 1, -0.0L, 2, -1, 0.5L, -2};
    const auto add = [&](const Dims& dims, int64_t axis, const Dims& scale,
                         const Reals& values, int outputs) {
      Case one{Node("LayerNormalization", Attrs({{"axis", axis}})),
               {Filled(dtype, dims, values), Filled(dtype, scale, {1, 2}),
                Filled(dtype, scale, {0.5L, -1})}};
      one.node.num_outputs = outputs;
      cases.push_back(std::move(one));
    };
    for (const int outputs : {1, 2, 3}) {
      add({3, 7}, 1, {7}, specials, outputs);
      add({3, 7}, 0, {3, 1}, specials, outputs);
      add({2, 0}, 1, {0}, specials, outputs);  // rows of nothing
      add({2, 0}, 1, {1}, specials, outputs);
      add({2, 3, 0, 4}, 2, {4}, specials, outputs);
      add({0, 7}, 1, {7}, specials, outputs);
      add({4, 1}, 1, {1}, specials, outputs);
      for (const Real x : {Real{INFINITY}, -Real{INFINITY}, Real{NAN}}) {
        add({3, 20}, 1, {20}, {1, 2, 3, x, 5, 6, 7}, outputs);
      }
    }
    return cases;
  };
  layer.values = [](const Arguments& a) {
    const Array& x = a.in[0];
    const size_t axis = static_cast<size_t>(a.attributes().Int("axis", 0));
    const Dims row(x.dims.begin() + static_cast<ptrdiff_t>(axis), x.dims.end());
    const int64_t n = Elements(row);
    const int64_t rows = Elements(
        Dims(x.dims.begin(), x.dims.begin() + static_cast<ptrdiff_t>(axis)));
    Reals result;
    for (int64_t r = 0; r < rows; ++r) {
      Real sum = 0, squares = 0;
      for (int64_t i = 0; i < n; ++i) sum += x.at(r * n + i);
      const Real mean = sum / static_cast<Real>(n);
      for (int64_t i = 0; i < n; ++i) {
        squares += (x.at(r * n + i) - mean) * (x.at(r * n + i) - mean);
      }
      const Real factor = 1 / std::sqrt(squares / static_cast<Real>(n) +
                                        static_cast<Real>(1e-5f));
      if (a.output > 0) {
        result.push_back(a.output == 1 ? mean : factor);
        continue;
      }
      for (int64_t i = 0; i < n; ++i) {
        result.push_back((x.at(r * n + i) - mean) * factor *
                             a.in[1].at(Broadcast(row, a.in[1].dims, i)) +
                         a.in[2].at(Broadcast(row, a.in[2].dims, i)));
      }
    }
    return result;
  };
  // A row of equal elements has a deviation of sqrt(epsilon) alone.
  layer.float_bound = {.ulps = 64, .absolute = 0x1p-14};
  layer.half_bound = {.ulps = 1, .absolute = 0x1p-14};
  (*corners)[".LayerNormalization"] = std::move(layer);

  Corner batch;
  batch.cases = [](DType dtype) {
    std::vector<Case> cases;
    const Reals specials = Specials(dtype, Ends::kNoLargest);
    const auto add = [&](const Dims& dims, const Reals& x, const Reals& scale,
                         const Reals& mean, const Reals& variance) {
      const int64_t c = dims.size() == 1 ? 1 : dims[1];
      cases.push_back(
          {Node("BatchNormalization"),
           {Filled(dtype, dims, x), Filled(dtype, {c}, scale),
            Filled(dtype, {c}, {0.5L, -1}), Filled(dtype, {c}, mean),
            Filled(dtype, {c}, variance)}});
    };
    for (const Dims& dims : {Dims{2, 15, 3}, Dims{3, 15}, Dims{4}, Dims{0, 3},
                             Dims{2, 0, 3}, Dims{2, 3, 0}}) {
      add(dims, specials, {1, 2}, {0, 1}, {1, 4});
      add(dims, {1, 2, 3}, specials, {0}, {1});
      add(dims, {1, 2, 3}, {1}, specials, {1});
      add(dims, {1, 2, 3}, {1}, {0}, specials);
    }
    return cases;
  };
  batch.values = [](const Arguments& a) {
    const Array& x = a.in[0];
    Reals result;
    for (int64_t i = 0; i < x.size(); ++i) {
      const Dims index = Unflatten(x.dims, i);
      const int64_t c = x.dims.size() == 1 ? 0 : index[1];
      result.push_back(
          (x.at(i) - a.in[3].at(c)) *
              (a.in[1].at(c) /
               std::sqrt(a.in[4].at(c) + static_cast<Real>(1e-5f))) +
          a.in[2].at(c));
    }
    return result;
  };
  batch.float_bound = {.ulps = 16, .absolute = 0x1p-14};
  batch.half_bound = {.ulps = 1, .absolute = 0x1p-10};
  (*corners)[".BatchNormalization"] = std::move(batch);
}

}  // namespace

void AddNetworkCorners(Corners* corners) {
  AddProducts(corners);
  AddPooling(corners);
  AddConv(corners);
  AddNormalization(corners);
}

}  // namespace weir::corners
