// A space on a server whose lanes a test may hold.
#pragma once

#include "tests/server/lane_hold.h"
#include "tests/services/space_call_fixture.h"

namespace weir::testing {

// Before the server that has it.
struct WithLaneHold {
  LaneHold hold_;
};

class HeldSpaceTest : private WithLaneHold, public SpaceCallTest {
 protected:
  HeldSpaceTest()
      : SpaceCallTest(
            [this](ServerOptions& options) { hold_.AddTo(options); }) {}
  void TearDown() override { hold_.Open(); }

  LaneHold& hold() { return hold_; }
};

}  // namespace weir::testing
