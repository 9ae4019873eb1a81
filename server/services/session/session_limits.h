// How much the server has of one session at a time (weir.v1.SessionWindow).
#pragma once

#include <cstddef>

namespace weir {

// Commands that are taken and not answered, and bytes of them, but for one that
// is larger by itself.
inline constexpr size_t kSessionCommands = 256;
inline constexpr size_t kSessionCommandBytes = size_t{8} << 20;
// Of answers that are not sent, with those of the commands above: no command is
// taken while there are more. So no event has answers that are forgotten as it
// is sent.
inline constexpr size_t kSessionUnsentBytes = size_t{1} << 20;
inline constexpr size_t kSessionUnsentAnswers = 1024;
// Of those that were sent, and are not acknowledged: the newest are kept.
inline constexpr size_t kSessionKeptAnswers = 1024;
inline constexpr size_t kSessionKeptBytes = size_t{1} << 20;
// Of one event, but for an answer that is larger by itself: stock clients take
// messages of 4 MiB.
inline constexpr size_t kSessionEventBytes = size_t{256} << 10;
// What an event has beside one answer, at most.
inline constexpr size_t kSessionEventHead = size_t{1} << 10;

}  // namespace weir
