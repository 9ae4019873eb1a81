// Who is at the other end of a connection, for bounds per peer. Pure.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace weir {

// The same for all connections of one peer: an IPv4 address, or the first half
// of an IPv6 address, as one machine has the rest for itself. "" for others,
// such as unix sockets.
inline std::string PeerKey(const sockaddr_storage& from) {
  constexpr size_t kNetworkBytes = 8;
  if (from.ss_family == AF_INET) {
    const in_addr& address =
        reinterpret_cast<const sockaddr_in&>(from).sin_addr;
    return std::string(reinterpret_cast<const char*>(&address),
                       sizeof(address));
  }
  if (from.ss_family != AF_INET6) return "";
  const in6_addr& address =
      reinterpret_cast<const sockaddr_in6&>(from).sin6_addr;
  const char* const bytes = reinterpret_cast<const char*>(&address);
  return IN6_IS_ADDR_V4MAPPED(&address)
             ? std::string(bytes + 12, sizeof(in_addr))
             : std::string(bytes, kNetworkBytes);
}

// Who has no PeerKey: among callers one peer.
inline constexpr std::string_view kUnixPeer = "unix:";

// The same for one connection alone: its peer's whole address and its port.
// Those of unix sockets have one.
inline std::string ConnectionKey(const sockaddr_storage& from) {
  if (from.ss_family == AF_INET) {
    const auto& ipv4 = reinterpret_cast<const sockaddr_in&>(from);
    return absl::StrCat(PeerKey(from), ":", ntohs(ipv4.sin_port));
  }
  if (from.ss_family != AF_INET6) return std::string(kUnixPeer);
  const auto& ipv6 = reinterpret_cast<const sockaddr_in6&>(from);
  const std::string address =
      IN6_IS_ADDR_V4MAPPED(&ipv6.sin6_addr)
          ? PeerKey(from)
          : std::string(reinterpret_cast<const char*>(&ipv6.sin6_addr),
                        sizeof(ipv6.sin6_addr));
  return absl::StrCat(address, ":", ntohs(ipv6.sin6_port));
}

// gRPC's name of a peer, as below.
inline std::string PeerName(const sockaddr_storage& from) {
  char text[INET6_ADDRSTRLEN] = "";
  if (from.ss_family == AF_INET) {
    const auto& ipv4 = reinterpret_cast<const sockaddr_in&>(from);
    inet_ntop(AF_INET, &ipv4.sin_addr, text, sizeof(text));
    return absl::StrCat("ipv4:", text, ":", ntohs(ipv4.sin_port));
  }
  if (from.ss_family != AF_INET6) return "unix:";
  const auto& ipv6 = reinterpret_cast<const sockaddr_in6&>(from);
  if (IN6_IS_ADDR_V4MAPPED(&ipv6.sin6_addr)) {
    inet_ntop(AF_INET, ipv6.sin6_addr.s6_addr + 12, text, sizeof(text));
    return absl::StrCat("ipv4:", text, ":", ntohs(ipv6.sin6_port));
  }
  inet_ntop(AF_INET6, &ipv6.sin6_addr, text, sizeof(text));
  return absl::StrCat("ipv6:%5B", text, "%5D:", ntohs(ipv6.sin6_port));
}

// What gRPC's name of a peer says: "ipv4:192.0.2.1:443",
// "ipv6:%5B2001:db8::1%5D:443"; of no family for others ("unix:").
inline sockaddr_storage ParsePeer(std::string_view peer) {
  constexpr std::string_view kIpv4 = "ipv4:";
  constexpr std::string_view kIpv6 = "ipv6:";
  sockaddr_storage from = {};
  const size_t colon = peer.rfind(':');
  uint16_t port = 0;
  if (colon != std::string_view::npos) {
    std::from_chars(peer.data() + colon + 1, peer.data() + peer.size(), port);
  }
  peer = peer.substr(0, colon);
  if (peer.starts_with(kIpv4)) {
    const std::string host(peer.substr(kIpv4.size()));
    auto& ipv4 = reinterpret_cast<sockaddr_in&>(from);
    if (inet_pton(AF_INET, host.c_str(), &ipv4.sin_addr) == 1) {
      from.ss_family = AF_INET;
      ipv4.sin_port = htons(port);
    }
  } else if (peer.starts_with(kIpv6)) {
    peer.remove_prefix(kIpv6.size());
    for (const std::string_view open : {"%5B", "["}) {
      if (peer.starts_with(open)) peer.remove_prefix(open.size());
    }
    // What ends the address: a bracket, or the scope's percent sign.
    const std::string host(peer.substr(0, peer.find_first_of("%]")));
    auto& ipv6 = reinterpret_cast<sockaddr_in6&>(from);
    if (inet_pton(AF_INET6, host.c_str(), &ipv6.sin6_addr) == 1) {
      from.ss_family = AF_INET6;
      ipv6.sin6_port = htons(port);
    }
  }
  return from;
}

// Of that name.
inline std::string PeerKey(std::string_view peer) {
  return PeerKey(ParsePeer(peer));
}
inline std::string ConnectionKey(std::string_view peer) {
  return ConnectionKey(ParsePeer(peer));
}

}  // namespace weir
