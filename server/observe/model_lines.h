// What the log says of the models of a repository once they are loaded.
#pragma once

#include <string>

#include "server/models/repository.h"
#include "server/observe/logger.h"

namespace weir {

// A warning for each thing that is not served, or has no effect. `root` is
// --model-repository; "" if there is none.
void WriteModels(const ModelRepository& models, const std::string& root,
                 Logger* logger);

// What --strict-readiness holds against the repository; "" if nothing.
std::string ModelsAtFault(const ModelRepository& models,
                          const std::string& root);

}  // namespace weir
