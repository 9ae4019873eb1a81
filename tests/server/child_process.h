// A program as its user starts it: output collected, exit code told. Killed if
// it outlives the object.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace weir::testing {

class ChildProcess {
 public:
  // arguments[0] is the program's path.
  explicit ChildProcess(const std::vector<std::string>& arguments);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // The next line of standard output without its end; "" at the end.
  std::string ReadLine();
  // Reads standard error until `part` is in it; false if it ends without.
  bool AwaitErr(const std::string& part);
  void Signal(int number);
  // Reads all that is left, waits for the end. The exit code, or -1 after a
  // signal.
  int Wait();
  // The same without reading anything, as if who reads the output hangs.
  int WaitUnread();

  pid_t pid() const { return pid_; }               // -1 after Wait
  const std::string& out() const { return out_; }  // what ReadLine left
  // Complete after Wait.
  const std::string& err() const { return err_; }

 private:
  pid_t pid_ = -1;
  int out_fd_ = -1;
  int err_fd_ = -1;
  std::string out_;
  std::string err_;
};

// The path of a program of the build.
std::string BuiltProgram(const std::string& name);

}  // namespace weir::testing
