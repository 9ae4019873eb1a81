// What operators make of corner cases: NaN, infinities, negative zeros,
// denormals, the ends of integers, empty tensors, axes of length 0, scalars.
// Each operator has cases by element type and a reference of its own, in long
// double (which holds every 64-bit integer); corner_test.cc runs them all on
// every device and fails for an operator without any. Pure; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tests/ops/op_test.h"

namespace weir::corners {

using Real = long double;
using Reals = std::vector<Real>;
using List = std::vector<int64_t>;

// A tensor as the references see it.
struct Array {
  DType dtype = DType::kInvalid;
  Dims dims;
  Reals v;

  int64_t size() const { return static_cast<int64_t>(v.size()); }
  Real at(int64_t i) const { return v[static_cast<size_t>(i)]; }
};

Array Read(const Value& value);
// Each value as the type holds it: floating types round, others must fit.
Value Make(DType dtype, Dims dims, const Reals& values);

struct Case {
  NodeInfo node;
  std::vector<Value> inputs;
};

// Where an element of a moved tensor comes from; `input` -1: all bits 0.
struct Source {
  int input = -1;
  int64_t element = 0;
};

struct Arguments {
  const Case& test;
  std::vector<Array> in;  // dtype kInvalid where missing
  const TensorMeta& out;  // of the output asked for
  size_t output = 0;

  const Attributes& attributes() const { return test.node.attributes; }
};

struct Corner {
  // For the first input's element type; a node without inputs ignores it.
  std::function<std::vector<Case>(DType)> cases;
  // Exactly one of the two: what the elements of an output are before they are
  // rounded, or where they come from, bit for bit.
  std::function<Reals(const Arguments&)> values;
  std::function<std::vector<Source>(const Arguments&)> moves;
  Bound float_bound;  // of the compute type
  Bound half_bound = {.ulps = 0.51};
  bool zero_sign = false;  // -0 and 0 differ
  // Instead of all this: every case is refused or fails with this code.
  std::optional<absl::StatusCode> fails = std::nullopt;
};

// By "domain.Name", the domain empty for ONNX: ".Add".
using Corners = std::map<std::string, Corner>;

void AddElementwiseCorners(Corners* corners);
void AddMovementCorners(Corners* corners);
void AddReductionCorners(Corners* corners);
void AddNetworkCorners(Corners* corners);
void AddWeirCorners(Corners* corners);

// -- Values to put in ---------------------------------------------------------

enum class Ends {
  kAll,
  kNoLargest  // without what overflows when it is squared or added up
};
Reals Specials(DType dtype, Ends ends = Ends::kAll);

int64_t Elements(const Dims& dims);
// `values` again and again; NaN and infinities come at other places for another
// `shift`.
Value Filled(DType dtype, const Dims& dims, const Reals& values,
             size_t shift = 0);

// The flat index of `i` of `out` in an operand of `dims` broadcast to it.
int64_t Broadcast(const Dims& out, const Dims& dims, int64_t i);

// Index of each dim.
Dims Unflatten(const Dims& dims, int64_t i);
int64_t Flatten(const Dims& dims, const Dims& index);

}  // namespace weir::corners
