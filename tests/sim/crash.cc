#include "tests/sim/crash.h"

#include <signal.h>
#include <unistd.h>

#include <cstring>

#include "tests/sim/explorer.h"

namespace weir::sim {
namespace {

void Print(const char* text) {
  const ssize_t written = write(STDERR_FILENO, text, std::strlen(text));
  (void)written;
}

void Report(int number) {
  Print("\nthe run crashed\n");
  DescribeRun(Print);
  signal(number, SIG_DFL);
  raise(number);
}

}  // namespace

void ReportCrashes() {
  // A stack of its own: a logical thread's may be what was used up.
  static char stack[64 << 10];
  stack_t other = {};
  other.ss_sp = stack;
  other.ss_size = sizeof(stack);
  sigaltstack(&other, nullptr);
  struct sigaction action = {};
  action.sa_handler = Report;
  action.sa_flags = SA_ONSTACK | SA_NODEFER;
  for (const int number : {SIGSEGV, SIGBUS, SIGABRT, SIGILL, SIGFPE}) {
    sigaction(number, &action, nullptr);
  }
}

}  // namespace weir::sim
