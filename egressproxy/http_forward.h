// Forwarding of plain HTTP: every request on a connection is a decision of its own, and each host
// has its own connection to its server.
#pragma once

#include <memory>
#include <optional>

#include "egressproxy/http_exchange.h"
#include "egressproxy/http_target.h"
#include "egressproxy/pipeline.h"

namespace cofferdam::egressproxy::http {

// A connection to a server that requests for `endpoint` may go over.
struct Upstream {
  policy::Endpoint endpoint;
  std::unique_ptr<Stream> stream;
  std::optional<policy::IpAddress> address;
};

class Forwarder final {
 public:
  Forwarder(Pipeline& pipeline, Stream& downstream, Site site,
            std::optional<policy::IpAddress> preferred = std::nullopt)
      : pipeline_(pipeline),
        downstream_(downstream),
        site_(std::move(site)),
        preferred_(preferred) {}

  // A connection that was dialled for this one's first request.
  void adopt(Upstream upstream);

  // Serves requests until the connection ends. Comes back early with the head of a CONNECT request,
  // which only an explicit proxy is asked and which ends the HTTP on it.
  Async<std::optional<RequestHead>> run();

 private:
  enum class Next : std::uint8_t { kRead, kClose, kConnect };
  Async<Next> serve_one(RequestHead& head);
  Async<std::optional<RequestHead>> read_request();
  Async<Next> serve_target(const RequestHead& head, const Target& target, EgressRecord record);
  // Reuses the upstream or opens one; the record holds why when there is none.
  Async<bool> reach(const Target& target, EgressRecord& record);
  Async<Next> refuse(const RequestHead* head, const Refusal& refusal);
  EgressRecord new_record() const;
  static bool is_stale(Stream& stream);

  Pipeline& pipeline_;
  Stream& downstream_;
  Site site_;
  std::optional<policy::IpAddress> preferred_;
  std::optional<Upstream> upstream_;
};

// Ends our sending side and reads away what still comes for a moment, so that a reset does not
// overtake the last answer.
Async<void> close_gently(Stream& stream);

}  // namespace cofferdam::egressproxy::http
