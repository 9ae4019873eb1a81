#include "kernels/eval/work_request.h"

#include <algorithm>

namespace weir {

bool WorkRequest::Reads(OutputWish wish) const {
  return std::find(outputs.begin(), outputs.end(), wish) != outputs.end();
}

}  // namespace weir
