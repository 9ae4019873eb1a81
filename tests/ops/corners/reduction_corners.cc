// Reductions, among them those of nothing.
#include <cmath>

#include "tests/ops/corners/corner.h"

namespace weir::corners {
namespace {

// The elements that end in each output, whose reduced dims are kept as 1.
std::vector<Reals> Groups(const Array& x, const List& axes) {
  const int64_t rank = static_cast<int64_t>(x.dims.size());
  Dims kept = x.dims;
  if (axes.empty()) std::fill(kept.begin(), kept.end(), 1);
  for (int64_t axis : axes) kept[static_cast<size_t>((axis + rank) % rank)] = 1;
  std::vector<Reals> groups(static_cast<size_t>(Elements(kept)));
  for (int64_t i = 0; i < x.size(); ++i) {
    Dims index = Unflatten(x.dims, i);
    for (size_t d = 0; d < index.size(); ++d) {
      if (kept[d] == 1) index[d] = 0;
    }
    groups[static_cast<size_t>(Flatten(kept, index))].push_back(x.at(i));
  }
  return groups;
}

struct Shape {
  Dims dims;
  List axes;
};

const Shape kShapes[] = {
    {{15}, {0}},      {{}, {}},         {{15, 4}, {0}},
    {{4, 15}, {-1}},  {{3, 5, 4}, {1}}, {{3, 5, 4}, {0, 2}},
    {{0}, {0}},       {{2, 0}, {1}},    {{0, 2}, {1}},
    {{2, 0, 3}, {}},  {{2, 0, 3}, {2}}, {{1}, {0}},
    {{70, 200}, {1}}, {{200, 70}, {0}}, {{20000}, {0}},
};

List AxesOf(const Arguments& a) {
  List axes;
  if (a.in.size() < 2) return axes;
  for (const Real x : a.in[1].v) axes.push_back(static_cast<int64_t>(x));
  return axes;
}

std::vector<Case> ReduceCases(const std::string& op, DType dtype, Ends ends) {
  std::vector<Case> cases;
  const Reals specials = Specials(dtype, ends);
  Reals finite;
  for (const Real x : specials) {
    if (std::isfinite(x)) finite.push_back(x);
  }
  for (const Shape& shape : kShapes) {
    // With NaN and infinities in most groups, and with none.
    for (const Reals& values : {specials, finite}) {
      Case one{Node(op), {Filled(dtype, shape.dims, values)}};
      if (!shape.axes.empty()) one.inputs.push_back(Int64s(shape.axes));
      cases.push_back(std::move(one));
    }
  }
  // Each special value alone among ordinary ones.
  for (const Real x : specials) {
    Case one{Node(op), {Make(dtype, {3}, {1, x, 1})}};
    cases.push_back(std::move(one));
  }
  return cases;
}

template <typename Fn>
void Add(Corners* corners, const std::string& op, Ends ends, const Fn& reduce,
         Bound bound) {
  Corner corner;
  corner.cases = [op, ends](DType dtype) {
    return ReduceCases(op, dtype, ends);
  };
  corner.values = [reduce](const Arguments& a) {
    Reals result;
    for (const Reals& group : Groups(a.in[0], AxesOf(a))) {
      result.push_back(reduce(group, a.in[0].dtype));
    }
    return result;
  };
  corner.float_bound = bound;
  (*corners)["." + op] = std::move(corner);
}

// Sums of integers wrap at 64 bits.
__int128 IntegerSum(const Reals& group, DType dtype) {
  uint64_t sum = 0;
  for (const Real x : group) {
    sum += static_cast<uint64_t>(static_cast<__int128>(x));
  }
  return kUnsignedIntTypes.Has(dtype)
             ? static_cast<__int128>(sum)
             : static_cast<__int128>(static_cast<int64_t>(sum));
}

Real ToType(DType dtype, __int128 x) {
  Real result = 0;
  DispatchType(IntTypeList(), dtype, [&](auto tag) {
    using T = typename decltype(tag)::Type;
    result = static_cast<Real>(static_cast<T>(x));
  });
  return result;
}

Real Sum(const Reals& group) {
  Real sum = 0;
  for (const Real x : group) sum += x;
  return sum;
}

// The greatest or least; NaN wins. Of nothing, the other end of the type.
Real Extreme(const Reals& group, DType dtype, bool most) {
  Real best = most ? -INFINITY : INFINITY;
  if (dtype == DType::kBool) {
    best = most ? 0 : 1;
  } else if (!IsFloating(dtype)) {
    DispatchType(IntTypeList(), dtype, [&](auto tag) {
      using T = typename decltype(tag)::Type;
      best = static_cast<Real>(most ? std::numeric_limits<T>::min()
                                    : std::numeric_limits<T>::max());
    });
  }
  for (const Real x : group) {
    if (x != x) return x;
    best = most ? std::max(best, x) : std::min(best, x);
  }
  return best;
}

}  // namespace

void AddReductionCorners(Corners* corners) {
  // Sums of doubles that nearly cancel are known to an ulp of what they pass.
  const Bound summed = {.ulps = 0.51, .absolute = 0x1p-40};
  Add(
      corners, "ReduceSum", Ends::kNoLargest,
      [](const Reals& group, DType dtype) {
        return IsFloating(dtype) ? Sum(group)
                                 : ToType(dtype, IntegerSum(group, dtype));
      },
      summed);
  Add(
      corners, "ReduceMean", Ends::kNoLargest,
      [](const Reals& group, DType dtype) {
        if (IsFloating(dtype)) {
          return Sum(group) / static_cast<Real>(group.size());
        }
        return group.empty()
                   ? Real{0}
                   : ToType(dtype, IntegerSum(group, dtype) /
                                       static_cast<__int128>(group.size()));
      },
      summed);
  Add(corners, "ReduceMax", Ends::kAll,
      [](const Reals& group, DType dtype) {
        return Extreme(group, dtype, true);
      },
      {});
  Add(corners, "ReduceMin", Ends::kAll,
      [](const Reals& group, DType dtype) {
        return Extreme(group, dtype, false);
      },
      {});

  Corner arg_max;
  arg_max.cases = [](DType dtype) {
    std::vector<Case> cases;
    for (const Shape& shape : kShapes) {
      if (shape.axes.size() != 1) continue;
      const int64_t rank = static_cast<int64_t>(shape.dims.size());
      // An empty axis has no greatest element: refused.
      const int64_t axis = shape.axes[0];
      if (shape.dims[static_cast<size_t>((axis + rank) % rank)] == 0) continue;
      for (const int64_t last : {0, 1}) {
        cases.push_back({Node("ArgMax", Attrs({{"axis", axis},
                                               {"select_last_index", last}})),
                         {Filled(dtype, shape.dims, Specials(dtype))}});
      }
    }
    for (const Real x : Specials(dtype)) {
      cases.push_back({Node("ArgMax"), {Make(dtype, {3}, {1, x, 1})}});
    }
    return cases;
  };
  arg_max.values = [](const Arguments& a) {
    const bool last = a.attributes().Int("select_last_index", 0) != 0;
    Reals result;
    for (const Reals& group :
         Groups(a.in[0], {a.attributes().Int("axis", 0)})) {
      size_t best = 0;
      for (size_t i = 1; i < group.size(); ++i) {
        const Real x = group[i], y = group[best];
        const bool greater = x > y || (x != x && y == y);
        const bool equal = x == y || (x != x && y != y);
        if (greater || (equal && last)) best = i;
      }
      result.push_back(static_cast<Real>(best));
    }
    return result;
  };
  (*corners)[".ArgMax"] = std::move(arg_max);
}

}  // namespace weir::corners
