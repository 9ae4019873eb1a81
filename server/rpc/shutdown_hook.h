// gRPC 1.51 ends a connection by shutting its socket down both ways at once,
// and offers nothing to hook in there. So this program has a shutdown(2) of its
// own: the loader takes it before libc's, for gRPC too. It asks the hooks, and
// is libc's for all sockets that none of them knows.
#pragma once

#include <functional>

namespace weir {

class ShutdownHook {
 public:
  // Whether it has ended the connection of that descriptor in its own way, in
  // place of shutdown(fd, SHUT_RDWR). On any thread; must not wait.
  using Fn = std::function<bool(int fd)>;

  explicit ShutdownHook(Fn end);
  // When it returns, `end` is not called any more.
  ~ShutdownHook();
  ShutdownHook(const ShutdownHook&) = delete;
  ShutdownHook& operator=(const ShutdownHook&) = delete;

  // The kernel's, past all hooks.
  static int ShutDown(int fd, int how);

 private:
  friend struct ShutdownHooks;
  const Fn end_;
};

}  // namespace weir
