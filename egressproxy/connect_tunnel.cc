#include "egressproxy/connect_tunnel.h"

#include "egressproxy/first_bytes.h"
#include "egressproxy/http_forward.h"
#include "egressproxy/relay.h"
#include "egressproxy/transparent.h"

namespace cofferdam::egressproxy {
namespace {

using policy::Decision;
using policy::Endpoint;
using policy::Host;
using policy::Protocol;
using policy::Reason;
using policy::Verdict;

constexpr milliseconds kFirstBytes = seconds(60);
constexpr milliseconds kTunnelIdle = std::chrono::minutes(30);
// RFC 9110 9.3.6: neither Content-Length nor Transfer-Encoding.
constexpr std::string_view kEstablished = "HTTP/1.1 200 Connection established\r\n\r\n";

class Tunnel final {
 public:
  Tunnel(Pipeline& pipeline, Stream& downstream, http::RequestHead head)
      : pipeline_(pipeline), downstream_(downstream), head_(std::move(head)) {
    record_.via = "connect";
  }
  Async<void> run();

 private:
  Async<void> refuse(int status, Decision decision, std::string why = {});
  // What is wrong with the request itself; empty when nothing is.
  std::string fault(std::optional<Endpoint>& endpoint, Reason& reason) const;
  Async<void> verify_and_relay(const Endpoint& endpoint, Opened opened,
                               policy::ProtocolSet protocols);
  Async<void> relay_to(Stream& upstream, std::string protocol);
  void end_unverified(Decision decision, std::string protocol);

  Pipeline& pipeline_;
  Stream& downstream_;
  http::RequestHead head_;
  EgressRecord record_;
};

Async<void> Tunnel::refuse(int status, Decision decision, std::string why) {
  record_.decision = std::move(decision);
  pipeline_.recorder().record(record_);
  const Refusal refusal{status,       record_.decision, record_.host,
                        record_.port, record_.protocol, std::move(why)};
  const std::string text = write_refusal(refusal, false);
  if (!co_await downstream_.write(text)) {
    co_await http::close_gently(downstream_);
  }
}

std::string Tunnel::fault(std::optional<Endpoint>& endpoint, Reason& reason) const {
  reason = Reason::kMalformed;
  for (const auto& field : head_.fields) {
    if (http::equal_folded(field.name, "Content-Length") ||
        http::equal_folded(field.name, "Transfer-Encoding")) {
      return "CONNECT with a body";
    }
  }
  auto parsed = policy::parse_endpoint(head_.target);
  if (!parsed) {
    reason = Reason::kNameInvalid;
    return "the target is not HOST:PORT in canonical form: " + parsed.error().message();
  }
  endpoint = *parsed;
  if (!head_.host) return {};
  // Some clients leave the port out of Host.
  const auto host = policy::parse_endpoint(*head_.host, parsed->port);
  reason = Reason::kHostMismatch;
  if (!host || *host != *parsed) return "the Host header and the target name different hosts";
  return {};
}

void Tunnel::end_unverified(Decision decision, std::string protocol) {
  record_.decision = std::move(decision);
  record_.protocol = std::move(protocol);
  pipeline_.recorder().record(record_);
  downstream_.abort();
}

Async<void> Tunnel::relay_to(Stream& upstream, std::string protocol) {
  record_.protocol = std::move(protocol);
  if (const auto known = policy::protocol_from_text(record_.protocol)) {
    upstream.connection()->set_protocol(*known);
  }
  co_await relay(downstream_, upstream, kTunnelIdle);
  conclude(record_, upstream);
  pipeline_.recorder().record(record_);
}

Async<void> Tunnel::verify_and_relay(const Endpoint& endpoint, Opened opened,
                                     policy::ProtocolSet protocols) {
  if (protocols.tcp) {
    co_await relay_to(*opened.upstream, "tcp");
    co_return;
  }
  const FirstBytes first = co_await read_first_bytes(downstream_, kFirstBytes);
  const policy::EndpointDecision allowed{opened.decision, protocols};
  const std::vector<Host> hosts(1, endpoint.host);
  if (first.opening == Opening::kTls) {
    const Narrowed narrowed =
        narrow_by_hello(pipeline_.policy(), hosts, endpoint.port, first.hello);
    if (!narrowed.decision.allowed()) {
      end_unverified(narrowed.decision, "tls");
      co_return;
    }
    record_.decision = narrowed.decision;
    co_await relay_to(*opened.upstream, "tls");
    co_return;
  }
  if (first.opening == Opening::kHttp && protocols.http) {
    opened.upstream.reset();
    http::Site site{"connect", false, hosts, endpoint.port};
    http::Forwarder forwarder(pipeline_, downstream_, std::move(site), opened.address);
    co_await forwarder.run();
    co_return;
  }
  if (first.opening == Opening::kNeedMore) {
    // It said nothing: allowed, and nothing was carried.
    downstream_.close();
    conclude(record_, *opened.upstream);
    pipeline_.recorder().record(record_);
    co_return;
  }
  end_unverified(refuse_unrecognised(allowed), first.opening == Opening::kHttp ? "http" : "");
}

Async<void> Tunnel::run() {
  std::optional<Endpoint> endpoint;
  Reason reason = Reason::kMalformed;
  const std::string why = fault(endpoint, reason);
  if (endpoint) {
    record_.host = endpoint->host.text();
    record_.port = endpoint->port;
  }
  if (!why.empty()) {
    Decision fault_decision{Verdict::kDeny, reason, {}};
    co_await refuse(status_for(reason), std::move(fault_decision), why);
    co_return;
  }
  const policy::EndpointDecision decided = pipeline_.policy().decide_endpoint(*endpoint);
  if (decided.decision.reason == Reason::kIpLiteral) {
    // An address that we gave out stands for its names.
    const policy::IpAddress address = endpoint->host.address();
    if (!hosts_of(pipeline_, address).empty()) {
      if (!co_await downstream_.write(kEstablished)) {
        co_await serve_destination(pipeline_, downstream_, address, endpoint->port, "connect");
      }
      co_return;
    }
  }
  if (!decided.decision.allowed()) {
    co_await refuse(status_for(decided.decision.reason), decided.decision);
    co_return;
  }
  Opened opened = co_await pipeline_.open(*endpoint, std::nullopt);
  record_.dropped = std::move(opened.dropped);
  record_.address = opened.address;
  if (!opened.upstream) {
    co_await refuse(status_for(opened.decision.reason), opened.decision);
    co_return;
  }
  record_.decision = opened.decision;
  opened.upstream->connection()->set_downstream(&downstream_, Connection::Bond::kTunnel);
  if (co_await downstream_.write(kEstablished)) co_return;
  co_await verify_and_relay(*endpoint, std::move(opened), decided.protocols);
}

}  // namespace

Async<void> serve_connect(Pipeline& pipeline, Stream& downstream, http::RequestHead head) {
  Tunnel tunnel(pipeline, downstream, std::move(head));
  co_await tunnel.run();
}

}  // namespace cofferdam::egressproxy
