// weir-server: parses the flags, opens the server, says when its models are
// loaded, waits for a signal, for Admin.Drain or for the loss of the device,
// drains. Exit code 0 after a drain, 1 for a run-time failure, 2 for wrong
// usage, 3 when the device is lost or was not there at the start.
#include <fcntl.h>
#include <google/protobuf/stubs/logging.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "kernels/backend/devices.h"
#include "kernels/base/absl_view.h"
#include "kernels/base/build_info.h"
#include "kernels/base/clock.h"
#include "kernels/base/steady_time.h"
#include "server/drain_times.h"
#include "server/heap.h"
#include "server/observe/line_writer.h"
#include "server/observe/logger.h"
#include "server/options.h"
#include "server/server.h"
#include "server/start_guard.h"

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

  // The name of one that came within `timeout`; null for none, which comes at
  // once when `other` is readable.
  const char* Wait(absl::Duration timeout, int other = -1) const {
    pollfd entries[] = {{fd_, POLLIN, 0}, {other, POLLIN, 0}};
    // A negative one would be for ever.
    poll(entries, 2,
         std::max(0, static_cast<int>(absl::ToInt64Milliseconds(timeout))));
    signalfd_siginfo info;
    if (read(fd_, &info, sizeof(info)) != static_cast<ssize_t>(sizeof(info))) {
      return nullptr;
    }
    return info.ssi_signo == SIGTERM ? "SIGTERM" : "SIGINT";
  }

 private:
  int fd_ = -1;
};

// What lost its device has a code of its own, for that alone outlives the
// process, where whoever watches can count it. Where a device stays lost the
// next start fails at once, before anybody could see the code of the loss: so
// it ends with that code too.
constexpr int kDeviceLostCode = 3;

// What is said on standard output once the models are loaded.
std::string ReadyLine(const weir::Server& server, weir::Nanos took) {
  const std::string unready = server.unready();
  std::string line =
      absl::StrCat("weir-server ", weir::Version(),
                   unready.empty() ? " ready: grpc=" : " unready: grpc=",
                   absl::StrJoin(server.grpc_addresses(), ","));
  if (!server.http_address().empty()) {
    absl::StrAppend(&line, " http=", server.http_address());
  }
  absl::StrAppend(&line, " device=", server.device_names(),
                  " models=", server.models_ready(), " after ",
                  took / 1'000'000, " ms");
  if (!unready.empty()) absl::StrAppend(&line, ": ", unready);
  return line;
}

// They share classes, so nothing of another build's library may be called.
// Until that is known nothing is parsed, and so this is text in every format.
bool IsOfBuildOfLibrary() {
  if (weir::BuildId() == weir::kBuildId) return true;
  const std::string text = absl::StrCat(
      "weir-server: is of build ", weir::kBuildId, ", libweir.so of build ",
      weir::AbslView(weir::BuildId()), ": both must be of one\n");
  static_cast<void>(!write(STDERR_FILENO, text.data(), text.size()));
  return false;
}

// Text is the line alone; what is collected as JSON, as a container's streams
// are together, is JSON.
void NoteReady(const weir::ServerOptions& options, const std::string& line) {
  weir::LineWriter out(STDOUT_FILENO);
  if (options.log_format == weir::LogFormat::kText) {
    out.Write(line + "\n");
  } else {
    weir::Logger(options.log_format, weir::LogLevel::kInfo, out)
        .Log(weir::LogLevel::kInfo, line);
  }
}

// Text is as for wrong usage; what is collected as JSON is JSON.
void NoteFailedStart(const weir::ServerOptions& options,
                     const absl::Status& status, weir::LineWriter& log) {
  if (options.log_format == weir::LogFormat::kText) {
    log.Write(absl::StrCat("weir-server: ", status.message(), "\n"));
    return;
  }
  weir::Logger(options.log_format, options.log_level, log)
      .Log(weir::LogLevel::kError, "the server does not start",
           {{"error", std::string(status.message())}});
}

// What a signal before the server was open leaves behind.
void NoteEarlyEnd(const weir::ServerOptions& options, const char* signal,
                  weir::LineWriter& log) {
  if (options.log_format == weir::LogFormat::kText) {
    log.Write(
        absl::StrCat("weir-server: ", signal, " before the server is open\n"));
    return;
  }
  weir::Logger(options.log_format, options.log_level, log)
      .Log(weir::LogLevel::kInfo, "ends before the server is open",
           {{"cause", signal}});
}

// Protobuf would write to standard error from the thread that reads a message,
// and as often as there are bad ones; its callers here say what is wrong. Only
// what it ends the process for is left to say.
void TakeLineOfProtobuf(google::protobuf::LogLevel level, const char* filename,
                        int line, const std::string& message) {
  if (level != google::protobuf::LOGLEVEL_FATAL) return;
  const std::string text =
      absl::StrCat("weir-server: ", filename, ":", line, ": ", message, "\n");
  static_cast<void>(!write(STDERR_FILENO, text.data(), text.size()));
}

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

// Whatever a start waits for, as a driver that does not come back: a signal
// ends the process at once, for there is nothing to drain. Over before the
// first call may come: a signal that is seen later is left for the drain.
class StartSignals {
 public:
  StartSignals(const Signals& signals, const weir::ServerOptions& options,
               weir::LineWriter& log) {
    if (pipe2(over_, O_CLOEXEC) != 0) return;
    thread_ = std::thread([this, &signals, &options, &log] {
      for (;;) {
        pollfd entries[] = {{signals.fd(), POLLIN, 0}, {over_[0], POLLIN, 0}};
        if (poll(entries, 2, -1) < 0) continue;
        if (entries[1].revents != 0) return;
        const char* signal = signals.Wait(absl::ZeroDuration());
        if (signal == nullptr) continue;
        NoteEarlyEnd(options, signal, log);
        EndNow(0, log);
      }
    });
  }
  ~StartSignals() {
    for (int i : {1, 0}) {
      if (over_[i] >= 0) close(over_[i]);
      if (i == 1 && thread_.joinable()) thread_.join();
    }
  }
  StartSignals(const StartSignals&) = delete;
  StartSignals& operator=(const StartSignals&) = delete;

 private:
  int over_[2] = {-1, -1};
  std::thread thread_;
};

// Whatever a drain waits for, the process ends in time.
class DrainGuard {
 public:
  DrainGuard(absl::Duration limit, const weir::Server& server,
             weir::LineWriter& log) {
    // Its line may have to wait for who reads the log.
    std::thread([wait = limit - weir::LineWriter::kPatience, drained = drained_,
                 &server, &log] {
      absl::SleepFor(wait);
      if (drained->exchange(true)) return;
      log.Write("weir-server: the drain does not end; the process does\n");
      EndNow(server.device_status().ok() ? 0 : kDeviceLostCode, log);
    }).detach();
  }
  // From here on somebody else sees to that; never returns if it was too late.
  ~DrainGuard() {
    while (drained_->exchange(true)) absl::SleepFor(absl::Seconds(1));
  }

 private:
  const std::shared_ptr<std::atomic<bool>> drained_ =
      std::make_shared<std::atomic<bool>>(false);
};

// Drains because of `cause`. A signal cuts it short; but one that follows
// Admin.Drain is only what ends every container. If the device is lost, before
// or meanwhile, the process ends here, so that a new one can take it: nothing
// in it can mend the device, and its destructors would wait for a device that
// answers no more.
weir::DrainResult Drain(weir::Server& server, const Signals& signals,
                        weir::LineWriter& log, const char* cause,
                        int signals_to_hurry) {
  bool lost = false, named = false;
  const auto name_works = [&] {
    if (std::exchange(named, true)) return;
    const std::string running = absl::StrJoin(server.device_suspects(), "; ");
    server.logger().Log(weir::LogLevel::kError, "what ran when it was lost",
                        {{"works", running}});
  };
  const auto look_at_device = [&] {
    const absl::Status device = server.device_status();
    if (device.ok() || std::exchange(lost, true)) return;
    ExitAnyway(weir::DrainTimes::kLossPatience, kDeviceLostCode);
    server.logger().Log(
        weir::LogLevel::kError,
        "the process ends so that a new one can take the device",
        {{"error", std::string(device.message())}});
  };
  look_at_device();
  server.logger().Log(weir::LogLevel::kInfo, "draining", {{"cause", cause}});
  int left = signals_to_hurry;
  const weir::DrainResult result = server.Drain([&](absl::Duration timeout) {
    if (left == 0) return true;
    // Once that descriptor is readable it stays so.
    const bool known = lost;
    const char* signal =
        signals.Wait(timeout, known ? -1 : server.device_lost_fd());
    look_at_device();
    if (known) name_works();  // which are known a moment after the loss
    if (signal == nullptr) return false;
    --left;
    server.logger().Log(
        weir::LogLevel::kInfo,
        left == 0 ? "draining without further waits" : "draining already",
        {{"cause", signal}});
    return left == 0;
  });
  look_at_device();
  if (result.hangs) {
    server.logger().Log(weir::LogLevel::kError,
                        "an I/O thread hangs: the process ends without it");
  }
  server.logger().Log(
      weir::LogLevel::kInfo, "drained",
      {{"calls", result.calls}, {"unanswered", result.unanswered}});
  if (!lost) return result;
  name_works();
  EndNow(kDeviceLostCode, log);
}

}  // namespace

int main(int argc, char** argv) {
  if (!IsOfBuildOfLibrary()) return 1;
  const weir::Nanos started = weir::NowNanos();
  weir::BoundHeap();
  // Debian's Abseil looks for cycles whenever gRPC takes a lock, in one table
  // of the process, which its own lock guards.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  auto parsed = weir::ParseServerOptions(argc, argv);
  if (const auto* exit_now = std::get_if<weir::ExitNow>(&parsed)) {
    return exit_now->code;
  }
  // What cannot be written is an error of the call, not the end.
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
  // PID 1 of a container is handed the orphans of every other process there;
  // ignored, they leave no zombies.
  if (getpid() == 1) signal(SIGCHLD, SIG_IGN);
  google::protobuf::SetLogHandler(&TakeLineOfProtobuf);
  const Signals signals;
  weir::LineWriter log(STDERR_FILENO);
  auto& options = std::get<weir::ServerOptions>(parsed);
  const weir::DrainTimes times = {options.drain_delay, options.drain_timeout};
  const auto fail_for_loss = [&](const absl::Status& status) {
    NoteFailedStart(options, status, log);
    EndNow(kDeviceLostCode, log);
  };
  weir::StartGuard start_guard(weir::DrainTimes::kLossPatience, fail_for_loss);
  options.make_device = start_guard.Watch(std::move(options.make_device));
  std::optional<StartSignals> start_signals;
  start_signals.emplace(signals, options, log);
  auto opened =
      weir::Server::Open(options, &log, [&] { start_signals.reset(); });
  start_signals.reset();
  start_guard.Over();
  if (weir::IsDeviceMissing(opened.status())) fail_for_loss(opened.status());
  if (!opened.ok()) {
    NoteFailedStart(options, opened.status(), log);
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
      NoteReady(options, ReadyLine(server, weir::NowNanos() - started));
      loaded.fd = -1;
    }
  }
  const absl::Duration gone = weir::SteadyNow() + times.AtLatest();
  weir::DrainResult result;
  std::optional<DrainGuard> guard;
  guard.emplace(times.AtLatest(), server, log);
  if (!server.device_status().ok()) {
    result = Drain(server, signals, log, "the device is lost", 1);
  } else if (const char* signal = signals.Wait(absl::ZeroDuration())) {
    result = Drain(server, signals, log, signal, 1);
  } else {
    result = Drain(server, signals, log, "Admin.Drain", 2);
  }
  guard.reset();
  if (!result.settled()) EndNow(0, log);
  ExitAnyway(std::min(weir::DrainTimes::kEndPatience, gone - weir::SteadyNow()),
             0);
  return 0;
}
