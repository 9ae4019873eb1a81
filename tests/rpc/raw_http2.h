// One HTTP/2 connection, frame by frame: a client that does what stock ones do
// not, such as stopping in the middle of a message or of a reply. Every read
// waits, for as long as a passing test needs. Used by one thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>

namespace weir::testing {

class RawHttp2 {
 public:
  enum FrameType : uint8_t {
    kData = 0,
    kHeaders = 1,
    kReset = 3,
    kSettings = 4,
    kPing = 6,
    kGoAway = 7,
    kWindowUpdate = 8,
    kContinuation = 9,
  };
  struct Frame {
    bool ok = false;  // false: the connection has ended, or is silent
    uint8_t type = 0;
    uint8_t flags = 0;
    uint32_t stream = 0;
    std::string payload;
  };

  // Connects to "127.0.0.1:PORT"; the server may send `window` bytes on each
  // stream, and on all together, until it is granted more. `from` is one of
  // this host's addresses, to be another peer than others. `receive_buffer`:
  // what the kernel takes of the server's bytes, in bytes; 0: as it likes.
  RawHttp2(const std::string& address, uint32_t window,
           const std::string& from = "127.0.0.1", int receive_buffer = 0);
  ~RawHttp2();
  RawHttp2(const RawHttp2&) = delete;
  RawHttp2& operator=(const RawHttp2&) = delete;

  // A frame, what a client begins with, a call without its message, and DATA in
  // frames of so many bytes: for connections of another kind.
  static std::string Encode(FrameType type, uint8_t flags, uint32_t stream,
                            const std::string& payload);
  static std::string Opening(uint32_t window);
  static std::string EncodeCall(uint32_t stream, const std::string& method);
  static std::string EncodeData(uint32_t stream, const std::string& bytes,
                                bool last, size_t frame_bytes);

  // Where the server sees it, as gRPC names it: "ipv4:127.0.0.1:PORT".
  std::string name() const;

  // Begins a call of a gRPC method, with so many headers of 100 bytes more.
  void Begin(uint32_t stream, const std::string& method, int more_headers = 0);
  // The same with a deadline, after which the client goes on waiting:
  // "50m" are 50 ms.
  void BeginWithin(uint32_t stream, const std::string& method,
                   const std::string& timeout);
  // The same with headers that never end: more of the last one's value may be
  // sent, in frames of so many bytes, until the server ends the connection
  // (false).
  void BeginEndless(uint32_t stream, const std::string& method);
  bool SendHeader(uint32_t stream, size_t bytes,
                  size_t frame_bytes = size_t{16} << 10);
  // Begins so many calls and reads nothing, acknowledging not even settings,
  // until the server has taken nothing for `patience`. Every other call has
  // ended, without a message. Returns how many it took.
  size_t Flood(const std::string& method, size_t calls,
               std::chrono::milliseconds patience);
  // gRPC's five bytes before a message of that size.
  static std::string Prefix(size_t message_bytes);
  // In frames of so many bytes. False if the server has ended the connection.
  bool Send(uint32_t stream, const std::string& bytes, bool last,
            size_t frame_bytes = size_t{16} << 10);
  // The same, waiting for the server to grant it: past a window it may end the
  // connection. Returns how many bytes it took until it ended the stream.
  size_t SendAsGranted(uint32_t stream, const std::string& bytes, bool last,
                       size_t frame_bytes = size_t{16} << 10);
  // What the server has granted of that stream and was not sent, as of the
  // frames that were read.
  int64_t granted(uint32_t stream) const;
  void Grant(uint32_t stream, uint32_t bytes);
  void Reset(uint32_t stream);

  // The next frame but settings, pings and window updates, which it answers or
  // passes over; not ok if none comes.
  Frame Next();
  // Takes frames until one of that stream has come. False if none comes.
  bool Await(uint32_t stream);
  // Takes frames until that stream has ended. The status of its call, or -1.
  // Of the first call of a connection that ends: HPACK may write it short for
  // others.
  int AwaitStatus(uint32_t stream);
  // Takes frames until the server asks the connection to leave. False if it
  // does not.
  bool AwaitGoAway();
  // Takes frames until the connection has ended. False if it becomes silent.
  bool AwaitEnd();
  // Takes frames until `bytes` of data have come, or what ends the stream.
  // Returns how many came.
  size_t ReadData(uint32_t stream, size_t bytes);
  // Sends a ping and waits until it is acknowledged, keeping for Next() what
  // comes meanwhile. False if the server asks the connection to leave instead,
  // or has ended it.
  bool Ping();
  // After the server's last frame: sends pings until they are acknowledged.
  // False if the server resets the connection.
  bool MayWriteOn();

 private:
  // False if the server has reset the connection, which Next() tells too.
  bool WriteAll(const std::string& bytes);
  bool Write(FrameType type, uint8_t flags, uint32_t stream,
             const std::string& payload);
  // The next frame from the socket, answered if it asks for that.
  Frame Read();
  // Takes note of what it grants.
  void Note(const Frame& frame);
  bool ReadExactly(char* to, size_t size);

  int fd_ = -1;
  std::deque<Frame> unread_;  // came while it waited to send
  // What may be sent: on all streams together, and on each beyond what it
  // begins with.
  int64_t window_ = 65535;
  int64_t stream_window_ = 65535;
  std::map<uint32_t, int64_t> stream_windows_;
};

}  // namespace weir::testing
