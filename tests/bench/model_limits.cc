#include "tests/bench/model_limits.h"

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace weir::bench {

std::string ModelLimit::text() const {
  return ratio > 0 ? absl::StrFormat("%s=%gx", which, ratio)
                   : absl::StrFormat("%s=%gms", which, ms);
}

absl::StatusOr<ModelLimit> ParseModelLimit(std::string_view text) {
  const absl::string_view whole(text.data(), text.size());
  const std::vector<std::string> halves = absl::StrSplit(whole, '=');
  ModelLimit limit;
  if (halves.size() == 2 &&
      std::vector<std::string>(absl::StrSplit(halves[0], '/')).size() == 3) {
    limit.which = halves[0];
    absl::string_view number = halves[1];
    double* const value = absl::ConsumeSuffix(&number, "ms")  ? &limit.ms
                          : absl::ConsumeSuffix(&number, "x") ? &limit.ratio
                                                              : nullptr;
    if (value != nullptr && absl::SimpleAtod(number, value) && *value > 0) {
      return limit;
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("\"", whole,
                   "\" is not MODEL/PRECISION/BATCH=LIMIT with a limit such as "
                   "1.5x or 2.5ms"));
}

std::vector<ModelLimit> DefaultModelLimits(bool cpu, std::string_view device,
                                           int threads) {
  if (cpu && threads == 2) {
    return {{"resnet50/fp32/1", 1.5, 0},
            {"mobilenetv2/fp32/1", 2, 0},
            {"bert-base/fp32/1", 1.3, 0}};
  }
  if (!cpu && device.find("H200") != std::string_view::npos) {
    return {{"resnet50/fp16/1", 0, 2.5},
            {"mobilenetv2/fp16/1", 0, 2},
            {"bert-base/fp16/1", 0, 1.7}};
  }
  return {};
}

std::optional<std::string> Missed(const ModelLimit& limit, double ms,
                                  std::optional<double> rival_ms) {
  if (limit.ratio == 0) {
    if (ms <= limit.ms) return std::nullopt;
    return absl::StrFormat("%s: %.3f ms", limit.text(), ms);
  }
  if (!rival_ms.has_value()) {
    return absl::StrCat(limit.text(), ": no rival ran");
  }
  if (ms <= limit.ratio * *rival_ms) return std::nullopt;
  return absl::StrFormat("%s: %.2fx", limit.text(), ms / *rival_ms);
}

}  // namespace weir::bench
