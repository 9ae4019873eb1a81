// What a thread sends under a scope of its cork waits until it is pulled.
#include "server/rpc/socket_cork.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <thread>

namespace weir {
namespace {

// A connection over loopback, which sends without delay, as gRPC's do. What is
// sent is there when send returns.
class Connection {
 public:
  Connection() {
    const int listening = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(listening, any, size), 0);
    EXPECT_EQ(listen(listening, 1), 0);
    EXPECT_EQ(getsockname(listening, any, &size), 0);
    sends_ = socket(AF_INET, SOCK_STREAM, 0);
    EXPECT_EQ(connect(sends_, any, size), 0);
    receives_ = accept(listening, nullptr, nullptr);
    EXPECT_GE(receives_, 0);
    const int on = 1;
    EXPECT_EQ(setsockopt(sends_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)), 0);
    close(listening);
  }
  ~Connection() {
    close(sends_);
    close(receives_);
  }

  void Send(std::string text) const {
    iovec piece = {text.data(), text.size()};
    msghdr message = {};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    EXPECT_EQ(sendmsg(sends_, &message, MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  }

  std::string Received() const {
    char text[4096];
    const ssize_t got = recv(receives_, text, sizeof(text), MSG_DONTWAIT);
    return got < 0 ? "" : std::string(text, static_cast<size_t>(got));
  }

 private:
  int sends_ = -1;
  int receives_ = -1;
};

class SocketCorkTest : public ::testing::Test {
 protected:
  ~SocketCorkTest() override { SocketCork::Pull(); }

  void Hold(const Connection& connection, const std::string& text) {
    const SocketCork::Scope scope(true);
    connection.Send(text);
  }

  Connection a_;
  Connection b_;
};

TEST_F(SocketCorkTest, WhatIsSentWaitsUntilItIsPulled) {
  Hold(a_, "1");
  Hold(b_, "2");
  Hold(a_, "3");
  EXPECT_EQ(SocketCork::held(), 3);
  EXPECT_EQ(a_.Received() + b_.Received(), "");
  SocketCork::Pull();
  EXPECT_EQ(SocketCork::held(), 0);
  EXPECT_EQ(a_.Received(), "13");
  EXPECT_EQ(b_.Received(), "2");
}

TEST_F(SocketCorkTest, WithoutAScopeNothingWaits) {
  a_.Send("1");
  {
    const SocketCork::Scope scope(false);
    a_.Send("2");
  }
  EXPECT_EQ(SocketCork::held(), 0);
  EXPECT_EQ(a_.Received(), "12");
}

TEST_F(SocketCorkTest, WhatIsSentAtOnceTakesAllOfItsSocketAlong) {
  Hold(a_, "1");
  Hold(b_, "2");
  a_.Send("3");
  EXPECT_EQ(a_.Received(), "13");
  EXPECT_EQ(b_.Received(), "");
}

TEST_F(SocketCorkTest, FewWritesWait) {
  for (int i = 0; i < SocketCork::kMost; ++i) Hold(a_, "1");
  EXPECT_EQ(a_.Received(), "");
  Hold(b_, "2");
  EXPECT_EQ(a_.Received(), std::string(SocketCork::kMost, '1'));
  EXPECT_EQ(b_.Received(), "");
  EXPECT_EQ(SocketCork::held(), 1);
}

TEST_F(SocketCorkTest, AThreadPullsItsOwn) {
  Hold(a_, "1");
  std::thread([&] {
    EXPECT_EQ(SocketCork::held(), 0);
    b_.Send("2");
    SocketCork::Pull();
  }).join();
  EXPECT_EQ(b_.Received(), "2");
  EXPECT_EQ(a_.Received(), "");
}

// gRPC may have closed it on another thread.
TEST_F(SocketCorkTest, AClosedSocketIsPassedOver) {
  {
    const Connection gone;
    Hold(gone, "1");
  }
  Hold(a_, "2");
  SocketCork::Pull();
  EXPECT_EQ(a_.Received(), "2");
}

}  // namespace
}  // namespace weir
