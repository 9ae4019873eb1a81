#include "tests/bench/server_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "kernels/base/status_macros.h"

extern char** environ;

namespace weir::bench {
namespace {

// The word that follows `key` in the line of a server that is ready.
std::string Word(const std::string& line, const std::string& key) {
  const size_t at = line.find(key);
  if (at == std::string::npos) return "";
  const size_t begin = at + key.size();
  return line.substr(begin, line.find(' ', begin) - begin);
}

// "RssAnon:     1234 kB"
bool ReadKib(const std::string& line, absl::string_view key, int64_t* bytes) {
  const std::vector<std::string> words =
      absl::StrSplit(line, absl::ByAnyChar(": \t"), absl::SkipEmpty());
  if (words.size() < 2 || words[0] != key) return false;
  return absl::SimpleAtoi(words[1], bytes) && (*bytes *= 1024, true);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ServerProcess>> ServerProcess::Start(
    const std::vector<std::string>& flags) {
  const char* folder = std::getenv("WEIR_BIN_DIR");
  std::vector<std::string> arguments = {
      absl::StrCat(folder == nullptr ? "build/bin" : folder, "/weir-server"),
      "--grpc=127.0.0.1:0", "--drain-delay=0"};
  if (std::none_of(flags.begin(), flags.end(), [](const std::string& flag) {
        return absl::StartsWith(flag, "--http=");
      })) {
    arguments.push_back("--http=off");
  }
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  std::unique_ptr<ServerProcess> server(new ServerProcess);
  WEIR_RETURN_IF_ERROR(server->Launch(arguments));
  WEIR_RETURN_IF_ERROR(server->AwaitReady());
  return server;
}

absl::Status ServerProcess::Launch(const std::vector<std::string>& arguments) {
  int pipe[2];
  if (pipe2(pipe, O_CLOEXEC) != 0) return absl::InternalError("no pipe");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, pipe[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, pipe[1], STDERR_FILENO);
  std::vector<char*> argv;
  for (const std::string& argument : arguments) {
    argv.push_back(const_cast<char*>(argument.c_str()));
  }
  argv.push_back(nullptr);
  const int error =
      posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(pipe[1]);
  output_ = pipe[0];
  if (error != 0) {
    pid_ = -1;
    return absl::NotFoundError(
        absl::StrCat(arguments[0], ": ", std::strerror(error)));
  }
  reader_ = std::thread([this] { ReadOutput(); });
  return absl::OkStatus();
}

absl::Status ServerProcess::AwaitReady() {
  MutexLock lock(&mu_);
  for (size_t i = 0;; ++i) {
    while (i == lines_.size() && !ended_) changed_.Wait(&mu_);
    if (i == lines_.size()) {
      return absl::UnavailableError(absl::StrCat(
          "weir-server does not become ready: ",
          absl::StrJoin(lines_, "\n", [](std::string* out, const Line& line) {
            absl::StrAppend(out, line.text);
          })));
    }
    const std::string& text = lines_[i].text;
    if (text.find(" ready: ") == std::string::npos) continue;
    address_ = Word(text, "grpc=");
    http_address_ = Word(text, "http=");
    device_ = Word(text, "device=");
    return absl::OkStatus();
  }
}

void ServerProcess::ReadOutput() {
  FILE* output = fdopen(output_, "r");
  char* line = nullptr;
  size_t capacity = 0;
  while (true) {
    const ssize_t size = getline(&line, &capacity, output);
    MutexLock lock(&mu_);
    ended_ = size <= 0;
    if (!ended_) {
      std::string text(line, static_cast<size_t>(size));
      if (text.back() == '\n') text.pop_back();
      lines_.push_back({Clock::now(), std::move(text)});
    }
    changed_.NotifyAll();
    if (ended_) break;
  }
  std::free(line);
  std::fclose(output);
}

ServerProcess::End ServerProcess::Wait() {
  End end;
  if (pid_ <= 0) return end;
  int status = 0;
  waitpid(pid_, &status, 0);
  end.at = Clock::now();
  end.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  pid_ = -1;
  reader_.join();
  return end;
}

ServerProcess::End ServerProcess::Terminate() {
  if (pid_ > 0) kill(pid_, SIGTERM);
  return Wait();
}

ServerProcess::~ServerProcess() {
  if (pid_ > 0) kill(pid_, SIGKILL);
  Wait();
}

std::vector<ServerProcess::Line> ServerProcess::lines() const {
  MutexLock lock(&mu_);
  return lines_;
}

ServerProcess::Memory ServerProcess::memory() const {
  Memory memory;
  std::ifstream status(absl::StrCat("/proc/", pid_, "/status"));
  for (std::string line; std::getline(status, line);) {
    ReadKib(line, "VmRSS", &memory.resident_bytes) ||
        ReadKib(line, "RssAnon", &memory.anonymous_bytes);
  }
  return memory;
}

bool SkippedForLackOf(const std::string& device) {
  if (!absl::StartsWith(device, "cuda")) return false;
  auto server = ServerProcess::Start({"--device=auto"});
  if (!server.ok() || (*server)->device() != "cpu") return false;
  (*server)->Terminate();
  std::printf("skipped: there is no NVIDIA device for --device=%s\n",
              device.c_str());
  return true;
}

}  // namespace weir::bench
