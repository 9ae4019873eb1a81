// The operators of the domain "weir".
#include <algorithm>
#include <cmath>

#include "kernels/ops/image/resize_geometry.h"
#include "tests/ops/corners/corner.h"

namespace weir::corners {
namespace {

// -- Pictures -----------------------------------------------------------------

const Dims kPictures[] = {{4, 5, 3}, {1, 1, 1}, {2, 3, 4, 2}, {0, 4, 5, 3}};

// Sums over both axes, the rows first, as Resize makes them: what a tap of
// weight 0 meets does not count, be it NaN or infinite.
Reals Resized(const Arguments& a) {
  const Array& x = a.in[0];
  const size_t n = x.dims.size();
  const int64_t count = n == 4 ? x.dims[0] : 1;
  const int64_t h = x.dims[n - 3], w = x.dims[n - 2], c = x.dims[n - 1];
  const auto geometry =
      image::MakeResizeGeometry(
          h, w,
          {.x = static_cast<double>(a.attributes().Float("resize_x", 0)),
           .y = static_cast<double>(a.attributes().Float("resize_y", 0))})
          .value();
  image::ResizeFilter filter;
  if (a.attributes().String("interp_type", "linear") == "nearest") {
    filter.interpolation = image::Interpolation::kNearest;
  }
  const auto y =
      image::MakeAxisWeights(geometry.y, filter, {0, geometry.y.out_size});
  const auto across =
      image::MakeAxisWeights(geometry.x, filter, {0, geometry.x.out_size});
  const auto weight = [](const image::AxisWeights& axis, int64_t i, int64_t t) {
    return static_cast<Real>(
        axis.weights[static_cast<size_t>(i * axis.taps + t)]);
  };
  Reals result;
  for (int64_t p = 0; p < count; ++p) {
    for (int64_t i = 0; i < y.size(); ++i) {
      for (int64_t j = 0; j < across.size(); ++j) {
        for (int64_t k = 0; k < c; ++k) {
          Real sum = 0;
          for (int64_t s = 0; s < across.taps; ++s) {
            if (weight(across, j, s) == 0) continue;
            Real column = 0;
            for (int64_t t = 0; t < y.taps; ++t) {
              if (weight(y, i, t) == 0) continue;
              const int64_t row = y.first[static_cast<size_t>(i)] + t;
              const int64_t at = across.first[static_cast<size_t>(j)] + s;
              column +=
                  weight(y, i, t) * x.at(((p * h + row) * w + at) * c + k);
            }
            sum += weight(across, j, s) * column;
          }
          // Bytes are rounded half up.
          result.push_back(IsFloating(a.out.dtype) ? sum
                                                   : std::floor(sum + 0.5L));
        }
      }
    }
  }
  return result;
}

void AddPictures(Corners* corners) {
  Corner resize;
  resize.cases = [](DType dtype) {
    std::vector<Case> cases;
    for (const Dims& dims : kPictures) {
      for (const char* type : {"linear", "nearest"}) {
        for (const auto& [x, y] : {std::pair<float, float>{3, 2}, {7, -9}}) {
          const NodeInfo node =
              WeirNode("Resize", Attrs({{"resize_x", x},
                                        {"resize_y", y},
                                        {"interp_type", std::string(type)}}));
          // Bytes whose sums end half way between two would round either way.
          const Reals values = IsFloating(dtype)
                                   ? Specials(dtype, Ends::kNoLargest)
                                   : Reals{255};
          cases.push_back({node, {Filled(dtype, dims, values)}});
        }
      }
    }
    return cases;
  };
  resize.values = Resized;
  resize.float_bound = {.ulps = 32, .absolute = 0x1p-20};
  (*corners)["weir.Resize"] = std::move(resize);

  Corner crop;
  crop.cases = [](DType dtype) {
    std::vector<Case> cases;
    for (const Dims& dims : kPictures) {
      cases.push_back({WeirNode("Crop", Attrs({{"crop_w", 1.0f},
                                               {"crop_h", 1.0f},
                                               {"crop_pos_x", 1.0f}})),
                       {Filled(dtype, dims, Specials(dtype))}});
      cases.push_back(
          {WeirNode("Crop"), {Filled(dtype, dims, Specials(dtype))}});
    }
    return cases;
  };
  crop.moves = [](const Arguments& a) {
    const Dims& in = a.in[0].dims;
    const size_t n = in.size();
    const auto begin = [&](size_t d, const char* position) {
      return static_cast<int64_t>(std::floor(
          static_cast<double>(in[d] - a.out.dims[d]) *
              static_cast<double>(a.attributes().Float(position, 0.5f)) +
          0.5));
    };
    std::vector<Source> from;
    for (int64_t i = 0; i < a.out.elements; ++i) {
      Dims index = Unflatten(a.out.dims, i);
      index[n - 3] += begin(n - 3, "crop_pos_y");
      index[n - 2] += begin(n - 2, "crop_pos_x");
      from.push_back({0, Flatten(in, index)});
    }
    return from;
  };
  (*corners)["weir.Crop"] = std::move(crop);

  Corner flip;
  flip.cases = [](DType dtype) {
    std::vector<Case> cases;
    for (const Dims& dims : kPictures) {
      const Value x = Filled(dtype, dims, Specials(dtype));
      cases.push_back(
          {WeirNode("Flip", Attrs({{"vertical", int64_t{1}}})), {x}});
      const int64_t count = dims.size() == 4 ? dims[0] : 1;
      if (count == 0) continue;
      cases.push_back({WeirNode("Flip"),
                       {x, Filled(DType::kInt32, {count}, {0, INT32_MIN}),
                        Filled(DType::kBool, {}, {1})}});
    }
    return cases;
  };
  flip.moves = [](const Arguments& a) {
    const Dims& dims = a.out.dims;
    const size_t n = dims.size();
    const auto flag = [&](size_t input, const char* name, int64_t fallback,
                          int64_t picture) {
      if (a.in.size() <= input) return a.attributes().Int(name, fallback) != 0;
      return a.in[input].at(a.in[input].size() > 1 ? picture : 0) != 0;
    };
    std::vector<Source> from;
    for (int64_t i = 0; i < a.out.elements; ++i) {
      Dims index = Unflatten(dims, i);
      const int64_t picture = n == 4 ? index[0] : 0;
      if (flag(1, "horizontal", 1, picture)) {
        index[n - 2] = dims[n - 2] - 1 - index[n - 2];
      }
      if (flag(2, "vertical", 0, picture)) {
        index[n - 3] = dims[n - 3] - 1 - index[n - 3];
      }
      from.push_back({0, Flatten(dims, index)});
    }
    return from;
  };
  (*corners)["weir.Flip"] = std::move(flip);

  Corner normalize;
  normalize.cases = [](DType dtype) {
    std::vector<Case> cases;
    for (const Dims& dims : kPictures) {
      for (const int64_t to : {1, 2, 3, 10, 16}) {
        for (const char* layout : {"HWC", "CHW"}) {
          cases.push_back(
              {WeirNode("Normalize",
                        Attrs({{"dtype", to},
                               {"output_layout", std::string(layout)},
                               {"mean", std::vector<float>{1}},
                               {"stddev", std::vector<float>{0.5f}},
                               {"shift", 0.25f}})),
               {Filled(dtype, dims, Specials(dtype, Ends::kNoLargest))}});
        }
      }
    }
    return cases;
  };
  normalize.values = [](const Arguments& a) {
    const Dims& in = a.in[0].dims;
    const size_t n = in.size();
    const bool planes = a.attributes().String("output_layout", "HWC") == "CHW";
    Reals result;
    for (int64_t i = 0; i < a.out.elements; ++i) {
      Dims index = Unflatten(a.out.dims, i);
      if (planes) {
        std::rotate(index.begin() + static_cast<ptrdiff_t>(n) - 3,
                    index.begin() + static_cast<ptrdiff_t>(n) - 2, index.end());
      }
      Real y = (a.in[0].at(Flatten(in, index)) - 1) * 2 + 0.25L;
      if (!IsFloating(a.out.dtype)) {
        const Real low = a.out.dtype == DType::kInt8 ? -128 : 0;
        const Real high = a.out.dtype == DType::kInt8 ? 127 : 255;
        y = y != y ? 0 : std::clamp(std::round(y), low, high);
      }
      result.push_back(y);
    }
    return result;
  };
  normalize.float_bound = {.ulps = 4};
  (*corners)["weir.Normalize"] = std::move(normalize);

  // What is no picture is refused before anything is decoded.
  Corner decode;
  decode.cases = [](DType dtype) {
    std::vector<Case> cases;
    if (dtype != DType::kUint8) return cases;
    for (const Dims& dims : {Dims{0}, Dims{1}, Dims{64}}) {
      for (const Real byte : {Real{0}, Real{255}}) {
        cases.push_back(
            {WeirNode("DecodeImage"), {Filled(dtype, dims, {byte})}});
      }
    }
    return cases;
  };
  decode.fails = absl::StatusCode::kInvalidArgument;
  (*corners)["weir.DecodeImage"] = std::move(decode);
}

// -- Others -------------------------------------------------------------------

void AddOthers(Corners* corners) {
  // Every draw of an empty range is its one number.
  Corner random;
  random.cases = [](DType) {
    std::vector<Case> cases;
    for (const int64_t dtype : {1, 10, 11, 16}) {
      for (const List& shape :
           std::vector<List>{{}, {0}, {2, 0, 3}, {3, 5}, {1, 1, 7}}) {
        for (const float end : {0.0f, -2.5f, 0x1p-24f, 65504.0f}) {
          cases.push_back(
              {WeirNode("RandomUniform",
                        Attrs({{"shape", shape},
                               {"dtype", dtype},
                               {"range", std::vector<float>{end, end}}})),
               {}});
        }
      }
    }
    return cases;
  };
  random.values = [](const Arguments& a) {
    return Reals(static_cast<size_t>(a.out.elements),
                 static_cast<Real>(a.attributes().Floats("range")[0]));
  };
  random.half_bound = {.ulps = 0.5};
  (*corners)["weir.RandomUniform"] = std::move(random);

  Corner spin;
  spin.cases = [](DType dtype) {
    std::vector<Case> cases;
    for (const Dims& dims : {Dims{}, Dims{0}, Dims{15}}) {
      cases.push_back(
          {WeirNode("Spin"), {Filled(dtype, dims, Specials(dtype))}});
    }
    return cases;
  };
  spin.moves = [](const Arguments& a) {
    std::vector<Source> from;
    for (int64_t i = 0; i < a.out.elements; ++i) from.push_back({0, i});
    return from;
  };
  (*corners)["weir.Spin"] = std::move(spin);

  Corner fault;
  fault.cases = [](DType dtype) {
    return std::vector<Case>{
        {WeirNode("Fault"), {Filled(dtype, {3}, Specials(dtype))}}};
  };
  fault.fails = absl::StatusCode::kInternal;
  (*corners)["weir.Fault"] = std::move(fault);
}

}  // namespace

void AddWeirCorners(Corners* corners) {
  AddPictures(corners);
  AddOthers(corners);
}

}  // namespace weir::corners
