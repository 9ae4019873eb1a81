// A server process is sent what hurts, request by request. After each, while
// what stalls still does, the next honest request is answered, and the memory
// that it took is given back. In production's own settings, on
// WEIR_TEST_DEVICE.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "tests/hostile/hostile_requests.h"
#include "tests/models/temp_folder.h"
#include "tests/server/child_process.h"
#include "tests/server/server_fixture.h"

namespace weir::testing {
namespace {

// The figure is in tests/bench/hostile_bench; this is for a busy machine.
constexpr double kHonestMs = 5000;

// AddressSanitizer keeps it, to see who still uses it.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kFreedMemoryGoesBack = false;
#elif defined(__has_feature)
constexpr bool kFreedMemoryGoesBack = !__has_feature(address_sanitizer);
#else
constexpr bool kFreedMemoryGoesBack = true;
#endif

TEST(HostileTest, TheNextHonestRequestIsServed) {
  const TempFolder models;
  WriteHostileModels(models.path());
  std::vector<std::string> command = {BuiltProgram("weir-server")};
  for (const std::string& flag :
       HostileServerFlags(TestDevice(), models.path())) {
    command.push_back(flag);
  }
  ChildProcess server(command);
  const HostileTarget target = HostileTarget::FromReadyLine(server.ReadLine());
  ASSERT_FALSE(target.grpc.empty()) << "the server did not start";
  ASSERT_TRUE(WarmUp(target).ok());
  const ResidentMemory baseline = MemoryOf(server.pid());

  const std::vector<HostileRequest> requests = HostileRequests();
  EXPECT_GT(requests.size(), 50u);
  for (const HostileRequest& request : requests) {
    SCOPED_TRACE(request.name);
    const HostileOutcome outcome =
        Attack(request, target, server.pid(), baseline);
    EXPECT_TRUE(outcome.right) << outcome.answer;
    ASSERT_TRUE(outcome.honest.ok()) << outcome.honest;
    EXPECT_LT(outcome.honest_ms, kHonestMs);
    if (kFreedMemoryGoesBack) {
      EXPECT_TRUE(outcome.within)
          << outcome.peak_bytes << " bytes more than at the start";
      EXPECT_LE(outcome.left_bytes, kHostileMemoryLeft)
          << "\"" << request.name
          << "\": " << DescribeMemory(outcome.before, outcome.after)
          << "; since the start: " << DescribeMemory(baseline, outcome.after);
    }
  }
  server.Signal(SIGTERM);
  EXPECT_EQ(server.Wait(), 0) << server.err();
}

}  // namespace
}  // namespace weir::testing
