#include "server/observe/process_metrics.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <map>
#include <string>

#include "absl/time/clock.h"
#include "kernels/base/thread.h"
#include "tests/base/event.h"
#include "tests/models/temp_folder.h"

namespace weir {
namespace {

std::map<Metric, double> Read(const std::string& proc = "/proc") {
  const auto values = ReadProcess(proc);
  return {values.begin(), values.end()};
}

// A /proc in which process and machine are what `stat` and `machine` say.
class FakeProc {
 public:
  FakeProc(const std::string& stat, const std::string& machine) {
    folder_.Write("self/stat", stat);
    folder_.Write("stat", machine);
    for (const char* fd : {"0", "1", "7"}) {
      folder_.Write(std::string("self/fd/") + fd, "");
    }
  }
  std::string path() const { return folder_.path().string(); }

 private:
  testing::TempFolder folder_;
};

constexpr char kStat[] =
    "42 (we) R 1 (ir) S 1 42 42 0 -1 4194560 9000 0 12 0 700 300 0 0 20 0 21 0 "
    "5000 1073741824 2560 18446744073709551615 1 1 0 0 0 0 0 4096 17 0 0 0 17 "
    "1 0 0 0 0 0 0 0 0 0 0 0 0 0\n";
constexpr char kMachine[] = "cpu  1 2 3\nctxt 9\nbtime 1700000000\n";

TEST(ProcessMetricsTest, ReadsWhatTheKernelSays) {
  const auto tick = static_cast<double>(sysconf(_SC_CLK_TCK));
  const auto page = static_cast<double>(sysconf(_SC_PAGESIZE));
  const FakeProc proc(kStat, kMachine);
  auto values = Read(proc.path());
  EXPECT_EQ(values.size(), 7u);
  EXPECT_DOUBLE_EQ(values[Metric::kProcessCpu], 1000 / tick);
  EXPECT_EQ(values[Metric::kProcessThreads], 21);
  EXPECT_EQ(values[Metric::kProcessVirtual], 1073741824);
  EXPECT_EQ(values[Metric::kProcessResident], 2560 * page);
  EXPECT_DOUBLE_EQ(values[Metric::kProcessStart], 1700000000 + 5000 / tick);
  EXPECT_EQ(values[Metric::kProcessFds], 2) << "the listing's is none of its";
}

// Nothing is better than a wrong number: an alert on a start at 0 would fire.
TEST(ProcessMetricsTest, WhatCannotBeReadIsLeftOut) {
  const FakeProc no_start(kStat, "cpu  1 2 3\n");
  auto values = Read(no_start.path());
  EXPECT_EQ(values.count(Metric::kProcessStart), 0u);
  EXPECT_EQ(values.count(Metric::kProcessCpu), 1u);
  for (const char* stat : {"", "42 (weir", "42 (weir) S 1 2 3"}) {
    const FakeProc bad(stat, kMachine);
    values = Read(bad.path());
    EXPECT_EQ(values.size(), 2u) << stat;
    EXPECT_EQ(values.count(Metric::kProcessFds), 1u);
    EXPECT_EQ(values.count(Metric::kProcessMaxFds), 1u);
  }
  values = Read("/no/such/folder");
  EXPECT_EQ(values.size(), 1u);
  EXPECT_EQ(values.count(Metric::kProcessMaxFds), 1u);
}

TEST(ProcessMetricsTest, AreThoseOfThisProcess) {
  auto before = Read();
  EXPECT_EQ(before.size(), 7u);
  rlimit files;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
  EXPECT_EQ(before[Metric::kProcessMaxFds],
            static_cast<double>(files.rlim_cur));
  EXPECT_GT(before[Metric::kProcessResident], 1 << 20);
  EXPECT_GT(before[Metric::kProcessVirtual], before[Metric::kProcessResident]);
  const double now = absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch());
  // The machine's start is known to the second.
  EXPECT_LT(before[Metric::kProcessStart], now + 2);
  EXPECT_GT(before[Metric::kProcessStart], now - 3600);

  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  Event started, ended;
  Thread thread("other", [&] {
    started.Set();
    ended.Wait();
  });
  started.Wait();
  auto after = Read();
  ended.Set();
  thread.Join();
  close(ends[0]);
  close(ends[1]);
  EXPECT_EQ(after[Metric::kProcessFds], before[Metric::kProcessFds] + 2);
  EXPECT_EQ(after[Metric::kProcessThreads],
            before[Metric::kProcessThreads] + 1);
  EXPECT_EQ(after[Metric::kProcessStart], before[Metric::kProcessStart]);
}

}  // namespace
}  // namespace weir
