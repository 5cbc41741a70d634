// The control socket: HTTP/1.1 + JSON for the supervisor, one short connection at a time.
#pragma once

#include <functional>
#include <string>

#include "common/base/json_text.h"

namespace cofferdam::fsproxy {

// Accepts one connection of the listening socket, answers one request, closes. Never blocks for
// longer than a second.
void answer_one(int listening_fd, const std::function<Json()>& stats);

}  // namespace cofferdam::fsproxy
