#include "kernels/base/periodic_thread.h"

#include <gtest/gtest.h>

#include <memory>

#include "tests/base/event.h"

namespace weir {
namespace {

TEST(PeriodicThreadTest, RunsAgainAndAgain) {
  Event ran;
  const PeriodicThread thread("weir-test", absl::Milliseconds(1),
                              [&] { ran.Set(); });
  ran.Wait(3);
}

TEST(PeriodicThreadTest, EndsWithoutWaitingForItsInterval) {
  const PeriodicThread thread("weir-test", absl::Hours(1),
                              [] { ADD_FAILURE(); });
}

TEST(PeriodicThreadTest, DestroyingItWaitsForACall) {
  Event running, go_on;
  bool ended = false;
  auto thread =
      std::make_unique<PeriodicThread>("weir-test", absl::Milliseconds(1), [&] {
        running.Set();
        go_on.Wait();
        ended = true;
      });
  running.Wait();
  go_on.Set();
  thread.reset();
  EXPECT_TRUE(ended);
}

}  // namespace
}  // namespace weir
