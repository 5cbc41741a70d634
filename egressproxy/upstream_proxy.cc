#include "egressproxy/upstream_proxy.h"

#include <algorithm>
#include <array>

#include "egressproxy/http_head.h"

namespace cofferdam::egressproxy {
namespace {

using policy::Reason;

constexpr std::size_t kMaxHead = 16384;  // bytes of a response head

// How many of `fresh`, which follow `head`, still belong to the head.
std::size_t head_part(const std::string& head, std::string_view fresh) {
  constexpr std::string_view kEnd = "\r\n\r\n";
  // The end may have begun in what was read before.
  const std::size_t overlap = std::min<std::size_t>(head.size(), kEnd.size() - 1);
  const std::string joint = head.substr(head.size() - overlap) + std::string(fresh);
  const auto at = joint.find(kEnd);
  if (at == std::string::npos) return fresh.size();
  return at + kEnd.size() - overlap;
}

}  // namespace

ProxyAuthorization authorize_proxy(const policy::UpstreamProxy& proxy,
                                   std::span<const policy::IpAddress> addresses,
                                   const std::set<policy::IpAddress>& own) {
  ProxyAuthorization result;
  const bool literal = !proxy.endpoint.host.is_name();
  for (const policy::IpAddress& address : addresses) {
    const Reason refused = policy::refuse_proxy_address(address, literal, own.contains(address));
    if (refused == Reason::kAllowed) {
      result.endpoints.push_back(ProxyEndpoint(address, proxy.endpoint.port));
    } else {
      result.reason = refused;
    }
  }
  return result;
}

NameAuthorization authorize_unresolved(const policy::EgressPolicy& policy,
                                       const policy::Endpoint& endpoint,
                                       std::optional<policy::Protocol> protocol) {
  NameAuthorization result;
  if (!policy.resolves_at_proxy() || !endpoint.host.is_name()) return result;
  result.decision = protocol ? policy.decide_name(endpoint, *protocol)
                             : policy.decide_endpoint(endpoint).decision;
  if (result.decision.allowed()) result.target = ProxyTarget(endpoint);
  return result;
}

std::string write_connect(const policy::UpstreamProxy& proxy, const ProxyTarget& target) {
  std::string head = "CONNECT " + target.authority() + " HTTP/1.1\r\nHost: " + target.authority();
  if (!proxy.authorization.empty()) head += "\r\nProxy-Authorization: " + proxy.authorization;
  return head + "\r\n\r\n";
}

TunnelOutcome judge_connect_response(std::string_view head) {
  const auto response = http::parse_response(head);
  if (!response) return {};
  const int status = response->status;
  if (status >= 200 && status < 300) return {Reason::kAllowed, false};
  // 408, 429 and its own troubles pass; everything else will be said again.
  const bool passes = status == 408 || status == 429 || status >= 500;
  return {passes ? Reason::kUpstreamProxyFailed : Reason::kUpstreamProxyRefused, status == 407};
}

Async<TunnelOutcome> open_tunnel(Socket& socket, std::string request) {
  std::string_view unsent = request;
  while (!unsent.empty()) {
    const os::Moved sent = socket.send(unsent);
    if (sent.state == os::Moving::kFailed) co_return TunnelOutcome();
    unsent.remove_prefix(sent.count);
    if (unsent.empty()) break;
    const bool room = co_await socket.wait(Way::kWrite);
    if (!room) co_return TunnelOutcome();
  }
  std::string head;
  std::array<char, 4096> buffer{};
  while (!head.ends_with("\r\n\r\n")) {
    const os::Moved seen = socket.peek(buffer);
    if (seen.state == os::Moving::kWouldBlock) {
      const bool ready = co_await socket.wait(Way::kRead);
      if (!ready) co_return TunnelOutcome();
      continue;
    }
    if (seen.state != os::Moving::kMoved || head.size() > kMaxHead) co_return TunnelOutcome();
    const std::size_t count = head_part(head, std::string_view(buffer.data(), seen.count));
    const os::Moved taken = socket.receive(std::span(buffer).first(count));
    if (taken.state != os::Moving::kMoved) co_return TunnelOutcome();
    head.append(buffer.data(), taken.count);
  }
  co_return judge_connect_response(head);
}

}  // namespace cofferdam::egressproxy
