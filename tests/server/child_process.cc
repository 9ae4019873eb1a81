#include "tests/server/child_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

extern char** environ;

namespace weir::testing {
namespace {

// False at the end.
bool ReadSome(int fd, std::string* text) {
  char buffer[4096];
  const ssize_t size = read(fd, buffer, sizeof(buffer));
  if (size <= 0) return false;
  text->append(buffer, static_cast<size_t>(size));
  return true;
}

}  // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& arguments) {
  int out[2], err[2];
  if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0) std::abort();
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err[1], STDERR_FILENO);
  std::vector<char*> argv;
  for (const std::string& argument : arguments) {
    argv.push_back(const_cast<char*>(argument.c_str()));
  }
  argv.push_back(nullptr);
  EXPECT_EQ(
      posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ), 0)
      << argv[0];
  posix_spawn_file_actions_destroy(&actions);
  close(out[1]);
  close(err[1]);
  out_fd_ = out[0];
  err_fd_ = err[0];
}

ChildProcess::~ChildProcess() {
  if (pid_ > 0) {
    Signal(SIGKILL);
    Wait();
  }
  close(out_fd_);
  close(err_fd_);
}

std::string ChildProcess::ReadLine() {
  size_t end = out_.find('\n');
  while (end == std::string::npos) {
    if (!ReadSome(out_fd_, &out_)) return "";
    end = out_.find('\n');
  }
  const std::string line = out_.substr(0, end);
  out_.erase(0, end + 1);
  return line;
}

bool ChildProcess::AwaitErr(const std::string& part) {
  while (err_.find(part) == std::string::npos) {
    if (!ReadSome(err_fd_, &err_)) return false;
  }
  return true;
}

void ChildProcess::Signal(int number) {
  if (pid_ > 0) kill(pid_, number);
}

int ChildProcess::Wait() {
  if (pid_ <= 0) return -1;
  bool out_open = true, err_open = true;
  while (out_open || err_open) {
    pollfd fds[] = {{out_open ? out_fd_ : -1, POLLIN, 0},
                    {err_open ? err_fd_ : -1, POLLIN, 0}};
    if (poll(fds, 2, -1) < 0) continue;
    if (fds[0].revents != 0) out_open = ReadSome(out_fd_, &out_);
    if (fds[1].revents != 0) err_open = ReadSome(err_fd_, &err_);
  }
  return WaitUnread();
}

int ChildProcess::WaitUnread() {
  if (pid_ <= 0) return -1;
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

std::string BuiltProgram(const std::string& name) {
  const char* folder = std::getenv("WEIR_BIN_DIR");
  return std::string(folder == nullptr ? "build/bin" : folder) + "/" + name;
}

}  // namespace weir::testing
