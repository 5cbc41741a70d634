// What the kernel delivers to this machine itself beyond the addresses of its interfaces: the
// routing table `local`, with the anycast address of every IPv6 subnet that a router has, broadcast
// addresses, and ranges that somebody made local (rtnetlink(7)).
#pragma once

#include <vector>

#include "common/base/result.h"
#include "common/os/sockets.h"

namespace cofferdam::os {

struct LocalRoute {
  SocketAddress address;  // the first one
  int length = 0;         // of the prefix
};
Result<std::vector<LocalRoute>> local_routes();

}  // namespace cofferdam::os
