// Runs a check once for every instruction set that this processor has, so that
// a machine with AVX-512 also tests the SSE4 and scalar code.
#pragma once

#include <hwy/targets.h>

#include <cstdint>

namespace weir::image {

template <typename Check>
void OnEveryTarget(Check check) {
  int64_t targets = hwy::SupportedTargets() | HWY_SCALAR;
  for (; targets != 0; targets &= targets - 1) {
    const int64_t target = targets & -targets;
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
    check(hwy::TargetName(target));
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().DeInit();
}

}  // namespace weir::image
