#include "server/rpc/peer.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace weir {
namespace {

sockaddr_storage Ipv4(const char* host) {
  sockaddr_storage from = {};
  auto& address = reinterpret_cast<sockaddr_in&>(from);
  address.sin_family = AF_INET;
  address.sin_port = htons(443);
  EXPECT_EQ(inet_pton(AF_INET, host, &address.sin_addr), 1) << host;
  return from;
}

sockaddr_storage Ipv6(const char* host) {
  sockaddr_storage from = {};
  auto& address = reinterpret_cast<sockaddr_in6&>(from);
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(443);
  EXPECT_EQ(inet_pton(AF_INET6, host, &address.sin6_addr), 1) << host;
  return from;
}

TEST(PeerTest, EachIpv4AddressIsAPeer) {
  EXPECT_EQ(PeerKey(Ipv4("192.0.2.1")).size(), 4u);
  EXPECT_NE(PeerKey(Ipv4("192.0.2.1")), PeerKey(Ipv4("192.0.2.2")));
  EXPECT_EQ(PeerKey("ipv4:192.0.2.1:1"), PeerKey("ipv4:192.0.2.1:2"));
  EXPECT_EQ(PeerKey("ipv4:192.0.2.1:1"), PeerKey(Ipv4("192.0.2.1")));
}

// One machine has all that follows the first half.
TEST(PeerTest, EachHalfOfAnIpv6AddressIsAPeer) {
  const std::string peer = PeerKey(Ipv6("2001:db8:0:1::1"));
  EXPECT_EQ(peer, PeerKey(Ipv6("2001:db8:0:1:ffff:ffff:ffff:ffff")));
  EXPECT_NE(peer, PeerKey(Ipv6("2001:db8:0:2::1")));
  for (const char* name :
       {"ipv6:%5B2001:db8:0:1::1%5D:443", "ipv6:[2001:db8:0:1::2]:443",
        "ipv6:%5B2001:db8:0:1:2:3:4:5%5D:1",
        "ipv6:%5B2001:db8:0:1::1%25eth0%5D:443"}) {
    EXPECT_EQ(PeerKey(name), peer) << name;
  }
  EXPECT_NE(PeerKey("ipv6:%5B2001:db8:0:2::1%5D:443"), peer);
}

// What a listener for both sees of who comes by IPv4.
TEST(PeerTest, AMappedIpv4AddressIsThatAddress) {
  const std::string peer = PeerKey(Ipv4("192.0.2.1"));
  EXPECT_EQ(PeerKey(Ipv6("::ffff:192.0.2.1")), peer);
  EXPECT_EQ(PeerKey("ipv6:%5B::ffff:192.0.2.1%5D:443"), peer);
  EXPECT_NE(PeerKey(Ipv6("::ffff:192.0.2.2")), peer);
  EXPECT_EQ(PeerName(Ipv6("::ffff:192.0.2.1")), "ipv4:192.0.2.1:443");
}

TEST(PeerTest, WhoHasNoAddressHasNoKey) {
  sockaddr_storage local = {};
  local.ss_family = AF_UNIX;
  EXPECT_EQ(PeerKey(local), "");
  EXPECT_EQ(PeerName(local), kUnixPeer);
  for (const char* name : {"", "unix:", "unix:/run/weir.sock", "ipv4:nowhere:1",
                           "ipv6:%5B%5D:1"}) {
    EXPECT_EQ(PeerKey(name), "") << name;
  }
}

TEST(PeerTest, EachPortOfAPeerIsAConnection) {
  for (const auto& [one, other] :
       {std::pair("ipv4:192.0.2.1:1", "ipv4:192.0.2.1:2"),
        std::pair("ipv6:%5B2001:db8::1%5D:1", "ipv6:%5B2001:db8::1%5D:2"),
        std::pair("ipv4:192.0.2.1:1", "ipv4:192.0.2.2:1"),
        std::pair("ipv6:%5B2001:db8::1%5D:1", "ipv6:%5B2001:db8::2%5D:1")}) {
    EXPECT_NE(ConnectionKey(one), ConnectionKey(other)) << one << " " << other;
  }
  EXPECT_EQ(ConnectionKey("ipv6:%5B::ffff:192.0.2.1%5D:443"),
            ConnectionKey("ipv4:192.0.2.1:443"));
  EXPECT_EQ(ConnectionKey("ipv6:[2001:db8::1]:443"),
            ConnectionKey(PeerName(Ipv6("2001:db8::1"))));
  EXPECT_EQ(ConnectionKey("unix:/run/weir.sock"), kUnixPeer);
}

// The name that a socket's address is given is read as that address.
TEST(PeerTest, NamesAndAddressesAgree) {
  for (const sockaddr_storage& from :
       {Ipv4("192.0.2.1"), Ipv6("2001:db8:0:1::1"), Ipv6("::1"),
        Ipv6("::ffff:192.0.2.1")}) {
    EXPECT_EQ(PeerKey(PeerName(from)), PeerKey(from)) << PeerName(from);
  }
  EXPECT_EQ(PeerName(Ipv6("2001:db8::1")), "ipv6:%5B2001:db8::1%5D:443");
}

}  // namespace
}  // namespace weir
