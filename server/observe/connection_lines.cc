#include "server/observe/connection_lines.h"

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "server/rpc/frame_meter.h"

namespace weir {
namespace {

std::string Pieces(size_t most) {
  return absl::StrCat(most, " pieces of a message, and one more for each ",
                      FrameMeter::kBytesPerPiece, " bytes");
}

}  // namespace

void ConnectionLines::Write(const Listener::Closed& closed,
                            const FrameGuard::Cuts& cuts) {
  if (quiet_ > 0) {
    --quiet_;
    return;
  }
  WriteClosed("TOO_MANY_CONNECTIONS", closed.all - closed_.all,
              "--max-connections", bounds_.all);
  WriteClosed("PEER_CONNECTIONS", closed.of_peer - closed_.of_peer,
              "--max-peer-connections", bounds_.of_peer);
  closed_ = closed;
  constexpr char kConnections[] = "connections were cut";
  WriteCut("streams were cut", "MESSAGE_PIECES", cuts.streams, cuts_.streams,
           Pieces(FrameMeter::kFreePieces),
           "send messages in larger HTTP/2 frames");
  WriteCut(kConnections, "MESSAGE_PIECES", cuts.pieces, cuts_.pieces,
           Pieces(FrameMeter::kMostPieces),
           "send HTTP/2 frames in larger parts");
  WriteCut(kConnections, "HEADERS_TOO_LARGE", cuts.headers, cuts_.headers,
           absl::StrCat(cuts.header_bytes, " bytes of a header block, in ",
                        FrameMeter::kHeaderPieces, " pieces"),
           "send fewer or shorter headers");
  cuts_ = cuts;
}

void ConnectionLines::WriteClosed(const char* reason, uint64_t count,
                                  const char* flag, size_t bound) {
  if (count == 0) return;
  quiet_ = kQuietCalls;
  logger_->Log(LogLevel::kWarning, "connections were closed as they came",
               {{"reason", reason},
                {"count", static_cast<int64_t>(count)},
                {"bound", absl::StrCat(flag, "=", bound)}});
}

void ConnectionLines::WriteCut(const char* event, const char* reason,
                               const FrameGuard::Cut& cut,
                               const FrameGuard::Cut& noted,
                               const std::string& bound, const char* remedy) {
  if (cut.count == noted.count) return;
  quiet_ = kQuietCalls;
  logger_->Log(LogLevel::kWarning, event,
               {{"reason", reason},
                {"count", static_cast<int64_t>(cut.count - noted.count)},
                {"bound", bound},
                {"last_peer", cut.peer},
                {"remedy", remedy}});
}

}  // namespace weir
