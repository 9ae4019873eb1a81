// A connection that sends whatever bytes a test wants to, or none.
#pragma once

#include <string>
#include <string_view>

namespace weir::testing {

class RawSocket {
 public:
  // To "HOST:PORT" with an IPv4 address; aborts if nobody listens. `from` is
  // the source address, "127.0.0.2" for another peer on this machine.
  explicit RawSocket(const std::string& address, const std::string& from = "",
                     int receive_buffer = 0);
  ~RawSocket();
  RawSocket(RawSocket&& other) noexcept;
  RawSocket& operator=(RawSocket&&) = delete;

  // False once the other end has closed.
  bool Send(std::string_view bytes);
  // Tells the other end; reads on.
  void SendNoMore();
  // What comes until the other end closes or resets.
  std::string ReadToEnd();
  // Whether the other end has closed or reset; what it sent is thrown away.
  bool Closed();

 private:
  int fd_;
};

struct HttpReply {
  int status = 0;  // 0: no reply
  std::string head;
  std::string body;
};

HttpReply ParseHttpReply(const std::string& bytes);
// The reply to one request, which is made of `head` and an empty line.
HttpReply HttpRequest(const std::string& address, const std::string& head);
HttpReply HttpGet(const std::string& address, const std::string& path);

}  // namespace weir::testing
