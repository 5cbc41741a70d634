// The reader's work, once it is caged: references, then the walk, over one socket.
#pragma once

#include <string_view>

namespace cofferdam::orchestrator::reader {

// The exit status: 0 when everything that could be was told.
int serve(int socket);
// Tells why nothing is read, and returns the exit status for that.
int refuse_to_serve(int socket, std::string_view reason);

}  // namespace cofferdam::orchestrator::reader
