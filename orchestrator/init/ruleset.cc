#include "orchestrator/init/ruleset.h"

#include <arpa/inet.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_conntrack_common.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <netinet/in.h>

#include <cstdint>
#include <string_view>

#include "orchestrator/init/loopback.h"
#include "orchestrator/init/protocol.h"

namespace cofferdam::init {
namespace {

constexpr char kTable[] = "cofferdam";
constexpr char kSteer[] = "steer";
constexpr char kGuard[] = "guard";
constexpr std::int32_t kSteerPriority = -150;  // before Docker's -100
constexpr std::size_t kDestination4 = 16;      // offset of daddr in the IPv4 header
constexpr std::size_t kDestination6 = 24;      // … in the IPv6 header
constexpr std::size_t kDestinationPort = 2;    // offset of dport in the TCP and UDP headers

constexpr std::uint16_t type_of(int message) {
  return static_cast<std::uint16_t>((NFNL_SUBSYS_NFTABLES << 8) | message);
}

void begin(NetlinkBatch& batch, std::uint16_t type, std::uint16_t flags, std::uint8_t family,
           std::uint16_t resource = 0) {
  batch.begin(type, flags);
  nfgenmsg header{};
  header.nfgen_family = family;
  header.version = NFNETLINK_V0;
  header.res_id = htons(resource);
  batch.append(header);
}

void add_table(NetlinkBatch& batch) {
  begin(batch, type_of(NFT_MSG_NEWTABLE), NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK, NFPROTO_INET);
  batch.attribute_text(NFTA_TABLE_NAME, kTable);
  batch.end();
}

void add_chain(NetlinkBatch& batch, const char* name, const char* type, std::int32_t priority,
               std::uint32_t policy) {
  begin(batch, type_of(NFT_MSG_NEWCHAIN), NLM_F_CREATE | NLM_F_EXCL | NLM_F_ACK, NFPROTO_INET);
  batch.attribute_text(NFTA_CHAIN_TABLE, kTable);
  batch.attribute_text(NFTA_CHAIN_NAME, name);
  const std::size_t hook = batch.open_nest(NFTA_CHAIN_HOOK);
  batch.attribute_be32(NFTA_HOOK_HOOKNUM, NF_INET_LOCAL_OUT);
  batch.attribute_be32(NFTA_HOOK_PRIORITY, static_cast<std::uint32_t>(priority));
  batch.close_nest(hook);
  batch.attribute_be32(NFTA_CHAIN_POLICY, policy);
  batch.attribute_text(NFTA_CHAIN_TYPE, type);
  batch.end();
}

// One rule, written expression by expression; complete when it goes out of scope.
class Rule final {
 public:
  Rule(NetlinkBatch& batch, const char* chain) : batch_(batch) {
    begin(batch_, type_of(NFT_MSG_NEWRULE), NLM_F_CREATE | NLM_F_APPEND | NLM_F_ACK, NFPROTO_INET);
    batch_.attribute_text(NFTA_RULE_TABLE, kTable);
    batch_.attribute_text(NFTA_RULE_CHAIN, chain);
    list_ = batch_.open_nest(NFTA_RULE_EXPRESSIONS);
  }
  ~Rule() {
    batch_.close_nest(list_);
    batch_.end();
  }
  Rule(const Rule&) = delete;
  Rule& operator=(const Rule&) = delete;

  Rule& meta_is(std::uint32_t key, std::uint8_t value) {
    open("meta");
    batch_.attribute_be32(NFTA_META_KEY, key);
    batch_.attribute_be32(NFTA_META_DREG, NFT_REG_1);
    close();
    return compare(NFT_CMP_EQ, &value, sizeof value);
  }
  Rule& protocol(std::uint8_t value) { return meta_is(NFT_META_L4PROTO, value); }

  Rule& destination_port(std::uint16_t port) {
    load(NFT_PAYLOAD_TRANSPORT_HEADER, kDestinationPort, 2);
    const std::uint16_t wire = htons(port);
    return compare(NFT_CMP_EQ, &wire, sizeof wire);
  }

  // daddr & mask == address; `size` 4 or 16.
  Rule& destination(const std::uint8_t* address, const std::uint8_t* mask, std::size_t size) {
    meta_is(NFT_META_NFPROTO, size == 4 ? NFPROTO_IPV4 : NFPROTO_IPV6);
    load(NFT_PAYLOAD_NETWORK_HEADER, size == 4 ? kDestination4 : kDestination6, size);
    if (mask != nullptr) apply_mask(mask, size);
    return compare(NFT_CMP_EQ, address, size);
  }

  Rule& known_connection() {
    open("ct");
    batch_.attribute_be32(NFTA_CT_KEY, NFT_CT_STATE);
    batch_.attribute_be32(NFTA_CT_DREG, NFT_REG_1);
    close();
    const std::uint32_t states =
        NF_CT_STATE_BIT(IP_CT_ESTABLISHED) | NF_CT_STATE_BIT(IP_CT_RELATED);
    apply_mask(&states, sizeof states);
    const std::uint32_t none = 0;
    return compare(NFT_CMP_NEQ, &none, sizeof none);
  }

  void verdict(int code) {
    open("immediate");
    batch_.attribute_be32(NFTA_IMMEDIATE_DREG, NFT_REG_VERDICT);
    const std::size_t data = batch_.open_nest(NFTA_IMMEDIATE_DATA);
    const std::size_t inner = batch_.open_nest(NFTA_DATA_VERDICT);
    batch_.attribute_be32(NFTA_VERDICT_CODE, static_cast<std::uint32_t>(code));
    batch_.close_nest(inner);
    batch_.close_nest(data);
    close();
  }

  void redirect(std::uint16_t port) {
    const std::uint16_t wire = htons(port);
    open("immediate");
    batch_.attribute_be32(NFTA_IMMEDIATE_DREG, NFT_REG_1);
    value(NFTA_IMMEDIATE_DATA, &wire, sizeof wire);
    close();
    open("redir");
    batch_.attribute_be32(NFTA_REDIR_REG_PROTO_MIN, NFT_REG_1);
    close();
  }

  void reject() {
    open("reject");
    batch_.attribute_be32(NFTA_REJECT_TYPE, NFT_REJECT_ICMPX_UNREACH);
    const std::uint8_t code = NFT_REJECT_ICMPX_ADMIN_PROHIBITED;
    batch_.attribute(NFTA_REJECT_ICMP_CODE, &code, sizeof code);
    close();
  }

 private:
  void open(std::string_view name) {
    element_ = batch_.open_nest(NFTA_LIST_ELEM);
    batch_.attribute_text(NFTA_EXPR_NAME, name);
    data_ = batch_.open_nest(NFTA_EXPR_DATA);
  }
  void close() {
    batch_.close_nest(data_);
    batch_.close_nest(element_);
  }
  void value(std::uint16_t attribute, const void* bytes, std::size_t size) {
    const std::size_t nest = batch_.open_nest(attribute);
    batch_.attribute(NFTA_DATA_VALUE, bytes, size);
    batch_.close_nest(nest);
  }
  void load(std::uint32_t base, std::size_t offset, std::size_t size) {
    open("payload");
    batch_.attribute_be32(NFTA_PAYLOAD_DREG, NFT_REG_1);
    batch_.attribute_be32(NFTA_PAYLOAD_BASE, base);
    batch_.attribute_be32(NFTA_PAYLOAD_OFFSET, static_cast<std::uint32_t>(offset));
    batch_.attribute_be32(NFTA_PAYLOAD_LEN, static_cast<std::uint32_t>(size));
    close();
  }
  void apply_mask(const void* mask, std::size_t size) {
    const std::uint8_t zeros[16] = {};
    open("bitwise");
    batch_.attribute_be32(NFTA_BITWISE_SREG, NFT_REG_1);
    batch_.attribute_be32(NFTA_BITWISE_DREG, NFT_REG_1);
    batch_.attribute_be32(NFTA_BITWISE_LEN, static_cast<std::uint32_t>(size));
    value(NFTA_BITWISE_MASK, mask, size);
    value(NFTA_BITWISE_XOR, zeros, size);
    close();
  }
  Rule& compare(std::uint32_t operation, const void* bytes, std::size_t size) {
    open("cmp");
    batch_.attribute_be32(NFTA_CMP_SREG, NFT_REG_1);
    batch_.attribute_be32(NFTA_CMP_OP, operation);
    value(NFTA_CMP_DATA, bytes, size);
    close();
    return *this;
  }

  NetlinkBatch& batch_;
  std::size_t list_ = 0;
  std::size_t element_ = 0;
  std::size_t data_ = 0;
};

// own4 = { 127.0.0.0/8, own }, own6 = { ::1, own }: the workload's own servers.
void add_own_addresses(NetlinkBatch& batch, const char* chain, int verdict) {
  const std::uint8_t loopback4[4] = {127, 0, 0, 0};
  const std::uint8_t mask4[4] = {255, 0, 0, 0};
  std::uint8_t own4[4];
  std::uint8_t own6[16];
  (void)::inet_pton(AF_INET, kOwn4, own4);
  (void)::inet_pton(AF_INET6, kOwn6, own6);
  Rule(batch, chain).destination(loopback4, mask4, 4).verdict(verdict);
  Rule(batch, chain).destination(own4, nullptr, 4).verdict(verdict);
  Rule(batch, chain).destination(in6addr_loopback.s6_addr, nullptr, 16).verdict(verdict);
  Rule(batch, chain).destination(own6, nullptr, 16).verdict(verdict);
}

}  // namespace

NetlinkBatch make_ruleset() {
  NetlinkBatch batch;
  begin(batch, NFNL_MSG_BATCH_BEGIN, 0, AF_UNSPEC, NFNL_SUBSYS_NFTABLES);
  batch.end();
  add_table(batch);
  add_chain(batch, kSteer, "nat", kSteerPriority, NF_ACCEPT);
  add_chain(batch, kGuard, "filter", 0, NF_DROP);
  constexpr std::uint8_t kWithDns[] = {IPPROTO_TCP, IPPROTO_UDP};
  for (const std::uint8_t protocol : kWithDns) {
    Rule(batch, kSteer).protocol(protocol).destination_port(kDnsPort).redirect(kDnsPort);
  }
  add_own_addresses(batch, kSteer, NFT_RETURN);
  Rule(batch, kSteer).protocol(IPPROTO_TCP).redirect(kTransparentPort);
  Rule(batch, kGuard).known_connection().verdict(NF_ACCEPT);
  add_own_addresses(batch, kGuard, NF_ACCEPT);
  Rule(batch, kGuard).reject();
  begin(batch, NFNL_MSG_BATCH_END, 0, AF_UNSPEC, NFNL_SUBSYS_NFTABLES);
  batch.end();
  return batch;
}

Status load_ruleset() {
  TRY_ASSIGN(const NetlinkSocket socket, NetlinkSocket::open(NETLINK_NETFILTER));
  return socket.transact(make_ruleset()).context("nftables ruleset");
}

}  // namespace cofferdam::init
