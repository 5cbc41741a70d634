// One HTTP/1.1 request to a daemon behind a Unix socket, and its whole answer (Boost.Beast).
//
// The daemon is trusted: who may talk to it is root on this machine. Answers are bounded all the
// same. Blocks the calling thread.
#pragma once

#include <chrono>
#include <string>

#include "common/base/result.h"

namespace cofferdam::orchestrator::docker {

struct HttpCall {
  std::string method;        // GET, POST, DELETE
  std::string target;        // path and query, percent-encoded
  std::string content_type;  // empty: no body
  std::string body;
};

struct HttpReply {
  unsigned int status = 0;
  std::string body;
};

struct HttpPatience {
  std::chrono::milliseconds deadline{30000};  // for the whole exchange
  int interrupt = -1;                         // readable: give up (EINTR)
};

// Errors: ETIMEDOUT after the deadline, EINTR, those of connect(2), an answer that is no HTTP.
Result<HttpReply> http_exchange(const std::string& socket_path, const HttpCall& call,
                                const HttpPatience& patience);

}  // namespace cofferdam::orchestrator::docker
