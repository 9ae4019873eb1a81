// How long the end of a server may take, wait by wait: of the drain, and of
// what is left to end after it. Plain data; any thread.
#pragma once

#include "absl/time/time.h"

namespace weir {

struct DrainTimes {
  // As the flags say: how long it serves on, and how long open connections may
  // end from then on.
  absl::Duration delay;
  absl::Duration timeout;

  // How long a server whose device is lost takes calls, to say so.
  static constexpr absl::Duration kLastAnswers = absl::Milliseconds(100);
  // How long the answers of a lost device, or of one that is hurried, may take
  // to leave.
  static constexpr absl::Duration kLastWords = absl::Milliseconds(500);
  // How long handlers whose calls were cut may take to answer. Work that was
  // launched cannot be taken back: it may run for longer than anybody waits.
  static constexpr absl::Duration kCutPatience = absl::Seconds(2);
  // How long the step that a model's loading is in may take to end.
  static constexpr absl::Duration kStopPatience = absl::Seconds(2);
  // With a lost device: all of it, for nothing in the process can mend that.
  static constexpr absl::Duration kLossPatience = absl::Milliseconds(750);
  // How long the parts of a drained server may take to end.
  static constexpr absl::Duration kEndPatience = absl::Seconds(2);

  // What is left beyond delay and timeout: for the answers and the patience
  // above, for a thread that hangs, for the last lines of the log.
  static constexpr absl::Duration kOverrun = absl::Seconds(5);
  // When the process is gone at the latest, whatever hangs.
  absl::Duration AtLatest() const { return delay + timeout + kOverrun; }
};

}  // namespace weir
