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

Async<TunnelOutcome> open_tunnel(tcp::socket& socket, std::string request) {
  const auto [unsent, sent] = co_await asio::async_write(socket, asio::buffer(request), kNoThrow);
  if (unsent || sent != request.size()) co_return TunnelOutcome();
  std::string head;
  std::array<char, 4096> buffer{};
  while (!head.ends_with("\r\n\r\n")) {
    const auto [error, seen] =
        co_await socket.async_receive(asio::buffer(buffer), tcp::socket::message_peek, kNoThrow);
    if (error || seen == 0 || head.size() > kMaxHead) co_return TunnelOutcome();
    const std::size_t count = head_part(head, std::string_view(buffer.data(), seen));
    const auto [failed, taken] =
        co_await socket.async_receive(asio::buffer(buffer.data(), count), kNoThrow);
    if (failed || taken == 0) co_return TunnelOutcome();
    head.append(buffer.data(), taken);
  }
  co_return judge_connect_response(head);
}

}  // namespace cofferdam::egressproxy
