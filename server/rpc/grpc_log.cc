#include "server/rpc/grpc_log.h"

#include <grpc/support/log.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/mutex.h"

namespace weir {

// gRPC takes a function without an argument, and calls it until the process
// ends: this is never destroyed.
struct GrpcLogTargets {
  static GrpcLogTargets& Get() {
    static auto* targets = new GrpcLogTargets;
    return *targets;
  }

  static void Write(gpr_log_func_args* line) {
    const std::string_view path(line->file);
    const std::string source =
        absl::StrCat(line->file + (path.rfind('/') + 1), ":", line->line);
    GrpcLogTargets& targets = Get();
    const MutexLock lock(&targets.mu);
    if (targets.logs.empty()) return;
    targets.logs.back()->write_(line->severity == GPR_LOG_SEVERITY_ERROR,
                                source, line->message);
  }

  Mutex mu;
  std::vector<const GrpcLog*> logs WEIR_GUARDED_BY(mu);
};

GrpcLog::GrpcLog(Fn write) : write_(std::move(write)) {
  GrpcLogTargets& targets = GrpcLogTargets::Get();
  const MutexLock lock(&targets.mu);
  if (targets.logs.empty()) gpr_set_log_function(&GrpcLogTargets::Write);
  targets.logs.push_back(this);
}

GrpcLog::~GrpcLog() {
  GrpcLogTargets& targets = GrpcLogTargets::Get();
  const MutexLock lock(&targets.mu);
  std::erase(targets.logs, this);
  if (targets.logs.empty()) gpr_set_log_function(nullptr);
}

}  // namespace weir
