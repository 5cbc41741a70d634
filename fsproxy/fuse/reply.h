// The one place where results of the overlay become answers of the FUSE protocol.
#pragma once

#define FUSE_USE_VERSION 314
#include <fuse_lowlevel.h>

#include "common/base/result.h"
#include "fsproxy/overlay/overlay.h"

namespace cofferdam::fsproxy {

// Seconds for which the kernel may believe what it was told: what only the workload can change or
// whose changes are told, and what the user can change below us unseen.
inline constexpr double kStableSeconds = 86400;
inline constexpr double kLowerSeconds = 1;

// The errno of an error, EIO for one that has none.
int errno_of(const Error& error);

void reply_error(fuse_req_t req, const Error& error);
void reply_status(fuse_req_t req, const Status& status);

double seconds_of(bool stable);
struct fuse_entry_param entry_param(const overlay::Entry& entry);
void reply_attributes(fuse_req_t req, const Result<overlay::Entry>& entry);

}  // namespace cofferdam::fsproxy
