#include "egressproxy/connect_tunnel.h"

#include "egressproxy/http_forward.h"
#include "egressproxy/tunnel.h"

namespace cofferdam::egressproxy {
namespace {

using policy::Endpoint;
using policy::Reason;
using policy::Verdict;

// RFC 9110 9.3.6: neither Content-Length nor Transfer-Encoding.
constexpr std::string_view kEstablished = "HTTP/1.1 200 Connection established\r\n\r\n";

std::string refused(const Refusal& refusal) {
  return write_refusal(refusal, false);
}

// What is wrong with the request itself; `why` is empty when nothing is.
struct Fault {
  Reason reason = Reason::kMalformed;
  std::string why;
};

Fault find_fault(const http::RequestHead& head, std::string_view via,
                 std::optional<Endpoint>& endpoint) {
  if (http::came_through(head.fields, via))
    return {Reason::kLoop, "the request has been here before"};
  for (const auto& field : head.fields) {
    if (http::equal_folded(field.name, "Content-Length") ||
        http::equal_folded(field.name, "Transfer-Encoding")) {
      return {Reason::kMalformed, "CONNECT with a body"};
    }
  }
  auto parsed = policy::parse_endpoint(head.target);
  if (!parsed) {
    return {Reason::kNameInvalid,
            "the target is not HOST:PORT in canonical form: " + parsed.error().message()};
  }
  endpoint = *parsed;
  if (!head.host) return {};
  // Some clients leave the port out of Host.
  const auto host = policy::parse_endpoint(*head.host, parsed->port);
  if (!host || *host != *parsed) {
    return {Reason::kHostMismatch, "the Host header and the target name different hosts"};
  }
  return {};
}

}  // namespace

Async<void> serve_connect(Pipeline& pipeline, Stream& downstream, http::RequestHead head) {
  const TunnelWords words{std::string(kEstablished), &refused};
  std::optional<Endpoint> endpoint;
  const Fault fault = find_fault(head, pipeline.via(), endpoint);
  if (fault.why.empty()) {
    std::string via = "connect";
    co_await serve_tunnel(pipeline, downstream, words, std::move(*endpoint), std::move(via));
    co_return;
  }
  EgressRecord record;
  record.via = "connect";
  record.decision = {Verdict::kDeny, fault.reason, {}};
  if (endpoint) {
    record.host = endpoint->host.text();
    record.port = endpoint->port;
  }
  pipeline.recorder().record(record);
  Refusal refusal{
      status_for(fault.reason), record.decision, record.host, record.port, {}, fault.why};
  const std::string text = refused(refusal);
  if (!co_await downstream.write(text)) co_await http::close_gently(downstream);
}

}  // namespace cofferdam::egressproxy
