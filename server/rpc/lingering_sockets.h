// Sockets whose near end is closed and whose far end is not yet: reads and
// throws away what still comes, and closes each when its far end has closed.
// Closed at once, they would answer it with a reset, which takes from the far
// end what it was sent and has not read. A thread of its own; Add from any.
#pragma once

#include <memory>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/base/clock.h"
#include "kernels/base/mutex.h"
#include "kernels/base/thread.h"

namespace weir {

class LingeringSockets {
 public:
  // A socket is closed anyhow when its far end has had all bytes for so long,
  // or when it has lingered for so long.
  struct Bounds {
    absl::Duration idle = absl::Seconds(5);
    absl::Duration limit = absl::Seconds(30);
  };

  // Fails where the process has no descriptor or no thread left.
  static absl::StatusOr<std::unique_ptr<LingeringSockets>> Start(
      const Bounds& bounds);
  // Closes what lingers.
  ~LingeringSockets();
  LingeringSockets(const LingeringSockets&) = delete;
  LingeringSockets& operator=(const LingeringSockets&) = delete;

  // Takes the descriptor over. Its near end is closed.
  void Add(int fd);

 private:
  struct Times {
    Nanos begun = 0;
    Nanos taken = 0;  // when bytes were last on their way
  };

  explicit LingeringSockets(const Bounds& bounds);
  absl::Status Open();
  void Run();
  // False if the far end has closed, or has gone.
  static bool Discard(int fd);
  // Closes those whose time is over.
  void Sweep(Nanos now) WEIR_REQUIRES(mu_);
  void Close(int fd);
  void Wake() const;

  const Nanos idle_;
  const Nanos limit_;
  int poller_ = -1;
  int wake_ = -1;

  Mutex mu_;
  absl::flat_hash_map<int, Times> sockets_ WEIR_GUARDED_BY(mu_);
  bool stop_ WEIR_GUARDED_BY(mu_) = false;
  Thread thread_;
};

}  // namespace weir
