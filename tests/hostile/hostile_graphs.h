// Graphs of a few hundred bytes that ask for more than any machine has, or make
// a careless kernel loop for hours. Each is refused at once with the node
// named, or answered; what comes after it is served. For tests of the planner
// and of servers, on every device. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "kernels/tensor/dtype.h"

namespace weir::testing {

// Of zero bytes unless `values` are given.
struct HostileInput {
  std::string name;
  DType dtype = DType::kFloat;
  std::vector<int64_t> dims;
  std::vector<int64_t> values = {};  // of kInt64

  std::string Bytes() const;
};

struct HostileGraph {
  std::string name;
  std::string definition;  // a weir.v1.GraphDefinition in text format
  std::vector<HostileInput> inputs;
  // What every caller gets; kOk: an answer.
  absl::StatusCode code = absl::StatusCode::kResourceExhausted;
  // In the message of a refusal: the node and its operator, mostly.
  std::string names = "";
  // Devices may lack it: UNIMPLEMENTED is as good on CUDA.
  bool cpu_only = false;
  // Where a GPU refuses another node; empty: `names`.
  std::string names_on_gpu = "";
  // RESOURCE_EXHAUSTED is as good where few threads may run fewer operations.
  bool may_be_too_long = false;
};

// The limits that the codes above are for; those of a server with 2 GiB of
// host memory. A larger server answers some of them.
inline constexpr int64_t kHostileOutputBytes = int64_t{2} << 30;
inline constexpr int64_t kHostileScratchBytes = int64_t{4} << 30;

std::vector<HostileGraph> HostileGraphs();

}  // namespace weir::testing
