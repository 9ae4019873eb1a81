// Lets small writes of a thread leave together. gRPC 1.51 sends each reply by a
// sendmsg(2) of its own, and most of what that costs is the way of the segment,
// not the copy; it offers nothing to have them wait for one another. So this
// program has a sendmsg of its own, which the loader takes before libc's, for
// gRPC too: under a Scope it tells the kernel that more will follow (MSG_MORE).
// Where the kernel does not wait, as for Unix sockets, nothing changes.
//
// Each thread has its own cork, and must pull it soon, and before it waits:
// whoever does not leaves the rest to the kernel, which takes 200 ms or more.
#pragma once

namespace weir {

class SocketCork {
 public:
  // While it lives, what this thread sends may wait for Pull. Not nested.
  class Scope {
   public:
    explicit Scope(bool holds);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
  };

  // Writes that wait at most; one more pulls first.
  static constexpr int kMost = 16;

  // Sends what waits, of all sockets.
  static void Pull();
  // Writes of this thread that wait.
  static int held();
};

}  // namespace weir
