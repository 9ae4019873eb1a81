// What a case of model_bench must hold: "MODEL/PRECISION/BATCH=LIMIT", where
// LIMIT is "1.5x" (times the rival's median) or "2.5ms" (the median itself), of
// weir in process. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace weir::bench {

struct ModelLimit {
  std::string which;  // "resnet50/fp32/1"
  double ratio = 0;   // 0: the limit is `ms`
  double ms = 0;

  std::string text() const;
};

// INVALID_ARGUMENT with what is expected.
absl::StatusOr<ModelLimit> ParseModelLimit(std::string_view text);

// The targets of docs/benchmarks.md that hold on this device (its kind, its
// marketing name) with this many CPU threads.
std::vector<ModelLimit> DefaultModelLimits(bool cpu, std::string_view device,
                                           int threads);

// What is wrong with a median of `ms`, or nothing. `rival_ms` is empty where no
// rival ran: then a ratio does not hold.
std::optional<std::string> Missed(const ModelLimit& limit, double ms,
                                  std::optional<double> rival_ms);

}  // namespace weir::bench
