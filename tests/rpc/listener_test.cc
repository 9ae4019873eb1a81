#include "server/rpc/listener.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/base/eventually.h"

namespace {

// So many more find no descriptor left.
std::atomic<int> accepts_to_fail = 0;

}  // namespace

// The C library's, for this program.
int accept4(int fd, sockaddr* from, socklen_t* size, int flags) {
  if (accepts_to_fail > 0) {
    --accepts_to_fail;
    errno = EMFILE;
    return -1;
  }
  return static_cast<int>(syscall(SYS_accept4, fd, from, size, flags));
}

namespace weir {
namespace {

using testing::Eventually;
using ::testing::HasSubstr;

int ConnectTo(const std::string& address, const char* from = "127.0.0.1") {
  sockaddr_in where = {};
  where.sin_family = AF_INET;
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  where.sin_port = htons(
      static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in here = {};
  here.sin_family = AF_INET;
  inet_pton(AF_INET, from, &here.sin_addr);
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&here), sizeof(here)), 0);
  if (connect(fd, reinterpret_cast<sockaddr*>(&where), sizeof(where)) != 0) {
    close(fd);
    return -1;
  }
  return fd;
}

// The other side has closed the connection; so does this one.
void ExpectClosed(int client) {
  char byte = 0;
  EXPECT_LE(read(client, &byte, 1), 0);
  close(client);
}

TEST(ListenerTest, RefusesAddressesThatAreNone) {
  for (const char* address :
       {"", "8001", "127.0.0.1", "127.0.0.1:", ":80", "127.0.0.1:http",
        "127.0.0.1:65536", "::1:80", "unix:", "no.such.host.invalid:80"}) {
    const auto listener = Listener::Open({address});
    ASSERT_FALSE(listener.ok()) << address;
    EXPECT_EQ(listener.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(listener.status().message()), HasSubstr(address));
  }
}

TEST(ListenerTest, TellsTheRealPort) {
  const auto listener = Listener::Open({"127.0.0.1:0", "localhost:0"});
  ASSERT_TRUE(listener.ok()) << listener.status();
  ASSERT_EQ((*listener)->addresses().size(), 2u);
  EXPECT_THAT((*listener)->addresses()[0], ::testing::StartsWith("127.0.0.1:"));
  EXPECT_THAT((*listener)->addresses()[0],
              ::testing::Not(::testing::EndsWith(":0")));
}

TEST(ListenerTest, ClosesConnectionsBeyondTheBound) {
  auto listener = Listener::Open({"127.0.0.1:0"}, {.all = 2});
  ASSERT_TRUE(listener.ok());
  std::atomic<int> accepted[4] = {-1, -1, -1, -1};
  std::atomic<size_t> count = 0;
  (*listener)->Start([&](const Listener::Accepted& connection) {
    accepted[count++] = connection.fd;
  });
  const std::string address = (*listener)->addresses()[0];
  std::vector<int> clients = {ConnectTo(address), ConnectTo(address)};
  // A third one is closed, and takes nobody's place.
  for (int i = 0; i < 10; ++i) ExpectClosed(ConnectTo(address));
  EXPECT_EQ(count, 2u);
  EXPECT_EQ((*listener)->open_connections(), 2u);
  EXPECT_EQ((*listener)->closed().all, 10u);
  EXPECT_EQ((*listener)->closed().of_peer, 0u);
  // When one has ended there is room.
  close(accepted[0]);
  EXPECT_TRUE(Eventually([&] {
    clients.push_back(ConnectTo(address));
    return count == 3;
  }));
  (*listener)->Close();
  close(accepted[1]);
  close(accepted[2]);
  for (const int fd : clients) close(fd);
}

// One peer cannot take the room of all others.
TEST(ListenerTest, ClosesConnectionsOfAPeerThatHasTooMany) {
  auto listener = Listener::Open({"127.0.0.1:0"}, {.all = 8, .of_peer = 2});
  ASSERT_TRUE(listener.ok());
  std::atomic<int> accepted[8] = {};
  std::atomic<size_t> count = 0;
  (*listener)->Start([&](const Listener::Accepted& connection) {
    accepted[count++] = connection.fd;
  });
  const std::string address = (*listener)->addresses()[0];
  std::vector<int> clients = {ConnectTo(address), ConnectTo(address)};
  for (int i = 0; i < 10; ++i) ExpectClosed(ConnectTo(address));
  EXPECT_EQ(count, 2u);
  EXPECT_EQ((*listener)->closed().of_peer, 10u);
  EXPECT_EQ((*listener)->closed().all, 0u);
  // Others come in, and it too when one of its own has ended.
  clients.push_back(ConnectTo(address, "127.0.0.2"));
  EXPECT_TRUE(Eventually([&] { return count == 3; }));
  close(accepted[0]);
  EXPECT_TRUE(Eventually([&] {
    clients.push_back(ConnectTo(address));
    return count == 4;
  }));
  (*listener)->Close();
  for (size_t i = 1; i < 4; ++i) close(accepted[i]);
  for (const int fd : clients) close(fd);
}

TEST(ListenerTest, AcceptsWhatConnectedBeforeItClosed) {
  constexpr size_t kClients = 400;  // they take longer than Close to be said
  auto listener = Listener::Open({"127.0.0.1:0"});
  ASSERT_TRUE(listener.ok());
  std::vector<int> clients;
  for (size_t i = 0; i < kClients; ++i) {
    clients.push_back(ConnectTo((*listener)->addresses()[0]));
    ASSERT_GE(clients.back(), 0);
  }
  std::vector<int> accepted;
  (*listener)->Start([&](const Listener::Accepted& connection) {
    accepted.push_back(connection.fd);
  });
  (*listener)->Close();
  EXPECT_EQ(accepted.size(), kClients);
  EXPECT_EQ((*listener)->open_connections(), kClients);
  EXPECT_EQ(ConnectTo((*listener)->addresses()[0]), -1);
  for (size_t i = 0; i < 20; ++i) close(accepted[i]);
  EXPECT_EQ((*listener)->open_connections(), kClients - 20);
  for (size_t i = 20; i < accepted.size(); ++i) close(accepted[i]);
  for (int fd : clients) close(fd);
  EXPECT_EQ((*listener)->open_connections(), 0u);
}

// However many come to one address, others have their turns.
TEST(ListenerTest, AcceptsFromEveryAddressInTurn) {
  auto listener = Listener::Open({"127.0.0.1:0", "127.0.0.1:0"});
  ASSERT_TRUE(listener.ok());
  std::vector<int> clients;
  for (int i = 0; i < 200; ++i) {
    clients.push_back(ConnectTo((*listener)->addresses()[0]));
  }
  clients.push_back(ConnectTo((*listener)->addresses()[1]));
  std::vector<Listener::Accepted> accepted;
  std::atomic<size_t> count = 0;
  (*listener)->Start([&](const Listener::Accepted& connection) {
    accepted.push_back(connection);
    ++count;
  });
  EXPECT_TRUE(Eventually([&] { return count == clients.size(); }));
  (*listener)->Close();
  size_t before = 0;
  while (before < accepted.size() &&
         accepted[before].listening_fd == accepted[0].listening_fd) {
    ++before;
  }
  EXPECT_LT(before, 100u);
  for (const Listener::Accepted& connection : accepted) close(connection.fd);
  for (const int fd : clients) close(fd);
}

// As gRPC ends a connection.
void End(int fd) {
  shutdown(fd, SHUT_RDWR);
  close(fd);
}

TEST(ListenerTest, AConnectionThatWasEndedStaysUntilItsClientEndsItToo) {
  auto listener =
      Listener::Open({"127.0.0.1:0"}, Listener::Bounds(),
                     {.idle = absl::Hours(1), .limit = absl::Hours(1)});
  ASSERT_TRUE(listener.ok());
  std::atomic<int> accepted = -1;
  (*listener)->Start(
      [&](const Listener::Accepted& connection) { accepted = connection.fd; });
  const int client = ConnectTo((*listener)->addresses()[0]);
  ASSERT_TRUE(Eventually([&] { return accepted >= 0; }));
  End(accepted);
  char byte = 0;
  EXPECT_EQ(read(client, &byte, 1), 0);
  // More than the sockets' buffers hold: somebody reads it.
  const std::string bytes(1 << 20, 'x');
  for (int i = 0; i < 32; ++i) {
    size_t sent = 0;
    while (sent < bytes.size()) {
      const ssize_t n =
          send(client, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      ASSERT_GT(n, 0);
      sent += static_cast<size_t>(n);
    }
  }
  EXPECT_EQ((*listener)->open_connections(), 1u);
  close(client);
  EXPECT_TRUE(Eventually([&] { return (*listener)->open_connections() == 0; }));
}

// Another descriptor of the same socket, or -1.
int OtherOf(int fd) {
  constexpr int kDescriptors = 1024;
  struct stat info = {}, other = {};
  EXPECT_EQ(fstat(fd, &info), 0);
  for (int i = 0; i < kDescriptors; ++i) {
    if (i != fd && fstat(i, &other) == 0 && other.st_ino == info.st_ino &&
        other.st_dev == info.st_dev) {
      return i;
    }
  }
  return -1;
}

// gRPC closes its own descriptor some time after it has ended the connection.
TEST(ListenerTest, ADescriptorThatIsUsedAgainIsLeftAlone) {
  auto listener = Listener::Open({"127.0.0.1:0"});
  ASSERT_TRUE(listener.ok());
  std::atomic<int> accepted = -1;
  (*listener)->Start(
      [&](const Listener::Accepted& connection) { accepted = connection.fd; });
  // The number of the descriptor that the listener had of it meanwhile.
  int kept = -1;
  const auto lets_one_linger = [&] {
    accepted = -1;
    const int client = ConnectTo((*listener)->addresses()[0]);
    ASSERT_TRUE(Eventually([&] { return accepted >= 0; }));
    shutdown(accepted, SHUT_RDWR);
    kept = OtherOf(accepted);
    ASSERT_GE(kept, 0);
    close(client);
    ASSERT_TRUE(
        Eventually([&] { return (*listener)->open_connections() == 0; }));
  };
  ASSERT_NO_FATAL_FAILURE(lets_one_linger());
  const int first = accepted;
  const int again = kept;
  int ends[2] = {-1, -1};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  if (ends[1] == again) std::swap(ends[0], ends[1]);
  if (ends[0] != again) {
    // The thread that accepts may take it for a moment, and find nobody.
    ASSERT_TRUE(Eventually([&] { return dup2(ends[0], again) == again; }));
    close(ends[0]);
  }
  ASSERT_EQ(send(ends[1], "x", 1, 0), 1);
  ASSERT_NO_FATAL_FAILURE(lets_one_linger());
  char byte = 0;
  EXPECT_EQ(recv(again, &byte, 1, MSG_DONTWAIT), 1);
  for (const int fd : {again, ends[1], first, accepted.load()}) close(fd);
}

TEST(ListenerTest, AConnectionThatWasEndedStaysNoLongerThanItsBounds) {
  for (const LingeringSockets::Bounds bounds :
       {LingeringSockets::Bounds{.idle = absl::Milliseconds(20),
       .limit = absl::Hours(1)},
        LingeringSockets::Bounds{.idle = absl::Hours(1),
        .limit = absl::Milliseconds(20)}}) {
    auto listener = Listener::Open({"127.0.0.1:0"}, Listener::Bounds(), bounds);
    ASSERT_TRUE(listener.ok());
    std::atomic<int> accepted = -1;
    (*listener)->Start([&](const Listener::Accepted& connection) {
      accepted = connection.fd;
    });
    const int client = ConnectTo((*listener)->addresses()[0]);
    ASSERT_TRUE(Eventually([&] { return accepted >= 0; }));
    End(accepted);
    EXPECT_TRUE(
        Eventually([&] { return (*listener)->open_connections() == 0; }));
    close(client);
  }
}

// Who has not read all that it was sent stays, however long others are gone
// that had.
TEST(ListenerTest, AConnectionThatWasEndedStaysWhileItsClientReads) {
  constexpr auto kIdle = absl::Milliseconds(20);
  auto listener = Listener::Open({"127.0.0.1:0"}, Listener::Bounds(),
                                 {.idle = kIdle, .limit = absl::Hours(1)});
  ASSERT_TRUE(listener.ok());
  std::atomic<int> accepted = -1;
  (*listener)->Start(
      [&](const Listener::Accepted& connection) { accepted = connection.fd; });
  const std::string address = (*listener)->addresses()[0];
  const int slow = ConnectTo(address);
  ASSERT_TRUE(Eventually([&] { return accepted >= 0; }));
  // More than the sockets' buffers hold.
  const std::string bytes(1 << 20, 'x');
  size_t sent = 0;
  for (;;) {
    const ssize_t n =
        send(accepted, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n <= 0) break;
    sent += static_cast<size_t>(n);
  }
  End(accepted);
  // Of two whose time is over either may be closed first; before a third, both
  // are.
  for (int i = 0; i < 2; ++i) {
    accepted = -1;
    const int other = ConnectTo(address);
    ASSERT_TRUE(Eventually([&] { return accepted >= 0; }));
    End(accepted);
    EXPECT_TRUE(
        Eventually([&] { return send(other, "x", 1, MSG_NOSIGNAL) < 0; }));
    close(other);
  }
  EXPECT_EQ((*listener)->open_connections(), 1u);
  std::string got(1 << 20, '\0');
  ssize_t n = 0;
  while ((n = read(slow, got.data(), got.size())) > 0) {
    sent -= static_cast<size_t>(n);
  }
  EXPECT_EQ(n, 0);
  EXPECT_EQ(sent, 0u);
  EXPECT_TRUE(Eventually([&] { return (*listener)->open_connections() == 0; }));
  close(slow);
}

// A descriptor short, it says so, and does not serve without what it is for.
TEST(ListenerTest, IsNotOpenedWithoutItsDescriptors) {
  constexpr rlim_t kDescriptors = 4;  // to stop, poll and wake, and the socket
  rlimit limit = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const int free = dup(0);
  close(free);
  for (rlim_t more = 0; more < kDescriptors; ++more) {
    const rlimit few = {static_cast<rlim_t>(free) + more, limit.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
    const auto listener = Listener::Open({"127.0.0.1:0"});
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    EXPECT_FALSE(listener.ok()) << more;
    EXPECT_NE(listener.status().message(), "");
  }
}

// What could not be accepted is there still: without a pause the thread would
// ask again and again.
TEST(ListenerTest, PausesWhileThereIsNoDescriptor) {
  constexpr int kFailures = 4;
  constexpr auto kLeastPause = std::chrono::milliseconds(50);
  auto listener = Listener::Open({"127.0.0.1:0"});
  ASSERT_TRUE(listener.ok());
  std::atomic<int> accepted = -1;
  (*listener)->Start(
      [&](const Listener::Accepted& connection) { accepted = connection.fd; });
  const auto began = std::chrono::steady_clock::now();
  accepts_to_fail = kFailures;
  const int client = ConnectTo((*listener)->addresses()[0]);
  EXPECT_TRUE(Eventually([&] { return accepted >= 0; }));
  EXPECT_EQ(accepts_to_fail, 0);
  EXPECT_GE(std::chrono::steady_clock::now() - began, kFailures * kLeastPause);
  close(client);
  close(accepted);
}

// A socket of anybody else is shut down as ever.
TEST(ListenerTest, OthersSocketsAreClosedAtOnce) {
  const auto listener = Listener::Open({"127.0.0.1:0"});
  ASSERT_TRUE(listener.ok());
  (*listener)->Start([](const Listener::Accepted&) {});
  int ends[2] = {-1, -1};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  EXPECT_EQ(shutdown(ends[0], SHUT_RDWR), 0);
  EXPECT_EQ(send(ends[1], "x", 1, MSG_NOSIGNAL), -1);
  EXPECT_EQ(errno, EPIPE);
  EXPECT_EQ(shutdown(-1, SHUT_RDWR), -1);
  EXPECT_EQ(errno, EBADF);
  for (const int end : ends) close(end);
}

// A socket that is bound to a path of this process's own.
int BindPath(sockaddr_un* where) {
  const std::string path =
      "/tmp/weir-listener-test-" + std::to_string(getpid()) + ".sock";
  *where = {};
  where->sun_family = AF_UNIX;
  path.copy(where->sun_path, sizeof(where->sun_path) - 1);
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(where), sizeof(*where)), 0);
  return fd;
}

// A server that is so busy that it takes no more connections lives.
TEST(ListenerTest, LeavesASocketWhoseQueueIsFull) {
  sockaddr_un where;
  const int server = BindPath(&where);
  const std::string path = where.sun_path;
  ASSERT_EQ(listen(server, 0), 0);
  std::vector<int> clients;
  do {
    clients.push_back(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0));
  } while (connect(clients.back(), reinterpret_cast<sockaddr*>(&where),
                   sizeof(where)) == 0);
  EXPECT_EQ(errno, EAGAIN);
  const absl::Status taken = Listener::Open({"unix:" + path}).status();
  EXPECT_EQ(taken.code(), absl::StatusCode::kAlreadyExists) << taken;
  EXPECT_THAT(std::string(taken.message()), HasSubstr(path));
  // It is still the one behind the path.
  const int accepted = accept(server, nullptr, nullptr);
  EXPECT_GE(accepted, 0);
  const int next = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
  EXPECT_EQ(connect(next, reinterpret_cast<sockaddr*>(&where), sizeof(where)),
            0);
  for (const int fd : clients) close(fd);
  for (const int fd : {accepted, next, server}) close(fd);
  std::filesystem::remove(path);
}

TEST(ListenerTest, ReplacesASocketThatNobodyServes) {
  sockaddr_un where;
  close(BindPath(&where));  // what a process leaves that died
  const std::string path = where.sun_path;
  {
    const auto listener = Listener::Open({"unix:" + path});
    EXPECT_TRUE(listener.ok()) << listener.status();
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  // Any other file is not ours to remove.
  std::ofstream(path) << "data";
  const absl::Status file = Listener::Open({"unix:" + path}).status();
  EXPECT_EQ(file.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(file.message()),
              HasSubstr("a file that is no socket is there"));
  EXPECT_TRUE(std::filesystem::exists(path));
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace weir
