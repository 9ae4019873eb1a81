// Who is at the other end of a connection, for bounds per peer. Pure.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>
#include <string>

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

}  // namespace weir
