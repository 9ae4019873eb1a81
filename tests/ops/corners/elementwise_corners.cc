// Operators that compute each element from one of each input.
#include <cmath>

#include "tests/ops/corners/corner.h"

namespace weir::corners {
namespace {

using Int = __int128;
using Bits = unsigned __int128;
// One element from the elements of the inputs.
using FloatFunction = std::function<Real(const Reals&)>;
using IntFunction = std::function<Int(const std::vector<Int>&)>;

// To a type's bits, as two's complement wraps.
Real Wrapped(DType dtype, Int x) {
  Real result = 0;
  DispatchType(FixedTypeList(), dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    if constexpr (std::is_integral_v<T>) {
      result = static_cast<Real>(static_cast<T>(x));
    }
  });
  return result;
}

// Shapes of one input: every special value, scalars, empty ones.
std::vector<Dims> UnaryShapes(const Reals& specials) {
  return {{static_cast<int64_t>(specials.size())}, {}, {0}, {2, 0, 3}};
}

std::vector<Case> UnaryCases(const NodeInfo& node, DType dtype) {
  std::vector<Case> cases;
  const Reals specials = Specials(dtype);
  for (const Dims& dims : UnaryShapes(specials)) {
    cases.push_back({node, {Filled(dtype, dims, specials)}});
  }
  for (size_t i = 1; i < specials.size(); ++i) {
    cases.push_back({node, {Filled(dtype, {}, specials, i)}});
  }
  return cases;
}

// Every special value with every other; scalars; nothing.
std::vector<Case> BinaryCases(const NodeInfo& node, DType a, DType b,
                              const Reals& of_a, const Reals& of_b) {
  const int64_t n = static_cast<int64_t>(of_a.size());
  const int64_t m = static_cast<int64_t>(of_b.size());
  return {
      {node, {Filled(a, {n, 1}, of_a), Filled(b, {1, m}, of_b)}},
      {node, {Filled(a, {n, m}, of_a), Filled(b, {n, m}, of_b, 3)}},
      {node, {Filled(a, {n}, of_a), Filled(b, {}, of_b, 1)}},
      {node, {Filled(a, {}, of_a, 2), Filled(b, {m}, of_b)}},
      {node, {Filled(a, {}, of_a, 5), Filled(b, {}, of_b, 6)}},
      {node, {Filled(a, {0}, of_a), Filled(b, {1}, of_b)}},
      {node, {Filled(a, {2, 0, 3}, of_a), Filled(b, {3}, of_b)}},
  };
}

std::vector<Case> BinaryCases(const NodeInfo& node, DType dtype) {
  const Reals specials = Specials(dtype);
  return BinaryCases(node, dtype, dtype, specials, specials);
}

// Applies the function of the first input's kind; integers wrap to the
// output's type.
std::function<Reals(const Arguments&)> Each(FloatFunction of_floats,
                                            IntFunction of_ints = nullptr) {
  return [=](const Arguments& a) {
    Reals result;
    const bool floats = IsFloating(a.in[0].dtype);
    for (int64_t i = 0; i < a.out.elements; ++i) {
      Reals x;
      std::vector<Int> n;
      for (const Array& in : a.in) {
        if (in.dtype == DType::kInvalid) continue;
        // A lone element stands for all, whatever its rank.
        const int64_t at =
            in.size() == 1 ? 0 : Broadcast(a.out.dims, in.dims, i);
        x.push_back(in.at(at));
        if (!floats && !IsFloating(in.dtype)) {
          n.push_back(static_cast<Int>(in.at(at)));
        }
      }
      result.push_back(floats || of_ints == nullptr
                           ? of_floats(x)
                           : Wrapped(a.out.dtype, of_ints(n)));
    }
    return result;
  };
}

void Unary(Corners* corners, const std::string& op, FloatFunction f,
           Bound bound, IntFunction ints = nullptr, bool zero_sign = false,
           Attributes attributes = {}, Bound half = {.ulps = 0.51}) {
  Corner corner;
  corner.cases = [node = Node(op, std::move(attributes))](DType dtype) {
    return UnaryCases(node, dtype);
  };
  corner.values = Each(std::move(f), std::move(ints));
  corner.float_bound = bound;
  corner.half_bound = half;
  corner.zero_sign = zero_sign;
  (*corners)["." + op] = std::move(corner);
}

void Binary(Corners* corners, const std::string& op, FloatFunction f,
            Bound bound, IntFunction ints = nullptr, bool zero_sign = false) {
  Corner corner;
  corner.cases = [node = Node(op)](DType dtype) {
    return BinaryCases(node, dtype);
  };
  corner.values = Each(std::move(f), std::move(ints));
  corner.float_bound = bound;
  corner.zero_sign = zero_sign;
  (*corners)["." + op] = std::move(corner);
}

Real Least(Real a, Real b) {
  if (a != a || b != b) return NAN;
  return a < b ? a : b;
}
Real Greatest(Real a, Real b) {
  if (a != a || b != b) return NAN;
  return a > b ? a : b;
}

Int PowerOf(Int a, Int b) {
  if (b < 0) return a == 1 ? 1 : a == -1 ? (b % 2 != 0 ? -1 : 1) : 0;
  Bits base = static_cast<Bits>(a), result = 1;
  for (; b > 0; b >>= 1, base *= base) {
    if ((b & 1) != 0) result *= base;
  }
  return static_cast<Int>(result);
}

// Toward zero, saturated; NaN is 0.
Real Saturated(DType dtype, Real x) {
  if (x != x) return 0;
  Real result = 0;
  DispatchType(IntTypeList(), dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    const Real low = static_cast<Real>(std::numeric_limits<T>::min());
    const Real high = static_cast<Real>(std::numeric_limits<T>::max());
    result = std::truncl(x < low ? low : x > high ? high : x);
  });
  return result;
}

void AddArithmetic(Corners* corners) {
  using R = const Reals&;
  using N = const std::vector<Int>&;
  Binary(
      corners, "Add", [](R x) { return x[0] + x[1]; }, {.ulps = 0.51},
      [](N n) { return n[0] + n[1]; }, true);
  Binary(
      corners, "Sub", [](R x) { return x[0] - x[1]; }, {.ulps = 0.51},
      [](N n) { return n[0] - n[1]; }, true);
  Binary(
      corners, "Mul", [](R x) { return x[0] * x[1]; }, {.ulps = 0.51},
      // The largest product needs the last bit.
      [](N n) {
        return static_cast<Int>(static_cast<Bits>(n[0]) *
                                static_cast<Bits>(n[1]));
      },
      true);
  Binary(
      corners, "Div", [](R x) { return x[0] / x[1]; }, {.ulps = 0.51},
      [](N n) { return n[0] / n[1]; }, true);
  // A zero divisor is a fault of integers: left out here.
  (*corners)[".Div"].cases = [](DType dtype) {
    const Reals specials = Specials(dtype);
    Reals divisors = specials;
    if (!IsFloating(dtype)) divisors.erase(divisors.begin());
    if (kUnsignedIntTypes.Has(dtype)) {
      std::erase(divisors, Real{0});  // the least value
    }
    return BinaryCases(Node("Div"), dtype, dtype, specials, divisors);
  };

  Corner pow;
  pow.cases = [](DType base) {
    std::vector<Case> cases;
    for (const DType exponent :
         {base, DType::kInt64, DType::kUint8, DType::kFloat}) {
      for (Case& one : BinaryCases(Node("Pow"), base, exponent, Specials(base),
                                   Specials(exponent))) {
        cases.push_back(std::move(one));
      }
    }
    return cases;
  };
  pow.values = [](const Arguments& a) {
    const bool exact = !IsFloating(a.in[0].dtype) && !IsFloating(a.in[1].dtype);
    if (exact) {
      return Each(nullptr, [](N n) { return PowerOf(n[0], n[1]); })(a);
    }
    // Integers become doubles first. (glibc's pow of long double takes
    // infinity to the power of -2^63 for infinity.)
    const auto in_reals = [](R x) {
      const auto base = static_cast<double>(x[0]);
      const auto exponent = static_cast<double>(x[1]);
      if (std::isinf(base)) return static_cast<Real>(std::pow(base, exponent));
      return std::pow(static_cast<Real>(base), static_cast<Real>(exponent));
    };
    Arguments floats{a.test, a.in, a.out, a.output};
    const DType base = a.in[0].dtype;
    floats.in[0].dtype = DType::kDouble;
    Reals result = Each(in_reals)(floats);
    if (IsFloating(base)) return result;
    for (Real& x : result) x = Saturated(base, x);
    return result;
  };
  pow.float_bound = {.ulps = 8};
  (*corners)[".Pow"] = std::move(pow);

  Binary(
      corners, "Min", [](R x) { return Least(x[0], x[1]); }, {},
      [](N n) { return std::min(n[0], n[1]); });
  Binary(
      corners, "Max", [](R x) { return Greatest(x[0], x[1]); }, {},
      [](N n) { return std::max(n[0], n[1]); });
}

void AddFunctions(Corners* corners) {
  using R = const Reals&;
  using N = const std::vector<Int>&;
  Unary(
      corners, "Neg", [](R x) { return -x[0]; }, {}, [](N n) { return -n[0]; },
      true);
  Unary(
      corners, "Abs", [](R x) { return std::fabs(x[0]); }, {},
      [](N n) { return n[0] < 0 ? -n[0] : n[0]; }, true);
  Unary(
      corners, "Relu", [](R x) { return x[0] < 0 ? 0 : x[0]; }, {},
      [](N n) { return std::max<Int>(n[0], 0); });
  Unary(
      corners, "Sqrt", [](R x) { return std::sqrt(x[0]); }, {.ulps = 0.51},
      nullptr, true);
  Unary(corners, "Exp", [](R x) { return std::exp(x[0]); }, {.ulps = 2});
  Unary(corners, "Log", [](R x) { return std::log(x[0]); }, {.ulps = 2});
  Unary(
      corners, "Erf", [](R x) { return std::erf(x[0]); }, {.ulps = 2},
      [](N n) { return n[0] > 0    ? (n[0] > 9 ? 1 : 0)
                       : n[0] < -9 ? -1
                                   : 0; });
  // Of integers the error function is cut to a whole number: only far from 0
  // does it round to 1 in double.
  (*corners)[".Erf"].values = Each([](R x) { return std::erf(x[0]); },
                                   [](N n) {
                                     const double y =
                                         std::erf(static_cast<double>(n[0]));
                                     return static_cast<Int>(y);
                                   });
  Unary(
      corners, "Tanh", [](R x) { return std::tanh(x[0]); }, {.ulps = 3},
      nullptr, true);
  Unary(corners, "Sigmoid", [](R x) { return 1 / (1 + std::exp(-x[0])); },
        {.ulps = 4});
  Unary(corners, "Gelu",
        [](R x) {
          return 0.5L * x[0] * std::erfc(-x[0] * 0.70710678118654752440L);
        },
        {.ulps = 64}, nullptr, false, {}, {.ulps = 0.6});

  Corner clip;
  clip.cases = [](DType dtype) {
    const Reals specials = Specials(dtype);
    const Value x =
        Filled(dtype, {static_cast<int64_t>(specials.size())}, specials);
    std::vector<Case> cases;
    for (size_t i = 0; i < specials.size(); ++i) {
      const Value low = Filled(dtype, {}, specials, i);
      const Value high = Filled(dtype, {1}, specials, i + 4);
      cases.push_back({Node("Clip"), {x, low, high}});
      cases.push_back({Node("Clip"), {x, low}});
      cases.push_back({Node("Clip"), {x, Value(), high}});
      cases.push_back({Node("Clip"), {Filled(dtype, {}, specials, i), low}});
    }
    cases.push_back({Node("Clip"), {x}});
    cases.push_back(
        {Node("Clip"),
         {Filled(dtype, {2, 0}, specials), Filled(dtype, {}, specials)}});
    return cases;
  };
  clip.values = [](const Arguments& a) {
    const bool low = a.in.size() > 1 && a.in[1].dtype != DType::kInvalid;
    const bool high = a.in.size() > 2;
    return Each([=](const Reals& x) {
      Real y = x[0];
      if (low) y = Greatest(y, x[1]);
      if (high) y = Least(y, x[low ? 2 : 1]);
      return y;
    })(a);
  };
  (*corners)[".Clip"] = std::move(clip);
}

void AddLogic(Corners* corners) {
  using R = const Reals&;
  Binary(corners, "Equal", [](R x) { return x[0] == x[1]; }, {});
  Binary(corners, "Less", [](R x) { return x[0] < x[1]; }, {});
  Binary(corners, "Greater", [](R x) { return x[0] > x[1]; }, {});
  Binary(corners, "And", [](R x) { return x[0] != 0 && x[1] != 0; }, {});
  Binary(corners, "Or", [](R x) { return x[0] != 0 || x[1] != 0; }, {});
  Unary(corners, "Not", [](R x) { return x[0] == 0; }, {});

  // The condition is of one type; what is chosen is moved.
  Corner where;
  where.cases = [](DType) {
    std::vector<Case> cases;
    for (int number = 1; number <= 16; ++number) {
      const auto dtype = DTypeFromOnnx(number);
      if (!dtype.has_value() || !kFixedTypes.Has(*dtype)) continue;
      const Reals specials = Specials(*dtype);
      const int64_t n = static_cast<int64_t>(specials.size());
      const auto add = [&](const Dims& c, const Dims& x, const Dims& y) {
        cases.push_back(
            {Node("Where"),
             {Filled(DType::kBool, c, {0, 1, 1}), Filled(*dtype, x, specials),
              Filled(*dtype, y, specials, 4)}});
      };
      add({n}, {n}, {n});
      add({2, 1}, {n}, {});
      add({}, {}, {});
      add({1}, {0}, {});
      add({2, 1, 1}, {0, 3}, {3});
    }
    return cases;
  };
  where.moves = [](const Arguments& a) {
    std::vector<Source> from;
    for (int64_t i = 0; i < a.out.elements; ++i) {
      const int k =
          a.in[0].at(Broadcast(a.out.dims, a.in[0].dims, i)) != 0 ? 1 : 2;
      from.push_back(
          {k, Broadcast(a.out.dims, a.in[static_cast<size_t>(k)].dims, i)});
    }
    return from;
  };
  (*corners)[".Where"] = std::move(where);
}

void AddCast(Corners* corners) {
  Corner cast;
  cast.cases = [](DType from) {
    std::vector<Case> cases;
    for (int number = 1; number <= 16; ++number) {
      const auto to = DTypeFromOnnx(number);
      if (!to.has_value() || !kFixedTypes.Has(*to)) continue;
      const NodeInfo node = Node("Cast", Attrs({{"to", int64_t{number}}}));
      for (Case& one : UnaryCases(node, from)) cases.push_back(std::move(one));
    }
    return cases;
  };
  cast.values = [](const Arguments& a) {
    Reals result;
    const DType to = a.out.dtype;
    for (const Real x : a.in[0].v) {
      if (to == DType::kBool) {
        result.push_back(x != 0);
      } else if (IsFloating(to)) {
        result.push_back(x);
      } else if (IsFloating(a.in[0].dtype)) {
        result.push_back(Saturated(to, x));
      } else {
        result.push_back(Wrapped(to, static_cast<Int>(x)));
      }
    }
    return result;
  };
  cast.float_bound = {.ulps = 0.5};
  cast.half_bound = {.ulps = 0.5};
  cast.zero_sign = true;
  (*corners)[".Cast"] = std::move(cast);
}

}  // namespace

void AddElementwiseCorners(Corners* corners) {
  AddArithmetic(corners);
  AddFunctions(corners);
  AddLogic(corners);
  AddCast(corners);
}

}  // namespace weir::corners
