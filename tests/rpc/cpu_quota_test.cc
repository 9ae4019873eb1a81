#include "server/rpc/cpu_quota.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

namespace weir {
namespace {

class CpuQuotaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::temp_directory_path() /
            ("weir-cpu-quota-" + std::to_string(getpid()));
    Write("proc/self/cgroup", "0::/pod/container\n");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }

  int Quota() const { return CpuQuota(root_.string()); }

  std::filesystem::path root_;
};

TEST_F(CpuQuotaTest, IsAtLeastOneAndAtMostTheAffinity) {
  EXPECT_GE(CpuQuota(), 1);
  const int unlimited = Quota();
  EXPECT_GE(unlimited, 1);
  Write("sys/fs/cgroup/pod/container/cpu.max", "max 100000\n");
  EXPECT_EQ(Quota(), unlimited);
  Write("sys/fs/cgroup/pod/container/cpu.max", "100000000 100000\n");
  EXPECT_EQ(Quota(), unlimited);
}

TEST_F(CpuQuotaTest, RoundsAPartOfACpuUp) {
  Write("sys/fs/cgroup/pod/container/cpu.max", "50000 100000\n");
  EXPECT_EQ(Quota(), 1);
  const int cpus = std::min(2, CpuQuota("/nonexistent"));
  Write("sys/fs/cgroup/pod/container/cpu.max", "150000 100000\n");
  EXPECT_EQ(Quota(), cpus);
}

TEST_F(CpuQuotaTest, ALimitAboveBindsToo) {
  Write("sys/fs/cgroup/pod/container/cpu.max", "max 100000\n");
  Write("sys/fs/cgroup/pod/cpu.max", "100000 100000\n");
  EXPECT_EQ(Quota(), 1);
}

TEST_F(CpuQuotaTest, ReadsVersionOne) {
  Write("proc/self/cgroup", "4:cpu,cpuacct:/docker/x\n1:name=systemd:/\n");
  Write("sys/fs/cgroup/cpu/docker/x/cpu.cfs_quota_us", "100000\n");
  Write("sys/fs/cgroup/cpu/docker/x/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(Quota(), 1);
}

}  // namespace
}  // namespace weir
