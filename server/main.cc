// weir-server: parses the flags, starts the server, waits for a signal or the
// loss of the device, drains. Exit code 0 after a drain, 1 for a run-time
// failure, 2 for wrong usage.
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/clock.h"
#include "server/options.h"
#include "server/server.h"

namespace {

// Signals become readable here; every later thread inherits the mask.
int MakeSignalFd() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  return signalfd(-1, &signals, SFD_CLOEXEC);
}

void ReadSignal(int fd) {
  signalfd_siginfo info;
  if (read(fd, &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))) {
    std::fprintf(stderr, "weir-server: %s: draining; once more to hurry\n",
                 info.ssi_signo == SIGTERM ? "SIGTERM" : "SIGINT");
  }
}

}  // namespace

int main(int argc, char** argv) {
  const weir::Nanos started = weir::NowNanos();
  auto parsed = weir::ParseServerOptions(argc, argv);
  if (const auto* exit_now = std::get_if<weir::ExitNow>(&parsed)) {
    return exit_now->code;
  }
  signal(SIGPIPE, SIG_IGN);
  // PID 1 of a container is handed the orphans of every other process there;
  // ignored, they leave no zombies.
  if (getpid() == 1) signal(SIGCHLD, SIG_IGN);
  const int signals = MakeSignalFd();
  auto server = weir::Server::Start(std::get<weir::ServerOptions>(parsed));
  if (!server.ok()) {
    std::fprintf(stderr, "weir-server: %s\n",
                 std::string(server.status().message()).c_str());
    return 1;
  }
  for (const std::string& note : (*server)->notes()) {
    std::fprintf(stderr, "weir-server: %s\n", note.c_str());
  }
  std::string line = absl::StrCat(
      "weir-server ", weir::Version(),
      " ready: grpc=", absl::StrJoin((*server)->grpc_addresses(), ","));
  if (!(*server)->http_address().empty()) {
    absl::StrAppend(&line, " http=", (*server)->http_address());
  }
  absl::StrAppend(&line, " device=", (*server)->device_name(),
                  " models=", (*server)->models_ready(), " after ",
                  (weir::NowNanos() - started) / 1'000'000, " ms");
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);

  pollfd waits[] = {{signals, POLLIN, 0},
                    {(*server)->device_lost_fd(), POLLIN, 0}};
  while (poll(waits, 2, -1) < 0) {
  }
  if (waits[0].revents != 0) ReadSignal(signals);
  const absl::Status device = (*server)->device_status();
  (*server)->Drain(signals);
  if (!device.ok()) {
    std::fprintf(stderr,
                 "weir-server: %s; the process ends so that a new one "
                 "can take the device\n",
                 std::string(device.message()).c_str());
    // Destructors would wait for a device that answers no more.
    std::_Exit(1);
  }
  return 0;
}
