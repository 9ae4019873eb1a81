#include "server/rpc/shutdown_hook.h"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/base/mutex.h"

namespace weir {

// Sockets are shut down until the process ends: this is never destroyed.
struct ShutdownHooks {
  static ShutdownHooks& Get() {
    static auto* hooks = new ShutdownHooks;
    return *hooks;
  }

  bool End(int fd) {
    const MutexLock lock(&mu);
    return std::any_of(hooks.begin(), hooks.end(),
                       [&](ShutdownHook* hook) { return hook->end_(fd); });
  }

  Mutex mu;
  std::vector<ShutdownHook*> hooks WEIR_GUARDED_BY(mu);
};

ShutdownHook::ShutdownHook(Fn end) : end_(std::move(end)) {
  ShutdownHooks& all = ShutdownHooks::Get();
  const MutexLock lock(&all.mu);
  all.hooks.push_back(this);
}

ShutdownHook::~ShutdownHook() {
  ShutdownHooks& all = ShutdownHooks::Get();
  const MutexLock lock(&all.mu);
  std::erase(all.hooks, this);
}

int ShutdownHook::ShutDown(int fd, int how) {
  return static_cast<int>(syscall(SYS_shutdown, fd, how));
}

}  // namespace weir

extern "C" __attribute__((visibility("default"))) int shutdown(
    int fd, int how) noexcept {
  if (how == SHUT_RDWR && weir::ShutdownHooks::Get().End(fd)) return 0;
  return weir::ShutdownHook::ShutDown(fd, how);
}
