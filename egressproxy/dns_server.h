// The gate's name server: real, already checked addresses for allowed names, nothing for others,
// and no question of any other kind ever leaves. What needs no server is answered at once, without
// a coroutine: denials are the common case of a hostile workload.
#pragma once

#include <optional>

#include "egressproxy/dns_message.h"
#include "egressproxy/pipeline.h"

namespace cofferdam::egressproxy {

// One packet on its way to its answer.
class DnsQuestion final {
 public:
  // `udp` limits the answer's size to what the client takes.
  DnsQuestion(Pipeline& pipeline, std::string_view packet, bool udp);

  // The answer, empty when none is sent; nothing when a server must be asked first: then later().
  const std::optional<std::string>& now() const { return answer_; }
  Async<std::string> later();
  // For a question that is not asked because too many are: SERVFAIL, and recorded as refused.
  std::string refuse_for_load();

 private:
  std::optional<dns::Reply> reply_now();
  dns::Reply reverse();
  void record(const Answered& answered);
  std::string written(const dns::Reply& reply) const;

  Pipeline& pipeline_;
  bool udp_;
  dns::Query query_;
  std::optional<policy::HostName> name_;
  std::optional<std::string> answer_;
};

// Until the socket is closed.
Async<void> serve_dns_udp(Pipeline& pipeline, udp::socket& socket);

}  // namespace cofferdam::egressproxy
