// DALI's own request as an Evaluate: a 640x480 RGB picture sent inline, resized
// to a shorter side of 256, cropped to 224, mirrored, normalized to float
// planes, and returned.
#pragma once

#include <string>

namespace weir::bench {

std::string PictureRequest();  // a weir.v1.EvaluateRequest's bytes

}  // namespace weir::bench
