#include "egressproxy/first_bytes.h"

#include <algorithm>

namespace cofferdam::egressproxy {
namespace {

using policy::Decision;
using policy::Host;
using policy::Reason;
using policy::Verdict;

Narrowed refused(Reason reason, std::string rule = {}) {
  return {Decision{Verdict::kDeny, reason, std::move(rule)}, std::nullopt};
}

}  // namespace

Async<FirstBytes> read_first_bytes(Stream& stream, const Deadlines& deadlines) {
  co_return co_await read_first_bytes(stream, deadlines, deadlines.first_byte);
}

Async<Opening> read_first_byte(Stream& stream, milliseconds time) {
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  Deadline deadline(executor, time, [&stream] { stream.cancel(); });
  if (stream.buffered().empty() && co_await stream.read_more()) co_return Opening::kNeedMore;
  const Opening opening = recognise(stream.buffered().substr(0, 1));
  co_return opening == Opening::kNeedMore ? Opening::kOther : opening;
}

Async<FirstBytes> read_first_bytes(Stream& stream, const Deadlines& deadlines,
                                   milliseconds silent_time) {
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  Deadline deadline(executor, silent_time, [&stream] { stream.cancel(); });
  FirstBytes first;
  bool begun = false;
  while (!deadline.expired()) {
    if (!begun && !stream.buffered().empty()) {
      begun = true;
      deadline.extend(std::min(silent_time, deadlines.hello));
    }
    first.opening = recognise(stream.buffered());
    if (first.opening == Opening::kTls) {
      first.hello = parse_client_hello(stream.buffered());
      if (first.hello.state == ClientHello::State::kNotTls) first.opening = Opening::kOther;
      if (first.hello.state != ClientHello::State::kNeedMore) co_return first;
    } else if (first.opening != Opening::kNeedMore) {
      co_return first;
    }
    if (co_await stream.read_more()) break;
  }
  // What never became whole is not what it seemed to be.
  first.opening = stream.buffered().empty() ? Opening::kNeedMore : Opening::kOther;
  co_return first;
}

Narrowed narrow_by_hello(const policy::EgressPolicy& policy, const std::vector<Host>& hosts,
                         std::uint16_t port, const ClientHello& hello) {
  if (hello.state != ClientHello::State::kComplete) return refused(Reason::kMalformed);
  if (!hello.server_name) {
    for (const Host& host : hosts) {
      if (host.is_name()) continue;
      const policy::Endpoint endpoint{host, port};
      return {policy.decide_name(endpoint, policy::Protocol::kTls), endpoint};
    }
    return refused(Reason::kSniMissing);
  }
  const auto name = policy::HostName::parse(*hello.server_name);
  if (!name) return refused(Reason::kNameInvalid);
  const Host host(*name);
  const bool known = std::find(hosts.begin(), hosts.end(), host) != hosts.end();
  if (!known && !takes_any_name(policy, hosts)) return refused(Reason::kSniMismatch);
  const policy::Endpoint endpoint{host, port};
  return {policy.decide_name(endpoint, policy::Protocol::kTls), endpoint};
}

bool takes_any_name(const policy::EgressPolicy& policy, const std::vector<Host>& hosts) {
  return policy.mode() != policy::EgressMode::kEnforce &&
         std::any_of(hosts.begin(), hosts.end(), [&policy](const Host& host) {
           return !host.is_name() && !policy.lists(host);
         });
}

Decision refuse_unrecognised(const policy::EndpointDecision& endpoint) {
  if (!endpoint.decision.allowed()) return endpoint.decision;
  const Reason reason = endpoint.protocols.tls ? Reason::kNotTls : Reason::kProtocolNotAllowed;
  return {Verdict::kDeny, reason, endpoint.decision.rule};
}

}  // namespace cofferdam::egressproxy
