#include "tests/rpc/raw_http2.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "server/rpc/peer.h"

namespace weir::testing {
namespace {

constexpr char kPreface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
constexpr uint8_t kEndStream = 1;
constexpr uint8_t kEndHeaders = 4;
constexpr uint8_t kAck = 1;
constexpr uint32_t kDefaultWindow = 65535;

std::string BigEndian(uint64_t value, int bytes) {
  std::string text;
  for (int i = bytes - 1; i >= 0; --i) {
    text += static_cast<char>(value >> (8 * i) & 0xFF);
  }
  return text;
}

uint32_t FromBigEndian(const char* text, int bytes) {
  uint32_t value = 0;
  for (int i = 0; i < bytes; ++i) {
    value = value << 8 | static_cast<unsigned char>(text[i]);
  }
  return value;
}

// A header as HPACK's literal without indexing; names and values are short.
std::string Header(const std::string& name, const std::string& value) {
  return std::string(1, '\0') + static_cast<char>(name.size()) + name +
         static_cast<char>(value.size()) + value;
}

std::string CallHeaders(const std::string& method) {
  return Header(":method", "POST") + Header(":scheme", "http") +
         Header(":path", method) + Header(":authority", "localhost") +
         Header("te", "trailers") + Header("content-type", "application/grpc");
}

}  // namespace

RawHttp2::RawHttp2(const std::string& address, uint32_t window,
                   const std::string& from, int receive_buffer) {
  const size_t colon = address.rfind(':');
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port =
      htons(static_cast<uint16_t>(std::stoi(address.substr(colon + 1))));
  inet_pton(AF_INET, address.substr(0, colon).c_str(), &to.sin_addr);
  fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (receive_buffer > 0) {
    setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer,
               sizeof(receive_buffer));
  }
  sockaddr_in here = {};
  here.sin_family = AF_INET;
  inet_pton(AF_INET, from.c_str(), &here.sin_addr);
  EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&here), sizeof(here)), 0);
  EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
  const int on = 1;
  setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  const timeval patience = {.tv_sec = 20, .tv_usec = 0};
  setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  EXPECT_TRUE(WriteAll(Opening(window)));
  if (window > kDefaultWindow) Grant(0, window - kDefaultWindow);
}

RawHttp2::~RawHttp2() { close(fd_); }

std::string RawHttp2::Encode(FrameType type, uint8_t flags, uint32_t stream,
                             const std::string& payload) {
  return BigEndian(payload.size(), 3) + static_cast<char>(type) +
         static_cast<char>(flags) + BigEndian(stream, 4) + payload;
}

std::string RawHttp2::Opening(uint32_t window) {
  // SETTINGS_INITIAL_WINDOW_SIZE.
  return kPreface +
         Encode(kSettings, 0, 0, BigEndian(4, 2) + BigEndian(window, 4));
}

std::string RawHttp2::EncodeCall(uint32_t stream, const std::string& method) {
  return Encode(kHeaders, kEndHeaders, stream, CallHeaders(method));
}

std::string RawHttp2::name() const {
  sockaddr_storage here = {};
  socklen_t size = sizeof(here);
  EXPECT_EQ(getsockname(fd_, reinterpret_cast<sockaddr*>(&here), &size), 0);
  return PeerName(here);
}

bool RawHttp2::WriteAll(const std::string& bytes) {
  size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t n =
        send(fd_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (n <= 0) return false;
    sent += static_cast<size_t>(n);
  }
  return true;
}

bool RawHttp2::Write(FrameType type, uint8_t flags, uint32_t stream,
                     const std::string& payload) {
  return WriteAll(Encode(type, flags, stream, payload));
}

void RawHttp2::BeginEndless(uint32_t stream, const std::string& method) {
  // A literal header whose value has 2^28 bytes and more.
  const std::string name = "x-endless";
  Write(kHeaders, 0, stream,
        CallHeaders(method) + std::string(1, '\0') +
            static_cast<char>(name.size()) + name + "\x7f\x80\x80\x80\x80\x01");
}

bool RawHttp2::SendHeader(uint32_t stream, size_t bytes, size_t frame_bytes) {
  std::string frames;
  while (bytes > 0) {
    const size_t part = std::min(bytes, frame_bytes);
    bytes -= part;
    frames += Encode(kContinuation, 0, stream, std::string(part, 'x'));
  }
  return WriteAll(frames);
}

void RawHttp2::Begin(uint32_t stream, const std::string& method,
                     int more_headers) {
  std::string headers = CallHeaders(method);
  for (int i = 0; i < more_headers; ++i) {
    headers += Header("x-header", std::string(92, 'x'));
  }
  Write(kHeaders, kEndHeaders, stream, headers);
}

void RawHttp2::BeginWithin(uint32_t stream, const std::string& method,
                           const std::string& timeout) {
  Write(kHeaders, kEndHeaders, stream,
        CallHeaders(method) + Header("grpc-timeout", timeout));
}

size_t RawHttp2::Flood(const std::string& method, size_t calls,
                       std::chrono::milliseconds patience) {
  timeval time = {};
  time.tv_sec = patience.count() / 1000;
  time.tv_usec = patience.count() % 1000 * 1000;
  setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof(time));
  const std::string headers = CallHeaders(method);
  std::string frames;
  for (uint32_t i = 0; i < calls; ++i) {
    const uint8_t end = i % 2 == 0 ? kEndStream : uint8_t{0};
    frames += Encode(kHeaders, kEndHeaders | end, 2 * i + 1, headers);
  }
  size_t sent = 0;
  while (sent < frames.size()) {
    const ssize_t n =
        send(fd_, frames.data() + sent, frames.size() - sent, MSG_NOSIGNAL);
    if (n <= 0) break;
    sent += static_cast<size_t>(n);
  }
  return calls == 0 ? 0 : sent / (frames.size() / calls);
}

std::string RawHttp2::Prefix(size_t message_bytes) {
  return std::string(1, '\0') + BigEndian(message_bytes, 4);
}

std::string RawHttp2::EncodeData(uint32_t stream, const std::string& bytes,
                                 bool last, size_t frame_bytes) {
  std::string frames;
  size_t at = 0;
  do {
    const std::string part = bytes.substr(at, frame_bytes);
    at += part.size();
    frames +=
        Encode(kData, last && at == bytes.size() ? kEndStream : uint8_t{0},
               stream, part);
  } while (at < bytes.size());
  return frames;
}

bool RawHttp2::Send(uint32_t stream, const std::string& bytes, bool last,
                    size_t frame_bytes) {
  return WriteAll(EncodeData(stream, bytes, last, frame_bytes));
}

size_t RawHttp2::SendAsGranted(uint32_t stream, const std::string& bytes,
                               bool last, size_t frame_bytes) {
  constexpr size_t kMostAtOnce = size_t{16} << 10;
  size_t at = 0;
  while (at < bytes.size()) {
    int64_t& of_stream = stream_windows_[stream];
    const int64_t room = std::min(window_, stream_window_ + of_stream);
    if (room <= 0) {
      const Frame frame = Read();
      if (frame.type == kReset || frame.type == kGoAway || !frame.ok) return at;
      unread_.push_back(frame);
      continue;
    }
    const std::string part =
        bytes.substr(at, std::min(kMostAtOnce, static_cast<size_t>(room)));
    const bool ends = last && at + part.size() == bytes.size();
    if (!WriteAll(EncodeData(stream, part, ends, frame_bytes))) return at;
    at += part.size();
    window_ -= static_cast<int64_t>(part.size());
    of_stream -= static_cast<int64_t>(part.size());
  }
  return at;
}

int64_t RawHttp2::granted(uint32_t stream) const {
  const auto more = stream_windows_.find(stream);
  return stream_window_ + (more == stream_windows_.end() ? 0 : more->second);
}

void RawHttp2::Grant(uint32_t stream, uint32_t bytes) {
  Write(kWindowUpdate, 0, stream, BigEndian(bytes, 4));
}

void RawHttp2::Reset(uint32_t stream) {
  Write(kReset, 0, stream, BigEndian(8, 4));  // CANCEL
}

bool RawHttp2::ReadExactly(char* to, size_t size) {
  while (size > 0) {
    const ssize_t n = recv(fd_, to, size, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    to += n;
    size -= static_cast<size_t>(n);
  }
  return true;
}

void RawHttp2::Note(const Frame& frame) {
  constexpr size_t kSetting = 6;
  constexpr uint32_t kInitialWindow = 4;
  if (frame.type == kWindowUpdate) {
    int64_t& window =
        frame.stream == 0 ? window_ : stream_windows_[frame.stream];
    window += FromBigEndian(frame.payload.data(), 4);
  } else if (frame.type == kSettings) {
    for (size_t at = 0; at + kSetting <= frame.payload.size(); at += kSetting) {
      const char* const setting = frame.payload.data() + at;
      if (FromBigEndian(setting, 2) != kInitialWindow) continue;
      stream_window_ = FromBigEndian(setting + 2, 4);
    }
  }
}

RawHttp2::Frame RawHttp2::Next() {
  Frame frame;
  do {
    if (unread_.empty()) {
      frame = Read();
    } else {
      frame = unread_.front();
      unread_.pop_front();
    }
  } while (frame.ok && (frame.type == kSettings || frame.type == kPing ||
                        frame.type == kWindowUpdate));
  return frame;
}

RawHttp2::Frame RawHttp2::Read() {
  Frame frame;
  char head[9];
  if (!ReadExactly(head, sizeof(head))) return frame;
  frame.type = static_cast<uint8_t>(head[3]);
  frame.flags = static_cast<uint8_t>(head[4]);
  frame.stream = FromBigEndian(head + 5, 4) & 0x7FFFFFFF;
  frame.payload.resize(FromBigEndian(head, 3));
  if (!ReadExactly(frame.payload.data(), frame.payload.size())) return frame;
  frame.ok = true;
  const bool ack = (frame.flags & kAck) != 0;
  if (frame.type == kSettings && !ack) Write(kSettings, kAck, 0, "");
  if (frame.type == kPing && !ack) Write(kPing, kAck, 0, frame.payload);
  Note(frame);
  return frame;
}

bool RawHttp2::Await(uint32_t stream) {
  for (;;) {
    const Frame frame = Next();
    if (!frame.ok) return false;
    if (frame.stream == stream) return true;
  }
}

int RawHttp2::AwaitStatus(uint32_t stream) {
  Frame frame = Next();
  const auto ends = [&] {
    return frame.stream == stream &&
           (frame.type == kReset || (frame.flags & kEndStream) != 0);
  };
  while (frame.ok && !ends()) frame = Next();
  // As a literal: gRPC's encoder leaves text as it is.
  const std::string name = "grpc-status";
  const size_t at = frame.payload.find(name);
  if (frame.type != kHeaders || at == std::string::npos) return -1;
  const size_t digits = at + name.size() + 1;
  const auto size = static_cast<unsigned char>(frame.payload.at(digits - 1));
  return std::stoi(frame.payload.substr(digits, size));
}

bool RawHttp2::AwaitGoAway() {
  Frame frame = Next();
  while (frame.ok && frame.type != kGoAway) frame = Next();
  return frame.ok;
}

bool RawHttp2::AwaitEnd() {
  errno = 0;
  while (Next().ok) errno = 0;
  return errno != EAGAIN;  // SO_RCVTIMEO
}

size_t RawHttp2::ReadData(uint32_t stream, size_t bytes) {
  size_t got = 0;
  while (got < bytes) {
    const Frame frame = Next();
    if (!frame.ok || frame.type == kGoAway) return got;
    if (frame.stream != stream) continue;
    if (frame.type == kReset) return got;
    if (frame.type == kData) got += frame.payload.size();
    if ((frame.flags & kEndStream) != 0 && frame.type != kSettings) return got;
  }
  return got;
}

bool RawHttp2::Ping() {
  if (!Write(kPing, 0, 0, std::string(8, 'p'))) return false;
  for (;;) {
    const Frame frame = Read();
    if (!frame.ok) return false;
    if (frame.type == kPing && (frame.flags & kAck) != 0) return true;
    unread_.push_back(frame);
    if (frame.type == kGoAway) return false;
  }
}

bool RawHttp2::MayWriteOn() {
  // What is acknowledged was not answered with a reset.
  for (int unsent = 1; unsent > 0;) {
    if (!Write(kPing, 0, 0, std::string(8, 'p'))) return false;
    if (ioctl(fd_, SIOCOUTQ, &unsent) != 0) return false;
  }
  return Write(kPing, 0, 0, std::string(8, 'p'));
}

}  // namespace weir::testing
