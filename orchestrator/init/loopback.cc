#include "orchestrator/init/loopback.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_addr.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/stat.h>

#include <cstdint>
#include <string>

#include "common/os/files.h"
#include "orchestrator/init/netlink.h"

namespace cofferdam::init {
namespace {

struct Address {
  std::uint8_t family = AF_INET;
  std::uint8_t bytes[16] = {};
  std::size_t size = 4;
};

Address parse(std::uint8_t family, const char* text) {
  Address address;
  address.family = family;
  address.size = family == AF_INET ? 4 : 16;
  (void)::inet_pton(family, text, address.bytes);
  return address;
}

void add_link_up(NetlinkBatch& batch, int index) {
  batch.begin(RTM_NEWLINK, NLM_F_ACK);
  ifinfomsg link{};
  link.ifi_family = AF_UNSPEC;
  link.ifi_index = index;
  link.ifi_flags = IFF_UP;
  link.ifi_change = IFF_UP;
  batch.append(link);
  batch.end();
}

void add_address(NetlinkBatch& batch, int index, const Address& own) {
  batch.begin(RTM_NEWADDR, NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE);
  ifaddrmsg address{};
  address.ifa_family = own.family;
  address.ifa_prefixlen = static_cast<std::uint8_t>(own.size * 8);
  address.ifa_flags = own.family == AF_INET6 ? IFA_F_NODAD : 0;
  address.ifa_scope = RT_SCOPE_UNIVERSE;
  address.ifa_index = static_cast<unsigned>(index);
  batch.append(address);
  batch.attribute(IFA_LOCAL, own.bytes, own.size);
  batch.attribute(IFA_ADDRESS, own.bytes, own.size);
  batch.end();
}

// `ip route add local default dev lo src <own>`, in table local.
void add_local_default(NetlinkBatch& batch, int index, const Address& own) {
  batch.begin(RTM_NEWROUTE, NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE);
  rtmsg route{};
  route.rtm_family = own.family;
  route.rtm_table = RT_TABLE_LOCAL;
  route.rtm_protocol = RTPROT_BOOT;
  route.rtm_scope = own.family == AF_INET ? RT_SCOPE_HOST : RT_SCOPE_UNIVERSE;
  route.rtm_type = RTN_LOCAL;
  batch.append(route);
  batch.attribute_u32(RTA_OIF, static_cast<std::uint32_t>(index));
  batch.attribute(RTA_PREFSRC, own.bytes, own.size);
  batch.end();
}

Status write_setting(const std::string& path, std::string_view value) {
  auto fd = os::open_file(path, O_WRONLY);
  if (!fd.ok()) return fd.error();
  auto written = os::write_all(fd->get(), value);
  if (!written.ok()) return written.error().context(path);
  return {};
}

}  // namespace

bool has_ipv6() {
  struct stat st {};
  return ::stat("/proc/sys/net/ipv6", &st) == 0;
}

Status set_up_loopback() {
  const auto index = static_cast<int>(::if_nametoindex("lo"));
  if (index == 0) return Error::from_errno("lo");
  const bool ipv6 = has_ipv6();
  if (ipv6) TRY(write_setting("/proc/sys/net/ipv6/conf/all/disable_ipv6", "0"));
  if (ipv6) TRY(write_setting("/proc/sys/net/ipv6/conf/lo/disable_ipv6", "0"));
  TRY(write_setting("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0"));
  TRY_ASSIGN(const NetlinkSocket socket, NetlinkSocket::open(NETLINK_ROUTE));
  NetlinkBatch link;
  add_link_up(link, index);
  TRY(socket.transact(link).context("lo up"));
  const Address own4 = parse(AF_INET, kOwn4);
  const Address own6 = parse(AF_INET6, kOwn6);
  for (const Address& own : {own4, own6}) {
    if (own.family == AF_INET6 && !ipv6) continue;
    const char* family = own.family == AF_INET ? "IPv4" : "IPv6";
    NetlinkBatch address;
    add_address(address, index, own);
    TRY(socket.transact(address).context(std::string("own address, ") + family));
    NetlinkBatch route;
    add_local_default(route, index, own);
    TRY(socket.transact(route).context(std::string("local default route, ") + family));
  }
  return {};
}

}  // namespace cofferdam::init
