#include "egressproxy/transparent.h"

#include <algorithm>

#include "egressproxy/first_bytes.h"
#include "egressproxy/http_forward.h"
#include "egressproxy/relay.h"

namespace cofferdam::egressproxy {
namespace {

using policy::Decision;
using policy::Endpoint;
using policy::Host;
using policy::IpAddress;
using policy::Protocol;
using policy::Reason;
using policy::Verdict;

// One connection, from the address that was wanted to its end.
class Redirected final {
 public:
  Redirected(Pipeline& pipeline, Stream& downstream, const IpAddress& original, std::uint16_t port,
             std::string via)
      : pipeline_(pipeline), downstream_(downstream), original_(original), port_(port) {
    record_.via = std::move(via);
    record_.host = original.to_host_text();
    record_.port = port;
    record_.address = original;
  }

  Async<void> run();

 private:
  Async<void> refuse(Decision decision);
  Async<void> tell_refusal(Decision decision);
  Async<void> serve_tls(const ClientHello& hello);
  Async<void> serve_raw(const Endpoint& endpoint);
  Async<void> tunnel(Opened opened);
  // The first host for which a rule permits raw TCP on this port.
  std::optional<Endpoint> raw_endpoint() const;
  // What rules say about this port, for all hosts together.
  policy::EndpointDecision decide_port() const;

  Pipeline& pipeline_;
  Stream& downstream_;
  IpAddress original_;
  std::uint16_t port_;
  std::vector<Host> hosts_;
  EgressRecord record_;
};

std::optional<Endpoint> Redirected::raw_endpoint() const {
  for (const Host& host : hosts_) {
    const Endpoint endpoint{host, port_};
    if (pipeline_.policy().decide_name(endpoint, Protocol::kTcp).allowed()) return endpoint;
  }
  return std::nullopt;
}

policy::EndpointDecision Redirected::decide_port() const {
  policy::EndpointDecision best;
  for (const Host& host : hosts_) {
    const policy::EndpointDecision one = pipeline_.policy().decide_endpoint({host, port_});
    const bool first = &host == &hosts_.front();
    if (first || (one.decision.allowed() && !best.decision.allowed())) best.decision = one.decision;
    for (const Protocol protocol : {Protocol::kTls, Protocol::kHttp}) {
      if (one.protocols.has(protocol)) best.protocols.add(protocol);
    }
  }
  return best;
}

// HTTP clients are told in their own words, others find the connection closed.
Async<void> Redirected::tell_refusal(Decision decision) {
  record_.decision = std::move(decision);
  pipeline_.recorder().record(record_);
  if (record_.protocol != "http") {
    downstream_.abort();
    co_return;
  }
  const Refusal refusal{status_for(record_.decision.reason),
                        record_.decision,
                        record_.host,
                        record_.port,
                        "http",
                        {}};
  const std::string text = write_refusal(refusal, false);
  if (!co_await downstream_.write(text)) {
    co_await http::close_gently(downstream_);
  }
}

Async<void> Redirected::refuse(Decision decision) {
  const FirstBytes first =
      co_await read_first_bytes(downstream_, pipeline_.deadlines(), pipeline_.deadlines().refused);
  if (first.opening == Opening::kHttp) record_.protocol = "http";
  if (first.opening == Opening::kTls) record_.protocol = "tls";
  co_await tell_refusal(std::move(decision));
}

Async<void> Redirected::tunnel(Opened opened) {
  record_.decision = std::move(opened.decision);
  record_.dropped = std::move(opened.dropped);
  if (opened.address) record_.address = opened.address;
  if (!opened.upstream) {
    co_await tell_refusal(record_.decision);
    co_return;
  }
  downstream_.settle();
  opened.upstream->connection()->set_downstream(&downstream_, Connection::Bond::kTunnel);
  downstream_.hand_over(std::make_unique<Handover>(
      Handover{std::move(opened.upstream), std::move(record_), pipeline_.deadlines().tunnel}));
}

// Decided before the first byte, because the server may be the one to speak first.
Async<void> Redirected::serve_raw(const Endpoint& endpoint) {
  record_.protocol = "tcp";
  record_.host = endpoint.host.text();
  Opened opened = co_await pipeline_.open_original(endpoint, Protocol::kTcp, original_);
  co_await tunnel(std::move(opened));
}

Async<void> Redirected::serve_tls(const ClientHello& hello) {
  record_.protocol = "tls";
  record_.encrypted_hello = hello.encrypted_hello;
  const Narrowed narrowed = narrow_by_hello(pipeline_.policy(), hosts_, port_, hello);
  if (narrowed.endpoint) {
    record_.host = narrowed.endpoint->host.text();
  } else if (hello.server_name) {
    // What it asked for, when that is a name at all.
    const auto name = policy::HostName::parse(*hello.server_name);
    if (name) record_.host = name->text();
  }
  if (!narrowed.decision.allowed()) {
    co_await tell_refusal(narrowed.decision);
    co_return;
  }
  Opened opened = co_await pipeline_.open(*narrowed.endpoint, Protocol::kTls, original_);
  co_await tunnel(std::move(opened));
}

Async<void> Redirected::run() {
  hosts_ = hosts_of(pipeline_, original_);
  if (hosts_.empty()) {
    // Nothing that we gave out: judged as a literal.
    const Endpoint literal{Host(original_), port_};
    Decision decision = pipeline_.policy().decide_endpoint(literal).decision;
    co_await refuse(std::move(decision));
    co_return;
  }
  record_.host = hosts_.front().text();
  if (const auto raw = raw_endpoint()) {
    co_await serve_raw(*raw);
    co_return;
  }
  const policy::EndpointDecision port = decide_port();
  if (!port.decision.allowed()) {
    co_await refuse(port.decision);
    co_return;
  }
  const FirstBytes first = co_await read_first_bytes(downstream_, pipeline_.deadlines());
  const Decision unrecognised = refuse_unrecognised(port);
  const Decision silent{Verdict::kDeny, Reason::kDeadline, port.decision.rule};
  switch (first.opening) {
    case Opening::kTls:
      co_await serve_tls(first.hello);
      co_return;
    case Opening::kHttp: {
      record_.protocol = "http";
      if (!port.protocols.http) {
        co_await tell_refusal(unrecognised);
        co_return;
      }
      http::Site site{record_.via, false, hosts_, port_,
                      takes_any_name(pipeline_.policy(), hosts_)};
      http::Forwarder forwarder(pipeline_, downstream_, std::move(site), original_);
      co_await forwarder.run();
      co_return;
    }
    case Opening::kNeedMore:
      co_await tell_refusal(silent);
      co_return;
    default:
      co_await tell_refusal(unrecognised);
      co_return;
  }
}

}  // namespace

std::vector<Host> hosts_of(Pipeline& pipeline, const IpAddress& address) {
  std::vector<Host> hosts;
  for (policy::HostName& name : pipeline.pins().names(address)) hosts.emplace_back(std::move(name));
  Host literal(address);
  // Where nothing is enforced an address needs no rule to stand for itself; what kind of address it
  // is, is judged like every other.
  const policy::EgressPolicy& policy = pipeline.policy();
  const bool by_mode = policy.mode() != policy::EgressMode::kEnforce;
  if (by_mode || policy.lists(literal)) hosts.push_back(std::move(literal));
  return hosts;
}

Async<void> serve_destination(Pipeline& pipeline, Stream& downstream, IpAddress original,
                              std::uint16_t port, std::string via) {
  Redirected redirected(pipeline, downstream, original, port, std::move(via));
  co_await redirected.run();
}

}  // namespace cofferdam::egressproxy
