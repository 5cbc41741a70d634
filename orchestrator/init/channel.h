// The init's side of its socket: one JSON object a packet.
#pragma once

#include <vector>

#include "common/base/json_text.h"
#include "common/base/result.h"
#include "common/os/fd_passing.h"

namespace cofferdam::init {

struct Message {
  Json body;
  std::vector<os::UniqueFd> fds;
  bool end_of_stream = false;
};

Status send_message(int socket, const Json& body, const std::vector<int>& fds = {});
// Blocks. A packet that is not an object with a "type" is an error.
Result<Message> receive_message(int socket);
// The type of a message, and an error unless it is `wanted`.
Status expect(const Message& message, const char* wanted);

}  // namespace cofferdam::init
