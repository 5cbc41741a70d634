// The control socket: HTTP/1.1 + JSON for the supervisor, one short connection at a time.
#pragma once

#include <functional>
#include <string>

#include "common/base/json_text.h"

namespace cofferdam::fsproxy {

struct Answer {
  std::string status;  // "200 OK"
  Json body;
};

struct Resources {
  std::function<Json()> stats;                                // GET /stats
  std::function<Answer(const std::string& body)> checkpoint;  // POST /checkpoint
};

// Accepts one connection of the listening socket, answers one request, closes. Never waits for the
// peer for longer than a second at a time.
void answer_one(int listening_fd, const Resources& resources);

}  // namespace cofferdam::fsproxy
