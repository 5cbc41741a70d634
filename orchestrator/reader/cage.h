// The reader's cage: no ids worth having, no capability, no file, no network, no process; memory
// and time bounded. What it can do is read the descriptors that it is handed and write to one
// socket.
#pragma once

#include "common/base/result.h"

namespace cofferdam::orchestrator::reader {

// Before the first byte is read. An error means: do not read any.
Status enter_cage();

}  // namespace cofferdam::orchestrator::reader
