// Ends what streams send, and connections, whose frames would make gRPC hold
// more than it counts (FrameMeter): a stream's data for its message's pieces,
// so that others of its connection go on; a connection where that is not
// enough, and for its headers, whose compression all its streams share. gRPC
// 1.51 shows nothing of a message or a header block before it is whole. But it
// reads by recvmsg(2), and what TLS has decrypted by SSL_read: this program has
// its own of both, which the loader takes before libc's and OpenSSL's, for gRPC
// too, and its own close(2), to know when a connection is over. For whatever is
// not watched they are the others'.
//
// It ends connections that stand still, too: what gRPC has begun to write to a
// socket it holds, with the calls it is of, until it is written.
//
// Owned by a transport. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>

namespace weir {

class FrameGuard {
 public:
  struct Cut {
    uint64_t count = 0;
    // Who was cut last, "ipv4:192.0.2.1:443"; "" if that is not known.
    std::string peer;
  };
  struct Cuts {
    Cut streams;  // for the pieces of a message
    // Connections.
    Cut pieces;
    Cut headers;
    size_t header_bytes = 0;  // the bound of a header block
  };

  // Bytes of a header block, as it is sent.
  explicit FrameGuard(size_t header_bytes);
  FrameGuard(const FrameGuard&) = delete;
  FrameGuard& operator=(const FrameGuard&) = delete;

  // Watches what is read from a connection that was just accepted, until its
  // descriptor is closed; that may be after the guard's end.
  void WatchPlain(int fd);
  void WatchTls(int fd);

  Cuts cuts() const;

  // Ends the open connections with those names (ConnectionKey); of unix
  // sockets, which have one name, those whose clients have left no room for
  // more.
  void End(const std::set<std::string>& connections);
  // And all on which there is no room.
  void EndUnread();

  // Whether it was this that ended the connection of an open descriptor: its
  // client is owed nothing more.
  static bool WasCut(int fd);

 private:
  class Tally;
  template <typename Ends>
  void EndIf(const Ends& ends);
  friend class MeteredReads;
  friend struct WatchedSocket;

  const size_t header_bytes_;
  const std::shared_ptr<Tally> tally_;  // the connections' too
};

}  // namespace weir
