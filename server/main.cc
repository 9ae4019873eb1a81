// weir-server: parses the flags, opens the server, says when its models are
// loaded, waits for a signal, for Admin.Drain or for the loss of the device,
// drains. Exit code 0 after a drain, 1 for a run-time failure, 2 for wrong
// usage.
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "kernels/base/clock.h"
#include "server/heap.h"
#include "server/observe/line_writer.h"
#include "server/options.h"
#include "server/server.h"

namespace {

// SIGTERM and SIGINT, as they come.
class Signals {
 public:
  // Every later thread inherits the mask.
  Signals() {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    fd_ = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  }

  int fd() const { return fd_; }

  // The name of one that came within `timeout`; null for none.
  const char* Wait(absl::Duration timeout) const {
    pollfd entry{fd_, POLLIN, 0};
    poll(&entry, 1, static_cast<int>(absl::ToInt64Milliseconds(timeout)));
    signalfd_siginfo info;
    if (read(fd_, &info, sizeof(info)) != static_cast<ssize_t>(sizeof(info))) {
      return nullptr;
    }
    return info.ssi_signo == SIGTERM ? "SIGTERM" : "SIGINT";
  }

 private:
  int fd_ = -1;
};

// Drains because of `cause`. A signal cuts it short; but one that follows
// Admin.Drain is only what ends every container.
weir::DrainResult Drain(weir::Server& server, const Signals& signals,
                        const char* cause, int signals_to_hurry) {
  server.logger().Log(weir::LogLevel::kInfo, "draining", {{"cause", cause}});
  int left = signals_to_hurry;
  const weir::DrainResult result = server.Drain([&](absl::Duration timeout) {
    if (left == 0) return true;
    const char* signal = signals.Wait(timeout);
    if (signal == nullptr) return false;
    --left;
    server.logger().Log(
        weir::LogLevel::kInfo,
        left == 0 ? "draining without further waits" : "draining already",
        {{"cause", signal}});
    return left == 0;
  });
  if (result.hangs) {
    server.logger().Log(weir::LogLevel::kError,
                        "an I/O thread hangs: the process ends without it");
  }
  server.logger().Log(
      weir::LogLevel::kInfo, "drained",
      {{"calls", result.calls}, {"unanswered", result.unanswered}});
  return result;
}

// The line on standard output once the models are loaded.
std::string ReadyLine(const weir::Server& server, weir::Nanos took) {
  const std::string unready = server.unready();
  std::string line =
      absl::StrCat("weir-server ", weir::Version(),
                   unready.empty() ? " ready: grpc=" : " unready: grpc=",
                   absl::StrJoin(server.grpc_addresses(), ","));
  if (!server.http_address().empty()) {
    absl::StrAppend(&line, " http=", server.http_address());
  }
  absl::StrAppend(&line, " device=", server.device_name(),
                  " models=", server.models_ready(), " after ",
                  took / 1'000'000, " ms");
  if (!unready.empty()) absl::StrAppend(&line, ": ", unready);
  return line;
}

// What is left to end may not keep the process for longer.
constexpr absl::Duration kEndPatience = absl::Seconds(2);

// What it still had to say leaves, if somebody reads it.
[[noreturn]] void EndNow(int code, weir::LineWriter& log) {
  log.Flush();
  std::_Exit(code);
}

void ExitAnyway(absl::Duration after, int code) {
  std::thread([after, code] {
    absl::SleepFor(after);
    std::_Exit(code);
  }).detach();
}

// What a drain may take beyond its delay and its timeout.
constexpr absl::Duration kDrainOverrun = absl::Seconds(5);

// Whatever a drain waits for, the process ends in time.
class DrainGuard {
 public:
  DrainGuard(absl::Duration limit, weir::LineWriter& log) {
    std::thread([limit, drained = drained_, &log] {
      absl::SleepFor(limit);
      if (drained->exchange(true)) return;
      log.Write("weir-server: the drain does not end; the process does\n");
      EndNow(0, log);
    }).detach();
  }
  // From here on somebody else sees to that; never returns if it was too late.
  ~DrainGuard() {
    while (drained_->exchange(true)) absl::SleepFor(kDrainOverrun);
  }

 private:
  const std::shared_ptr<std::atomic<bool>> drained_ =
      std::make_shared<std::atomic<bool>>(false);
};

// How long the answers of a lost device may take to leave, all of them.
constexpr absl::Duration kLossPatience = absl::Milliseconds(750);

// Ends the process so that a new one can take the device: nothing in it can
// mend it, and its destructors would wait for a device that answers no more.
[[noreturn]] void EndAfterLoss(weir::Server& server, const Signals& signals,
                               weir::LineWriter& log,
                               const absl::Status& cause) {
  ExitAnyway(kLossPatience, 1);
  const std::string error(cause.message());
  server.logger().Log(weir::LogLevel::kError,
                      "the process ends so that a new one can take the device",
                      {{"error", error}});
  Drain(server, signals, "the device is lost", 1);
  const std::string running = absl::StrJoin(server.device_suspects(), "; ");
  server.logger().Log(weir::LogLevel::kError, "what ran when it was lost",
                      {{"works", running}});
  EndNow(1, log);
}

}  // namespace

int main(int argc, char** argv) {
  const weir::Nanos started = weir::NowNanos();
  weir::BoundHeap();
  auto parsed = weir::ParseServerOptions(argc, argv);
  if (const auto* exit_now = std::get_if<weir::ExitNow>(&parsed)) {
    return exit_now->code;
  }
  signal(SIGPIPE, SIG_IGN);
  // PID 1 of a container is handed the orphans of every other process there;
  // ignored, they leave no zombies.
  if (getpid() == 1) signal(SIGCHLD, SIG_IGN);
  const Signals signals;
  weir::LineWriter log(STDERR_FILENO);
  const auto& options = std::get<weir::ServerOptions>(parsed);
  const absl::Duration drain_limit =
      options.drain_delay + options.drain_timeout + kDrainOverrun;
  auto opened = weir::Server::Open(options, &log);
  if (!opened.ok()) {
    log.Write(absl::StrCat("weir-server: ", opened.status().message(), "\n"));
    return 1;
  }
  weir::Server& server = **opened;

  pollfd waits[] = {{signals.fd(), POLLIN, 0},
                    {server.device_lost_fd(), POLLIN, 0},
                    {server.drain_requested_fd(), POLLIN, 0},
                    {server.loaded_fd(), POLLIN, 0}};
  pollfd& loaded = waits[3];
  for (bool ended = false; !ended;) {
    if (poll(waits, 4, -1) < 0) continue;
    for (int i = 0; i < 3; ++i) ended |= waits[i].revents != 0;
    if (!ended && loaded.revents != 0) {
      weir::LineWriter(STDOUT_FILENO)
          .Write(ReadyLine(server, weir::NowNanos() - started) + "\n");
      loaded.fd = -1;
    }
  }
  const absl::Status device = server.device_status();
  if (!device.ok()) {
    EndAfterLoss(server, signals, log, device);
  }
  weir::DrainResult result;
  std::optional<DrainGuard> guard;
  guard.emplace(drain_limit, log);
  if (const char* signal = signals.Wait(absl::ZeroDuration())) {
    result = Drain(server, signals, signal, 1);
  } else {
    result = Drain(server, signals, "Admin.Drain", 2);
  }
  guard.reset();
  if (!result.settled()) EndNow(0, log);
  ExitAnyway(kEndPatience, 0);
  return 0;
}
