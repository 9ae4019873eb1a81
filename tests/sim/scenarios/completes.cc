// With how many preemptions `make test` comes to the end of each scenario's
// orders. A line goes up when a search gets cheaper, and down only with a
// scenario that has become larger; `sim --all-orders --steps=1000000` prints
// what it is with half of the steps.
#include <map>

#include "tests/sim/scenarios/scenarios.h"

namespace weir::sim {
namespace {

constexpr int kOthers = 0;

const std::map<std::string, int>& Known() {
  static const auto* const known = new std::map<std::string, int>{
      {"points/advance+wait", kAnyPreemptions},
      {"points/advance+cancel", kAnyPreemptions},
      {"points/advance+fail", kAnyPreemptions},
      {"points/outcomes", kAnyPreemptions},
      {"points/launch+wait", kAnyPreemptions},
      {"points/watched", kAnyPreemptions},
      {"points/watched+unwatched", kAnyPreemptions},
      {"points/dispatcher", kAnyPreemptions},
      {"points/dispatcher+cancel", kAnyPreemptions},
      {"points/dispatcher+deadline", kAnyPreemptions},
      {"health/loss+reset", kAnyPreemptions},
      {"health/stall+reset", kAnyPreemptions},
      {"pool/one-lane", kAnyPreemptions},
      {"pool/one-lane+cancel", kAnyPreemptions},
      {"pool/in-turn", kAnyPreemptions},
      {"exchange/numbers", kAnyPreemptions},
      {"exchange/snapshots", kAnyPreemptions},
      {"exchange/pinned-one", kAnyPreemptions},
      {"occupancy/entries", kAnyPreemptions},
      {"occupancy/entries+cancel", kAnyPreemptions},
      {"occupancy/entries+deadline", kAnyPreemptions},
      {"works/tensor-cpu+fault", kAnyPreemptions},
      {"works/tensor-cpu+fault+close", kAnyPreemptions},
      {"works/no-room", kAnyPreemptions},
      {"deferred/chain+close+cancel", kAnyPreemptions},
      {"pool/one-lane+deadline", 3},
      {"pool/one-lane+stop", 3},
      {"pool/one-lane+busy", 2},
      {"exchange/pinned-two", 3},
      {"exchange/pinned-return+end", 3},
      {"works/watched", 3},
      {"pool/idle-lanes", 2},
      {"works/tensor-cpu+cancel+fault", 2},
      {"works/tensor-cpu+deadline+fault", 2},
      {"works/watched+unwatched", 2},
      {"deferred/unread", 2},
      {"works/signal-cpu", 1},
      {"works/signal-cpu+cancel", 1},
      {"works/signal-cpu+deadline", 1},
      {"works/signal-cpu+fault", 1},
      {"works/signal-cpu+cancel+fault", 1},
      {"works/signal-cpu+close", 1},
      {"works/signal-cpu+cancel+close", 1},
      {"works/signal-cpu+fault+close", 1},
      {"works/tensor-cpu", 1},
      {"works/tensor-cpu+cancel", 1},
      {"works/tensor-cpu+deadline", 1},
      {"works/tensor-cpu+close", 1},
      {"works/tensor-cpu+cancel+close", 1},
      {"works/tensor-cpu+deadline+close", 1},
      {"works/lane-cpu", 1},
      {"works/lane-cpu+deadline", 1},
      {"works/lane-cpu+fault", 1},
      {"works/lane-cpu+close", 1},
      {"works/producer", 1},
      {"works/producer+fault", 1},
      {"deferred/chain", 1},
      {"deferred/chain+fault", 1},
      {"deferred/joined", 1},
      {"deferred/joined+cancel", 1},
      {"deferred/chain+late", 1},
      {"deferred/joined+late", 1},
      {"deferred/awaited+by", 1},
      {"engines/signal+fault", 1},
      {"engines/point+fault", 1},
      {"engines/misplaced", 1},
      {"works/signal+deadline+full", -1},
      {"works/signal+fault+full", -1},
      {"works/signal+close+full", -1},
      {"works/hops+fault", -1},
      {"deferred/elsewhere+cancel", -1},
      {"deferred/elsewhere+fault", -1},
      {"deferred/elsewhere+joined", -1},
      {"deferred/unwanted", -1},
      {"deferred/unwanted+flush", -1},
      {"deferred/readers", -1},
      {"engines/signal+poison", -1},
      {"engines/point+poison", -1},
  };
  return *known;
}

}  // namespace

int CompletesWith(const std::string& name) {
  const auto known = Known().find(name);
  return known == Known().end() ? kOthers : known->second;
}

}  // namespace weir::sim
