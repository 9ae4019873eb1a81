#include "server/rpc/listener.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/base/eventually.h"

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
  auto listener = Listener::Open({"127.0.0.1:0"});
  ASSERT_TRUE(listener.ok());
  std::vector<int> clients;
  for (int i = 0; i < 50; ++i) {
    clients.push_back(ConnectTo((*listener)->addresses()[0]));
    ASSERT_GE(clients.back(), 0);
  }
  std::vector<int> accepted;
  (*listener)->Start([&](const Listener::Accepted& connection) {
    accepted.push_back(connection.fd);
  });
  (*listener)->Close();
  EXPECT_EQ(accepted.size(), 50u);
  EXPECT_EQ((*listener)->open_connections(), 50u);
  EXPECT_EQ(ConnectTo((*listener)->addresses()[0]), -1);
  for (int i = 0; i < 20; ++i) close(accepted[static_cast<size_t>(i)]);
  EXPECT_EQ((*listener)->open_connections(), 30u);
  for (size_t i = 20; i < accepted.size(); ++i) close(accepted[i]);
  for (int fd : clients) close(fd);
  EXPECT_EQ((*listener)->open_connections(), 0u);
}

TEST(ListenerTest, ReplacesASocketThatNobodyServes) {
  const std::string path =
      "/tmp/weir-listener-test-" + std::to_string(getpid()) + ".sock";
  // What a process leaves that died.
  sockaddr_un where = {};
  where.sun_family = AF_UNIX;
  path.copy(where.sun_path, sizeof(where.sun_path) - 1);
  const int left = socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(bind(left, reinterpret_cast<sockaddr*>(&where), sizeof(where)), 0);
  close(left);
  {
    const auto listener = Listener::Open({"unix:" + path});
    EXPECT_TRUE(listener.ok()) << listener.status();
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  // Any other file is not ours to remove.
  std::ofstream(path) << "data";
  EXPECT_EQ(Listener::Open({"unix:" + path}).status().code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(std::filesystem::exists(path));
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace weir
