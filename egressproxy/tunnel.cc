#include "egressproxy/tunnel.h"

#include <algorithm>
#include <array>

#include "egressproxy/first_bytes.h"
#include "egressproxy/http_forward.h"
#include "egressproxy/relay.h"
#include "egressproxy/transparent.h"

namespace cofferdam::egressproxy {
namespace {

using policy::Decision;
using policy::Endpoint;
using policy::EndpointDecision;
using policy::Host;
using policy::IpAddress;
using policy::Reason;
using policy::Verdict;

class Tunnel final {
 public:
  Tunnel(Pipeline& pipeline, Stream& downstream, const TunnelWords& words, Endpoint endpoint,
         std::string via)
      : pipeline_(pipeline),
        downstream_(downstream),
        words_(words),
        endpoint_(std::move(endpoint)),
        hosts_(1, endpoint_.host) {
    record_.via = std::move(via);
    record_.host = endpoint_.host.text();
    record_.port = endpoint_.port;
  }
  Async<void> run();

 private:
  // Which endpoint is asked for, when it is one that this client may have.
  struct Choice {
    EndpointDecision decided;
    bool several = false;  // names that share the address asked for: what is said inside chooses
  };
  Choice choose();

  Async<void> refuse(Decision decision);
  Async<void> verify_and_relay(Opened opened);
  // The last thing that is done here.
  void relay_to(std::unique_ptr<Stream> upstream, std::string protocol);
  void end_unverified(Decision decision, std::string protocol);

  Pipeline& pipeline_;
  Stream& downstream_;
  const TunnelWords& words_;
  Endpoint endpoint_;
  std::vector<Host> hosts_;             // what may be named inside
  std::optional<IpAddress> preferred_;  // the address asked for, when it stands for a name
  EgressRecord record_;
};

Tunnel::Choice Tunnel::choose() {
  Choice choice{pipeline_.policy().decide_endpoint(endpoint_)};
  if (endpoint_.host.is_name()) return choice;
  const policy::EgressPolicy& policy = pipeline_.policy();
  const bool by_mode = choice.decided.decision.allowed() && !policy.lists(endpoint_.host);
  if (!by_mode && choice.decided.decision.reason != Reason::kIpLiteral) return choice;
  if (by_mode) {
    const std::array<IpAddress, 1> address = {endpoint_.host.address()};
    const Decision judged =
        policy.decide_addresses(endpoint_.host, endpoint_.port, address, pipeline_.own().current())
            .decision;
    if (!judged.allowed()) {
      choice.decided = {judged, {}};
      return choice;
    }
  }
  // An address that was given out stands for its names; one that a mode lets through, for any.
  std::vector<Host> names = hosts_of(pipeline_, endpoint_.host.address());
  if (names.empty()) return choice;
  preferred_ = endpoint_.host.address();
  hosts_ = std::move(names);
  const std::uint16_t port = endpoint_.port;
  endpoint_.host = hosts_.front();
  choice.decided = pipeline_.policy().decide_endpoint(endpoint_);
  std::size_t allowed = choice.decided.decision.allowed() ? 1 : 0;
  for (const Host& host : hosts_) {
    if (host == hosts_.front()) continue;
    EndpointDecision decided = pipeline_.policy().decide_endpoint({host, port});
    if (!decided.decision.allowed()) continue;
    // The server of a raw protocol may be the one to speak first: nothing else can choose.
    const bool better = ++allowed == 1 || (decided.protocols.tcp && !choice.decided.protocols.tcp);
    if (!better) continue;
    endpoint_.host = host;
    choice.decided = std::move(decided);
  }
  choice.several = (allowed > 1 || by_mode) && !choice.decided.protocols.tcp;
  record_.host = endpoint_.host.text();
  return choice;
}

Async<void> Tunnel::refuse(Decision decision) {
  record_.decision = std::move(decision);
  pipeline_.recorder().record(record_);
  Refusal refusal;
  refusal.status = status_for(record_.decision.reason);
  refusal.decision = record_.decision;
  refusal.host = record_.host;
  refusal.port = record_.port;
  refusal.protocol = record_.protocol;
  const std::string text = words_.refused(refusal);
  if (!co_await downstream_.write(text)) co_await http::close_gently(downstream_);
}

void Tunnel::end_unverified(Decision decision, std::string protocol) {
  record_.decision = std::move(decision);
  record_.protocol = std::move(protocol);
  pipeline_.recorder().record(record_);
  downstream_.abort();
}

void Tunnel::relay_to(std::unique_ptr<Stream> upstream, std::string protocol) {
  downstream_.settle();
  record_.protocol = std::move(protocol);
  downstream_.hand_over(std::make_unique<Handover>(
      Handover{std::move(upstream), std::move(record_), pipeline_.deadlines().tunnel}));
}

Async<void> Tunnel::verify_and_relay(Opened opened) {
  Connection& connection = *opened.upstream->connection();
  if (connection.info().protocol == policy::Protocol::kTcp) {
    relay_to(std::move(opened.upstream), "tcp");
    co_return;
  }
  const FirstBytes first = co_await read_first_bytes(downstream_, pipeline_.deadlines());
  if (connection.ended()) {
    // By the policy or the control socket, before it said anything.
    downstream_.abort();
    conclude(record_, *opened.upstream);
    pipeline_.recorder().record(record_);
    co_return;
  }
  // The policy may have changed meanwhile.
  const EndpointDecision allowed{opened.decision,
                                 pipeline_.policy().decide_endpoint(endpoint_).protocols};
  if (first.opening == Opening::kTls) {
    const Narrowed narrowed =
        narrow_by_hello(pipeline_.policy(), hosts_, endpoint_.port, first.hello);
    Decision decision = narrowed.decision;
    // Another name of the same address is not the one that was dialled.
    if (decision.allowed() && *narrowed.endpoint != endpoint_) {
      decision = {Verdict::kDeny, Reason::kSniMismatch, {}};
    }
    if (decision.allowed()) decision = pipeline_.settle(connection, policy::Protocol::kTls);
    record_.encrypted_hello = first.hello.encrypted_hello;
    if (!decision.allowed()) {
      end_unverified(std::move(decision), "tls");
      co_return;
    }
    record_.decision = std::move(decision);
    relay_to(std::move(opened.upstream), "tls");
    co_return;
  }
  if (first.opening == Opening::kHttp && allowed.protocols.http) {
    http::Site site{record_.via, false, hosts_, endpoint_.port};
    http::Forwarder forwarder(pipeline_, downstream_, std::move(site), opened.address);
    if (pipeline_.settle(connection, policy::Protocol::kHttp).allowed()) {
      forwarder.adopt({endpoint_, std::move(opened.upstream), opened.address});
    } else {
      opened.upstream.reset();  // each request is told why
    }
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
  const Choice choice = choose();
  if (!choice.decided.decision.allowed()) {
    co_await refuse(choice.decided.decision);
    co_return;
  }
  if (choice.several) {
    if (!co_await downstream_.write(words_.established)) {
      co_await serve_destination(pipeline_, downstream_, *preferred_, endpoint_.port, record_.via);
    }
    co_return;
  }
  const std::optional<policy::Protocol> protocol = choice.decided.protocols.certain();
  Opened opened = co_await pipeline_.open(endpoint_, protocol, preferred_);
  record_.dropped = std::move(opened.dropped);
  record_.address = opened.address;
  if (!opened.upstream) {
    co_await refuse(opened.decision);
    co_return;
  }
  record_.decision = opened.decision;
  opened.upstream->connection()->set_downstream(&downstream_, Connection::Bond::kTunnel);
  if (co_await downstream_.write(words_.established)) {
    pipeline_.recorder().record(record_);
    co_return;
  }
  co_await verify_and_relay(std::move(opened));
}

}  // namespace

Async<void> serve_tunnel(Pipeline& pipeline, Stream& downstream, const TunnelWords& words,
                         policy::Endpoint endpoint, std::string via) {
  Tunnel tunnel(pipeline, downstream, words, std::move(endpoint), std::move(via));
  co_await tunnel.run();
}

}  // namespace cofferdam::egressproxy
