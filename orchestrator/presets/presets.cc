#include "orchestrator/presets/presets.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>

#include <array>
#include <cstring>
#include <memory>
#include <set>

#include "orchestrator/presets/discover.h"

namespace cofferdam::orchestrator {
namespace {

Result<std::vector<policy::IpAddress>> resolve_host(const policy::HostName& name) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int failed = ::getaddrinfo(name.text().c_str(), nullptr, &hints, &list);
  if (failed != 0) return Error(::gai_strerror(failed));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, &::freeaddrinfo);
  std::set<policy::IpAddress> found;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    if (entry->ai_family == AF_INET) {
      sockaddr_in address{};
      std::memcpy(&address, entry->ai_addr, sizeof address);
      std::array<std::uint8_t, 4> bytes{};
      std::memcpy(bytes.data(), &address.sin_addr, bytes.size());
      found.insert(policy::IpAddress::from_v4(bytes));
    } else if (entry->ai_family == AF_INET6) {
      sockaddr_in6 address{};
      std::memcpy(&address, entry->ai_addr, sizeof address);
      std::array<std::uint8_t, 16> bytes{};
      std::memcpy(bytes.data(), &address.sin6_addr, bytes.size());
      found.insert(policy::IpAddress::from_v6(bytes));
    }
  }
  if (found.empty()) return Error("no address");
  return std::vector<policy::IpAddress>(found.begin(), found.end());
}

}  // namespace

Result<PresetResult> discover_preset(std::string_view name, const PresetQuery& query) {
  if (name == "npm") return discover_npm(query, resolve_host);
  if (name == "pip") return discover_pip(query, resolve_host);
  if (name == "cargo") return discover_cargo(query, resolve_host);
  if (name == "go") return discover_go(query, resolve_host);
  if (name == "apt") return discover_apt("/etc/apt", query, resolve_host);
  if (name == "git") return discover_git(query, resolve_host);
  return Error("no such preset: " + std::string(name));
}

}  // namespace cofferdam::orchestrator
