#include "tests/bench/piped_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

extern char** environ;

namespace weir::bench {

PipedProcess::PipedProcess(const std::vector<std::string>& arguments) {
  int in[2], out[2];
  if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0) std::abort();
  // A rival that died must not end the bench.
  signal(SIGPIPE, SIG_IGN);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  std::vector<char*> argv;
  for (const std::string& argument : arguments) {
    argv.push_back(const_cast<char*>(argument.c_str()));
  }
  argv.push_back(nullptr);
  const int error =
      posix_spawnp(&pid_, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    std::fprintf(stderr, "%s: %s\n", argv[0], std::strerror(error));
    pid_ = -1;
  }
  close(in[0]);
  close(out[1]);
  in_ = fdopen(in[1], "w");
  out_ = fdopen(out[0], "r");
}

PipedProcess::~PipedProcess() {
  std::fclose(in_);
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    Wait();
  }
  std::fclose(out_);
}

bool PipedProcess::WriteLine(const std::string& line) {
  return std::fputs((line + "\n").c_str(), in_) >= 0 && std::fflush(in_) == 0;
}

std::string PipedProcess::ReadLine() {
  char* line = nullptr;
  size_t capacity = 0;
  const ssize_t size = getline(&line, &capacity, out_);
  std::string text(line, size > 0 ? static_cast<size_t>(size) : 0);
  std::free(line);
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

void PipedProcess::Terminate() {
  if (pid_ > 0) kill(pid_, SIGTERM);
}

int PipedProcess::Wait() {
  if (pid_ <= 0) return -1;
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace weir::bench
