// Runs the corner cases of every operator, of every element type that its
// definition allows, on every device that has it. An operator that nobody gave
// cases fails here.
#include "tests/ops/corners/corner.h"

#include <algorithm>
#include <cmath>

#include "kernels/ops/output_types.h"

namespace weir::corners {
namespace {

const Corners& AllCorners() {
  static const auto& all = *[] {
    auto* corners = new Corners;
    AddElementwiseCorners(corners);
    AddMovementCorners(corners);
    AddReductionCorners(corners);
    AddNetworkCorners(corners);
    AddWeirCorners(corners);
    return corners;
  }();
  return all;
}

std::string NameOf(const OpDef& def) {
  return std::string(def.domain) + "." + std::string(def.name);
}

// The smallest normal number, the largest one, and the distance from 1 to the
// next.
struct Precision {
  Real normal, largest, epsilon;
};
Precision PrecisionOf(DType dtype) {
  switch (dtype) {
    case DType::kDouble:
      return {0x1p-1022L, static_cast<Real>(std::numeric_limits<double>::max()),
              0x1p-52L};
    case DType::kFloat16:
      return {0x1p-14L, 65504, 0x1p-10L};
    case DType::kBfloat16:
      return {0x1p-126L, 0x1.FEp127L, 0x1p-7L};
    default:
      return {0x1p-126L, static_cast<Real>(std::numeric_limits<float>::max()),
              0x1p-23L};
  }
}

bool Close(DType dtype, Real got, Real want, const Bound& bound,
           bool zero_sign) {
  if (std::isnan(want) || std::isnan(got)) {
    return std::isnan(want) == std::isnan(got);
  }
  if (!IsFloating(dtype)) return got == want;
  if (got == want) {
    return got != 0 || !zero_sign || std::signbit(got) == std::signbit(want);
  }
  const Precision p = PrecisionOf(dtype);
  const Real ulps = static_cast<Real>(bound.ulps);
  if (std::isinf(got)) {
    // Overflow, where the exact result is as large as the type allows.
    return std::fabs(want) > p.largest * (1 - ulps * p.epsilon) &&
           std::signbit(got) == std::signbit(want);
  }
  if (std::isinf(want)) return false;
  const Real ulp =
      p.epsilon *
      std::ldexp(Real{1}, std::ilogb(std::max(std::fabs(want), p.normal)));
  return std::fabs(got - want) <=
         ulps * ulp + static_cast<Real>(bound.absolute) +
             static_cast<Real>(bound.relative) * std::fabs(want);
}

std::string Describe(const Case& one) {
  std::string text = one.node.op;
  for (const auto& [name, value] : one.node.attributes.all()) {
    text += " " + name + "=";
    if (const auto* i = std::get_if<int64_t>(&value)) {
      text += std::to_string(*i);
    } else if (const auto* f = std::get_if<float>(&value)) {
      text += std::to_string(*f);
    } else if (const auto* s = std::get_if<std::string>(&value)) {
      text += *s;
    } else if (const auto* list = std::get_if<List>(&value)) {
      text += DimsString(*list);
    } else {
      text += "...";
    }
  }
  for (const Value& input : one.inputs) {
    text += " " + std::string(DTypeName(input.dtype)) + DimsString(input.dims);
  }
  return text;
}

class CornerTest : public OpTest {
 protected:
  bool on_every_target() const override { return true; }
  void Check(const Corner& corner, const Case& one);
  void CheckTypes(const Case& one, const std::vector<Value>& outputs);
  void CheckOutput(const Corner& corner, const Arguments& arguments,
                   const Value& output);
};

void CornerTest::CheckOutput(const Corner& corner, const Arguments& arguments,
                             const Value& output) {
  const TensorMeta& meta = arguments.out;
  if (corner.moves != nullptr) {
    const std::vector<Source> from = corner.moves(arguments);
    const size_t size = SizeOf(meta.dtype);
    std::vector<std::byte> expected(meta.bytes);
    ASSERT_EQ(from.size() * size, expected.size());
    for (size_t i = 0; i < from.size(); ++i) {
      if (from[i].input < 0) continue;
      const Value& source =
          arguments.test.inputs[static_cast<size_t>(from[i].input)];
      std::memcpy(
          expected.data() + i * size,
          source.bytes.data() + static_cast<size_t>(from[i].element) * size,
          size);
    }
    EXPECT_EQ(output.bytes, expected) << "output " << arguments.output;
    return;
  }
  const Reals want = corner.values(arguments);
  const Array got = Read(output);
  ASSERT_EQ(got.v.size(), want.size());
  const bool half =
      IsFloating(meta.dtype) && ComputeType(meta.dtype) != meta.dtype;
  const Bound& bound = half ? corner.half_bound : corner.float_bound;
  int reported = 0;
  for (size_t i = 0; i < want.size() && reported < 3; ++i) {
    if (Close(meta.dtype, got.v[i], want[i], bound, corner.zero_sign)) continue;
    ++reported;
    ADD_FAILURE() << "output " << arguments.output << " element " << i << " of "
                  << DTypeName(meta.dtype) << DimsString(meta.dims) << ": "
                  << static_cast<double>(got.v[i]) << " instead of "
                  << static_cast<double>(want[i]);
  }
}

// What the catalog tells of them.
void CornerTest::CheckTypes(const Case& one,
                            const std::vector<Value>& outputs) {
  const OpDef* def = registry().Find(one.node.domain, one.node.op);
  ASSERT_NE(def, nullptr);
  const std::vector<OutputTypes> told = OutputTypesOf(*def);
  for (size_t k = 0; k < outputs.size(); ++k) {
    const OutputTypes& types = told[std::min(k, told.size() - 1)];
    const DType dtype = outputs[k].dtype;
    if (!types.attribute.empty() && one.node.attributes.Has(types.attribute)) {
      continue;
    }
    if (types.like_input >= 0) {
      EXPECT_EQ(dtype, one.inputs[static_cast<size_t>(types.like_input)].dtype);
    } else {
      EXPECT_TRUE(std::count(types.types.begin(), types.types.end(), dtype))
          << DTypeName(dtype);
    }
  }
}

void CornerTest::Check(const Corner& corner, const Case& one) {
  SCOPED_TRACE(Describe(one));
  const auto outputs = Run(one.node, one.inputs);
  if (corner.fails.has_value()) {
    EXPECT_EQ(outputs.status().code(), *corner.fails) << outputs.status();
    return;
  }
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  CheckTypes(one, *outputs);
  std::vector<Array> in;
  for (const Value& input : one.inputs) in.push_back(Read(input));
  for (size_t k = 0; k < outputs->size(); ++k) {
    TensorMeta meta;
    meta.dtype = (*outputs)[k].dtype;
    meta.dims = (*outputs)[k].dims;
    meta.elements = Elements(meta.dims);
    meta.bytes = (*outputs)[k].bytes.size();
    CheckOutput(corner, {one, in, meta, k}, (*outputs)[k]);
  }
}

TEST_P(CornerTest, EveryOperatorAndType) {
  size_t cases = 0;
  for (const OpDef* def : registry().List()) {
    const auto corner = AllCorners().find(NameOf(*def));
    if (corner == AllCorners().end()) {
      ADD_FAILURE() << NameOf(*def) << " has no corner cases";
      continue;
    }
    if (!registry().HasKernel(device().info().kind, def->domain, def->name)) {
      continue;
    }
    for (int number = 1; number <= 16; ++number) {
      const auto dtype = DTypeFromOnnx(number);
      if (!dtype.has_value() || !kFixedTypes.Has(*dtype)) continue;
      // A node without inputs runs once.
      if (def->inputs.empty() || def->inputs[0].optional
              ? *dtype != DType::kFloat
              : !def->inputs[0].types.Has(*dtype)) {
        continue;
      }
      const std::vector<Case> all = corner->second.cases(*dtype);
      cases += all.size();
      for (const Case& one : all) Check(corner->second, one);
    }
  }
  // Not one that passes by having nothing to do.
  EXPECT_GT(cases, 8000u);
}

TEST_P(CornerTest, EveryOperatorHasCases) {
  for (const OpDef* def : registry().List()) {
    const auto corner = AllCorners().find(NameOf(*def));
    ASSERT_NE(corner, AllCorners().end()) << NameOf(*def);
    EXPECT_NE(corner->second.cases, nullptr);
    const int references = (corner->second.values != nullptr) +
                           (corner->second.moves != nullptr) +
                           corner->second.fails.has_value();
    EXPECT_EQ(references, 1) << NameOf(*def);
  }
  EXPECT_EQ(AllCorners().size(), registry().List().size());
}

INSTANTIATE_TEST_SUITE_P(Devices, CornerTest,
                         testing::ValuesIn(DevicesAndTargets()),
                         DeviceTestName);

}  // namespace
}  // namespace weir::corners
