// Runs a check once for every instruction set that this processor has, so that
// a machine with AVX-512 also tests the SSE4 and scalar code.
#pragma once

#include <hwy/targets.h>

#include <cstdint>

namespace weir::image {

// From now on vector code runs as on a processor with nothing wider than that;
// 0: as on this one.
inline void UseTarget(int64_t target) {
  hwy::SetSupportedTargetsForTest(target);
  if (target == 0) {
    hwy::GetChosenTarget().DeInit();
  } else {
    hwy::GetChosenTarget().Update(target);
  }
}

template <typename Check>
void OnEveryTarget(Check check) {
  int64_t targets = hwy::SupportedTargets() | HWY_SCALAR;
  for (; targets != 0; targets &= targets - 1) {
    const int64_t target = targets & -targets;
    UseTarget(target);
    check(hwy::TargetName(target));
  }
  UseTarget(0);
}

}  // namespace weir::image
