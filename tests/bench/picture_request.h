// DALI's own request as an Evaluate: a 640x480 RGB picture sent inline, resized
// to a shorter side of 256, cropped to 224, mirrored, normalized to float
// planes, and returned.
#pragma once

#include <string>

#include "proto/weir/v1/evaluator.pb.h"

namespace weir::bench {

std::string PictureRequest();  // a weir.v1.EvaluateRequest's bytes

// The same as a message, to be changed.
v1::EvaluateRequest PictureEvaluation();

}  // namespace weir::bench
