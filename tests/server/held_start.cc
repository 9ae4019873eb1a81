// Put before the C library (LD_PRELOAD), it holds a start where $HELD says, and
// says so on standard error: `bind`, for ever, as a driver that does not come
// back, before the server is open; `listen`, where the one port that it has is
// opened for good, after it has been tried, until SIGTERM waits for the
// process.
#include <dlfcn.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <string_view>

namespace {

bool IsHeld(std::string_view at) {
  const char* held = std::getenv("HELD");
  if (held == nullptr || held != at) return false;
  constexpr char kHeld[] = "the start is held\n";
  static_cast<void>(!write(STDERR_FILENO, kHeld, sizeof(kHeld) - 1));
  return true;
}

template <typename Function>
Function* Real(Function*, const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) int bind(int fd, const sockaddr* address,
                                                socklen_t size) {
  while (IsHeld("bind")) pause();
  return Real(&bind, "bind")(fd, address, size);
}

__attribute__((visibility("default"))) int listen(int fd, int backlog) {
  static std::atomic<int> times = 0;
  if (++times == 2 && IsHeld("listen")) {
    // It is blocked in every thread, and waits until somebody reads it.
    sigset_t waiting;
    do {
      usleep(1000);
      sigpending(&waiting);
    } while (sigismember(&waiting, SIGTERM) != 1);
  }
  return Real(&listen, "listen")(fd, backlog);
}

}  // extern "C"
