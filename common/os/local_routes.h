// What the kernel delivers to this machine itself beyond the addresses of its interfaces: the
// single addresses of the routing table `local`, such as the anycast address of every IPv6 subnet
// that a router has, and broadcast addresses (rtnetlink(7)).
#pragma once

#include <vector>

#include "common/base/result.h"
#include "common/os/sockets.h"

namespace cofferdam::os {

// Host routes only (/32, /128); a range that somebody made local by hand is not among them.
Result<std::vector<SocketAddress>> local_host_routes();

}  // namespace cofferdam::os
