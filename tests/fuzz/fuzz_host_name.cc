// Spellings of hosts: what is accepted is canonical, and no name is a literal to anybody's parser.
#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/policy/address_class.h"
#include "common/policy/host_name.h"
#include "common/policy/idna.h"
#include "common/policy/nat64.h"
#include "common/policy/public_suffix.h"
#include "common/policy/upstream_proxy.h"

namespace policy = cofferdam::policy;

namespace {

void require(bool holds) {
  if (!holds) __builtin_trap();
}

void check_name(const policy::HostName& name) {
  const std::string& text = name.text();
  require(!text.empty() && text.size() <= 253 && text.back() != '.' && text.front() != '.');
  std::size_t total = 0;
  for (const std::string_view label : name.labels()) {
    require(!label.empty() && label.size() <= 63);
    total += label.size() + 1;
    for (const char c : label) {
      require((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_');
    }
  }
  require(total == text.size() + 1);
  // The C library's generous reader of IPv4 must not take it.
  in_addr four{};
  require(::inet_aton(text.c_str(), &four) == 0);
  require(policy::HostName::parse(text)->text() == text);
  (void)policy::is_public_suffix(name);
  (void)policy::special_name(name);
}

void check_host(std::string_view text) {
  const auto host = policy::Host::parse(text);
  if (!host) return;
  const auto again = policy::Host::parse(host->text());
  require(again.ok() && *again == *host);
  if (host->is_name()) {
    check_name(host->name());
    return;
  }
  const policy::IpAddress& address = host->address();
  require(policy::IpAddress::parse(address.to_text()) == address);
  const policy::AddressClass found = policy::classify(address);
  require((found.tier == policy::Tier::kPublic) == policy::is_open(address, {}));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check_host(text);
  if (const auto endpoint = policy::parse_endpoint(text)) {
    require(endpoint->port != 0);
    require(*policy::parse_endpoint(endpoint->text()) == *endpoint);
  }
  if (const auto ascii = policy::to_a_labels(text)) {
    for (const char c : *ascii) require(static_cast<unsigned char>(c) < 0x80);
    require(*policy::to_a_labels(*ascii) == *ascii);
    check_host(*ascii);
  }
  if (const auto prefix = policy::Nat64Prefix::parse(text)) {
    require(*policy::Nat64Prefix::parse(prefix->to_text()) == *prefix);
  }
  if (const auto proxy = policy::parse_upstream_proxy(text)) {
    require(proxy->to_text().find('@') == std::string::npos);
    for (const char c : proxy->authorization) require(c >= 0x20 && c < 0x7f);
  }
  if (size == 16) {
    // Any address: judged without a fault, and the floor opens to nothing.
    std::array<std::uint8_t, 16> bytes{};
    std::copy(data, data + size, bytes.begin());
    const auto address = policy::IpAddress::from_v6(bytes);
    static const std::array<policy::Cidr, 2> all = {*policy::Cidr::parse("0.0.0.0/0"),
                                                    *policy::Cidr::parse("::/0")};
    static const std::array<policy::Nat64Prefix, 2> nat64 = {
        *policy::Nat64Prefix::parse("64:ff9b::/96"), *policy::Nat64Prefix::parse("2a00:64::/40")};
    if (policy::classify(address).tier == policy::Tier::kFloor) {
      require(!policy::is_open(address, all));
    }
    if (policy::classify(address, nat64).tier == policy::Tier::kFloor) {
      require(!policy::is_open(address, all, nat64));
    }
  }
  return 0;
}
