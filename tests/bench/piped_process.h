// A child process that answers lines on its standard output to lines on its
// standard input. Its standard error goes where ours goes. Killed if it
// outlives the object. Used by one thread.
#pragma once

#include <sys/types.h>

#include <cstdio>
#include <string>
#include <vector>

namespace weir::bench {

class PipedProcess {
 public:
  // arguments[0] is the program, looked for in PATH.
  explicit PipedProcess(const std::vector<std::string>& arguments);
  ~PipedProcess();
  PipedProcess(const PipedProcess&) = delete;
  PipedProcess& operator=(const PipedProcess&) = delete;

  // False if the process has closed its input.
  bool WriteLine(const std::string& line);
  // The next line without its end; "" at the end.
  std::string ReadLine();
  // Asks it to end, as an operator would (SIGTERM).
  void Terminate();
  // Waits for its end: the exit code, or -1 after a signal.
  int Wait();

  pid_t pid() const { return pid_; }  // -1 after Wait

 private:
  pid_t pid_ = -1;
  FILE* in_ = nullptr;
  FILE* out_ = nullptr;
};

}  // namespace weir::bench
