// Operators that move elements: every bit arrives where it belongs.
#include <algorithm>
#include <numeric>

#include "tests/ops/corners/corner.h"

namespace weir::corners {
namespace {

const Dims kShapes[] = {{}, {0}, {1}, {7}, {2, 0, 3}, {3, 5, 2}};

std::vector<Source> InOrder(const Arguments& a) {
  std::vector<Source> from(static_cast<size_t>(a.out.elements));
  for (size_t i = 0; i < from.size(); ++i) {
    from[i] = {0, static_cast<int64_t>(i)};
  }
  return from;
}

// For each output element, the index in input 0 that `source` gives; nothing
// is the fill, all bits 0 or the lone element of `fill_input`.
template <typename Fn>
std::vector<Source> ByIndex(const Arguments& a, const Fn& source,
                            int fill_input = -1) {
  std::vector<Source> from;
  for (int64_t i = 0; i < a.out.elements; ++i) {
    std::optional<Dims> index = source(Unflatten(a.out.dims, i));
    from.push_back(index.has_value() ? Source{0, Flatten(a.in[0].dims, *index)}
                                     : Source{fill_input, 0});
  }
  return from;
}

List Ints(const Array& array) {
  List list;
  for (const Real x : array.v) list.push_back(static_cast<int64_t>(x));
  return list;
}

// -- The same order -----------------------------------------------------------

void AddShapes(Corners* corners) {
  Corner same;
  same.moves = InOrder;
  same.cases = [](DType dtype) {
    std::vector<Case> cases;
    for (const Dims& dims : kShapes) {
      cases.push_back(
          {Node("Identity"), {Filled(dtype, dims, Specials(dtype))}});
    }
    return cases;
  };
  (*corners)[".Identity"] = same;
  same.cases = [](DType dtype) {
    std::vector<Case> cases;
    for (const Dims& dims : kShapes) {
      cases.push_back({Node("Flatten", Attrs({{"axis", int64_t{0}}})),
                       {Filled(dtype, dims, Specials(dtype))}});
    }
    return cases;
  };
  (*corners)[".Flatten"] = same;
  same.cases = [](DType dtype) {
    const auto with = [dtype](const Dims& dims, const List& shape,
                              int64_t allow_zero = 0) {
      return Case{Node("Reshape", Attrs({{"allowzero", allow_zero}})),
                  {Filled(dtype, dims, Specials(dtype)), Int64s(shape)}};
    };
    return std::vector<Case>{with({}, {}),
                             with({}, {1, 1}),
                             with({1}, {}),
                             with({0}, {0, 3}, 1),
                             with({0, 3}, {3, 0}, 1),
                             with({2, 0, 3}, {0}, 1),
                             with({3, 5, 2}, {-1}),
                             with({3, 5, 2}, {2, 0, -1})};
  };
  (*corners)[".Reshape"] = same;
  same.cases = [](DType dtype) {
    const auto with = [dtype](const Dims& dims, std::optional<List> axes) {
      Case one{Node("Squeeze"), {Filled(dtype, dims, Specials(dtype))}};
      if (axes.has_value()) one.inputs.push_back(Int64s(*axes));
      return one;
    };
    return std::vector<Case>{with({}, {}), with({1}, {}), with({1, 0, 1}, {}),
                             with({1, 3, 1}, List{-1}), with({2}, List{})};
  };
  (*corners)[".Squeeze"] = same;
  same.cases = [](DType dtype) {
    const auto with = [dtype](const Dims& dims, const List& axes) {
      return Case{Node("Unsqueeze"),
                  {Filled(dtype, dims, Specials(dtype)), Int64s(axes)}};
    };
    return std::vector<Case>{with({}, {0}), with({}, {}), with({0}, {-1, 0}),
                             with({3}, {1})};
  };
  (*corners)[".Unsqueeze"] = same;

  Corner shape;
  shape.cases = [](DType dtype) {
    std::vector<Case> cases;
    for (const Dims& dims : kShapes) {
      cases.push_back({Node("Shape"), {Filled(dtype, dims, Specials(dtype))}});
      cases.push_back({Node("Shape", Attrs({{"start", int64_t{-2}},
                                            {"end", int64_t{100}}})),
                       {Filled(dtype, dims, Specials(dtype))}});
    }
    return cases;
  };
  shape.values = [](const Arguments& a) {
    const Dims& dims = a.in[0].dims;
    const int64_t rank = static_cast<int64_t>(dims.size());
    const bool part = a.attributes().Has("start");
    const int64_t first = part ? std::max<int64_t>(rank - 2, 0) : 0;
    return Reals(dims.begin() + first, dims.end());
  };
  (*corners)[".Shape"] = std::move(shape);
}

// -- Constants ----------------------------------------------------------------

std::shared_ptr<const Constant> AsConstant(const Value& value) {
  auto owner = std::make_shared<const std::vector<std::byte>>(value.bytes);
  auto constant = std::make_shared<Constant>();
  constant->tensor = {value.dtype, value.dims, owner->data()};
  constant->owner = owner;
  return constant;
}

void AddConstants(Corners* corners) {
  Corner constant;
  constant.cases = [](DType) {
    std::vector<Case> cases;
    for (int number = 1; number <= 16; ++number) {
      const auto dtype = DTypeFromOnnx(number);
      if (!dtype.has_value() || !kFixedTypes.Has(*dtype)) continue;
      for (const Dims& dims : kShapes) {
        cases.push_back(
            {Node("Constant",
                  Attrs({{"value", AsConstant(Filled(*dtype, dims,
                                                     Specials(*dtype)))}})),
             {}});
      }
    }
    return cases;
  };
  constant.values = [](const Arguments& a) {
    const HostTensor& tensor = a.attributes().Tensor("value")->tensor;
    const auto* data = static_cast<const std::byte*>(tensor.data);
    return Read({tensor.dtype, tensor.dims,
                 std::vector<std::byte>(data, data + a.out.bytes)})
        .v;
  };
  constant.zero_sign = true;
  (*corners)[".Constant"] = std::move(constant);

  Corner fill;
  fill.cases = [](DType) {
    std::vector<Case> cases;
    for (int number = 1; number <= 16; ++number) {
      const auto dtype = DTypeFromOnnx(number);
      if (!dtype.has_value() || !kFixedTypes.Has(*dtype)) continue;
      const Reals specials = Specials(*dtype);
      for (size_t i = 0; i < specials.size(); ++i) {
        const List shape = std::vector<List>{{}, {0}, {3}, {2, 0}}[i % 4];
        cases.push_back(
            {Node("ConstantOfShape",
                  Attrs({{"value",
                          AsConstant(Filled(*dtype, {1}, specials, i))}})),
             {Int64s(shape)}});
      }
    }
    return cases;
  };
  fill.values = [](const Arguments& a) {
    const HostTensor& tensor = a.attributes().Tensor("value")->tensor;
    const auto* data = static_cast<const std::byte*>(tensor.data);
    const Array one =
        Read({tensor.dtype,
              {1},
              std::vector<std::byte>(data, data + SizeOf(tensor.dtype))});
    return Reals(static_cast<size_t>(a.out.elements), one.v[0]);
  };
  fill.zero_sign = true;
  (*corners)[".ConstantOfShape"] = std::move(fill);
}

// -- Other orders -------------------------------------------------------------

void AddTransposeAndExpand(Corners* corners) {
  Corner transpose;
  transpose.cases = [](DType dtype) {
    std::vector<Case> cases;
    const auto add = [&](const Dims& dims, const List& perm) {
      cases.push_back({Node("Transpose", Attrs({{"perm", perm}})),
                       {Filled(dtype, dims, Specials(dtype))}});
    };
    add({}, {});
    add({0}, {0});
    add({1}, {0});
    add({2, 0, 3}, {2, 0, 1});
    add({3, 5, 2}, {1, 0, 2});
    add({40, 33}, {1, 0});
    cases.push_back(
        {Node("Transpose"), {Filled(dtype, {3, 5, 2}, Specials(dtype))}});
    return cases;
  };
  transpose.moves = [](const Arguments& a) {
    const size_t rank = a.in[0].dims.size();
    List perm(rank);
    std::iota(perm.rbegin(), perm.rend(), int64_t{0});
    if (a.attributes().Has("perm")) perm = a.attributes().Ints("perm");
    return ByIndex(a, [&](const Dims& index) {
      Dims from(rank);
      for (size_t d = 0; d < rank; ++d) {
        from[static_cast<size_t>(perm[d])] = index[d];
      }
      return std::optional<Dims>(from);
    });
  };
  (*corners)[".Transpose"] = std::move(transpose);

  Corner expand;
  expand.cases = [](DType dtype) {
    const auto with = [dtype](const Dims& dims, const List& shape) {
      return Case{Node("Expand"),
                  {Filled(dtype, dims, Specials(dtype)), Int64s(shape)}};
    };
    return std::vector<Case>{with({}, {}),
                             with({}, {2, 3}),
                             with({1}, {0}),
                             with({3, 1}, {2, 1, 7}),
                             with({0}, {1}),
                             with({1, 5}, {3, 1}),
                             with({2, 1, 3}, {0, 1, 4, 3})};
  };
  expand.moves = [](const Arguments& a) {
    std::vector<Source> from;
    for (int64_t i = 0; i < a.out.elements; ++i) {
      from.push_back({0, Broadcast(a.out.dims, a.in[0].dims, i)});
    }
    return from;
  };
  (*corners)[".Expand"] = std::move(expand);
}

void AddSliceAndPad(Corners* corners) {
  Corner slice;
  slice.cases = [](DType dtype) {
    constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
    constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
    const auto with = [dtype](const Dims& dims, int64_t start, int64_t end,
                              int64_t axis, int64_t step) {
      return Case{Node("Slice"),
                  {Filled(dtype, dims, Specials(dtype)), Int64s({start}),
                   Int64s({end}), Int64s({axis}), Int64s({step})}};
    };
    return std::vector<Case>{
        with({7}, 1, 5, 0, 2),        with({7}, kMin, kMax, 0, 1),
        with({7}, kMax, kMin, 0, -1), with({7}, -1, kMin, -1, kMin),
        with({7}, 0, kMax, 0, kMax),  with({7}, 5, 1, 0, 1),
        with({0}, 0, kMax, 0, 1),     with({0}, kMax, kMin, 0, -1),
        with({3, 5, 2}, -2, 9, 1, 1), with({2, 0, 3}, 1, 2, 2, 1),
        with({3, 5, 2}, 4, 0, 1, -3), with({7}, -9, kMin, 0, -1)};
  };
  // ONNX's rule. With a negative step NumPy differs: from a start before the
  // first element it keeps nothing.
  slice.moves = [](const Arguments& a) {
    const size_t axis = static_cast<size_t>(
        (Ints(a.in[3])[0] + static_cast<int64_t>(a.in[0].dims.size())) %
        static_cast<int64_t>(a.in[0].dims.size()));
    const int64_t size = a.in[0].dims[axis];
    const Real step = static_cast<Real>(Ints(a.in[4])[0]);
    int64_t start = Ints(a.in[1])[0];
    if (start < 0) start += size;
    start = std::max<int64_t>(0, std::min(start, step > 0 ? size : size - 1));
    return ByIndex(a, [&](Dims index) {
      index[axis] = static_cast<int64_t>(static_cast<Real>(start) +
                                         static_cast<Real>(index[axis]) * step);
      return std::optional<Dims>(index);
    });
  };
  (*corners)[".Slice"] = std::move(slice);

  Corner pad;
  pad.cases = [](DType dtype) {
    std::vector<Case> cases;
    const Reals specials = Specials(dtype);
    const auto add = [&](const char* mode, const Dims& dims, const List& pads,
                         std::optional<size_t> fill = {}) {
      Case one{Node("Pad", Attrs({{"mode", std::string(mode)}})),
               {Filled(dtype, dims, specials), Int64s(pads)}};
      if (fill.has_value()) {
        one.inputs.push_back(Filled(dtype, {}, specials, *fill));
      }
      cases.push_back(std::move(one));
    };
    for (size_t i = 0; i < specials.size(); ++i) {
      add("constant", {2, 3}, {1, 0, 2, 1}, i);
    }
    add("constant", {2, 3}, {1, -1, 0, -1});
    add("constant", {}, {});
    add("constant", {0}, {2, 1});
    add("constant", {2, 0}, {0, 1, 0, 1}, 1);
    add("constant", {3}, {-3, 0});
    for (const char* mode : {"reflect", "edge", "wrap"}) {
      add(mode, {3}, {2, 1});
      add(mode, {3}, {7, 9});
      add(mode, {1}, {3, 4});
      add(mode, {2, 3}, {0, 2, 1, -1});
      add(mode, {0, 2}, {0, 1, 0, 1});
      add(mode, {}, {});
    }
    return cases;
  };
  pad.moves = [](const Arguments& a) {
    const List pads = Ints(a.in[1]);
    const std::string mode = a.attributes().String("mode", "");
    const int fill = a.in.size() > 2 ? 2 : -1;
    const auto inside = [&](int64_t i, int64_t n) -> std::optional<int64_t> {
      if (i >= 0 && i < n) return i;
      if (mode == "constant") return std::nullopt;
      if (mode == "edge") return i < 0 ? 0 : n - 1;
      if (mode == "wrap") return ((i % n) + n) % n;
      while (i < 0 || i >= n) {  // there and back
        if (n == 1) return 0;
        i = i < 0 ? -i : 2 * (n - 1) - i;
      }
      return i;
    };
    return ByIndex(
        a,
        [&](Dims index) -> std::optional<Dims> {
          for (size_t d = 0; d < index.size(); ++d) {
            const auto at = inside(index[d] - pads[d], a.in[0].dims[d]);
            if (!at.has_value()) return std::nullopt;
            index[d] = *at;
          }
          return index;
        },
        fill);
  };
  (*corners)[".Pad"] = std::move(pad);
}

void AddConcatAndSplit(Corners* corners) {
  Corner concat;
  concat.cases = [](DType dtype) {
    const auto with = [dtype](int64_t axis, const std::vector<Dims>& parts) {
      Case one{Node("Concat", Attrs({{"axis", axis}})), {}};
      for (size_t i = 0; i < parts.size(); ++i) {
        one.inputs.push_back(Filled(dtype, parts[i], Specials(dtype), i));
      }
      return one;
    };
    return std::vector<Case>{
        with(0, {{3}}), with(0, {{0}, {0}}), with(0, {{2}, {0}, {5}}),
        with(-1, {{2, 1, 3}, {2, 1, 0}, {2, 1, 4}}), with(1, {{0, 2}, {0, 3}})};
  };
  concat.moves = [](const Arguments& a) {
    const int64_t rank = static_cast<int64_t>(a.out.dims.size());
    const size_t axis =
        static_cast<size_t>((a.attributes().Int("axis", 0) + rank) % rank);
    std::vector<Source> from;
    for (int64_t i = 0; i < a.out.elements; ++i) {
      Dims index = Unflatten(a.out.dims, i);
      size_t k = 0;
      while (index[axis] >= a.in[k].dims[axis]) {
        index[axis] -= a.in[k++].dims[axis];
      }
      from.push_back({static_cast<int>(k), Flatten(a.in[k].dims, index)});
    }
    return from;
  };
  (*corners)[".Concat"] = std::move(concat);

  Corner split;
  split.cases = [](DType dtype) {
    const auto with = [dtype](const Dims& dims, int64_t axis,
                              const List& sizes) {
      Case one{Node("Split", Attrs({{"axis", axis}})),
               {Filled(dtype, dims, Specials(dtype)), Int64s(sizes)}};
      one.node.num_outputs = static_cast<int>(sizes.size());
      return one;
    };
    return std::vector<Case>{with({7}, 0, {7}), with({7}, 0, {0, 3, 0, 4}),
                             with({0}, 0, {0, 0}), with({3, 5, 2}, 1, {1, 4}),
                             with({2, 0, 3}, -1, {1, 2})};
  };
  split.moves = [](const Arguments& a) {
    const int64_t rank = static_cast<int64_t>(a.out.dims.size());
    const size_t axis =
        static_cast<size_t>((a.attributes().Int("axis", 0) + rank) % rank);
    const List sizes = Ints(a.in[1]);
    const int64_t before = std::accumulate(
        sizes.begin(), sizes.begin() + static_cast<ptrdiff_t>(a.output),
        int64_t{0});
    return ByIndex(a, [&](Dims index) {
      index[axis] += before;
      return std::optional<Dims>(index);
    });
  };
  (*corners)[".Split"] = std::move(split);
}

void AddGather(Corners* corners) {
  Corner gather;
  gather.cases = [](DType dtype) {
    const auto with = [dtype](const Dims& dims, int64_t axis, const Dims& shape,
                              const List& indices) {
      return Case{
          Node("Gather", Attrs({{"axis", axis}})),
          {Filled(dtype, dims, Specials(dtype)), Of<int64_t>(shape, indices)}};
    };
    return std::vector<Case>{with({7}, 0, {}, {-7}),
                             with({7}, 0, {0}, {}),
                             with({3, 5, 2}, 1, {2}, {4, -5}),
                             with({3, 0}, 0, {1, 2}, {2, -1}),
                             with({0, 3}, 1, {2}, {0, 2}),
                             with({4}, -1, {2, 0}, {}),
                             Case{Node("Gather"),
                                  {Filled(dtype, {4, 3}, Specials(dtype)),
                                   Of<int32_t>({2, 1}, {3, -4})}}};
  };
  gather.moves = [](const Arguments& a) {
    const Array& data = a.in[0];
    const int64_t rank = static_cast<int64_t>(data.dims.size());
    const size_t axis =
        static_cast<size_t>((a.attributes().Int("axis", 0) + rank) % rank);
    const size_t inserted = a.in[1].dims.size();
    return ByIndex(a, [&](const Dims& index) {
      Dims of_index(index.begin() + static_cast<ptrdiff_t>(axis),
                    index.begin() + static_cast<ptrdiff_t>(axis + inserted));
      int64_t at =
          static_cast<int64_t>(a.in[1].at(Flatten(a.in[1].dims, of_index)));
      if (at < 0) at += data.dims[axis];
      Dims from(index.begin(), index.begin() + static_cast<ptrdiff_t>(axis));
      from.push_back(at);
      from.insert(from.end(),
                  index.begin() + static_cast<ptrdiff_t>(axis + inserted),
                  index.end());
      return std::optional<Dims>(from);
    });
  };
  (*corners)[".Gather"] = std::move(gather);
}

}  // namespace

void AddMovementCorners(Corners* corners) {
  AddShapes(corners);
  AddConstants(corners);
  AddTransposeAndExpand(corners);
  AddSliceAndPad(corners);
  AddConcatAndSplit(corners);
  AddGather(corners);
}

}  // namespace weir::corners
