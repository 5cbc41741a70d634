// One HTTP exchange with a server that was decided and dialled: the request goes up while the
// response comes down, heads written anew, bodies carried in their own framing.
#pragma once

#include <string_view>

#include "common/policy/reason.h"
#include "egressproxy/deadlines.h"
#include "egressproxy/http_head.h"
#include "egressproxy/stream.h"

namespace cofferdam::egressproxy::http {

struct Exchange {
  bool answered = false;         // a final response (or 101) has begun to go down
  bool upgraded = false;         // 101: the two connections are a tunnel now
  bool keep_downstream = false;  // the next request may be read
  bool keep_upstream = false;    // the server's connection may be used again
  // Why it is not `answered`: for the workload, or the gate's own view of who failed.
  policy::Reason reason = policy::Reason::kAllowed;
  int status = 502;
  std::string why;
};

// `request` is the head for the server, written anew from `head`; `via` is this proxy's name in
// Via.
Async<Exchange> exchange(Stream& downstream, Stream& upstream, const RequestHead& head,
                         std::string_view request, std::string_view via,
                         const Deadlines& deadlines);

}  // namespace cofferdam::egressproxy::http
