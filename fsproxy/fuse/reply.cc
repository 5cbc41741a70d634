#include "fsproxy/fuse/reply.h"

#include <spdlog/spdlog.h>

namespace cofferdam::fsproxy {

int errno_of(const Error& error) {
  if (error.error_number() != 0) return error.error_number();
  spdlog::warn("{}", error.message());
  return EIO;
}

void reply_error(fuse_req_t req, const Error& error) {
  const int number = errno_of(error);
  if (number == EIO || number == EMFILE || number == ENFILE) spdlog::warn("{}", error.message());
  fuse_reply_err(req, number);
}

void reply_status(fuse_req_t req, const Status& status) {
  if (status.ok()) {
    fuse_reply_err(req, 0);
  } else {
    reply_error(req, status.error());
  }
}

double seconds_of(bool stable) {
  return stable ? kStableSeconds : kLowerSeconds;
}

struct fuse_entry_param entry_param(const overlay::Entry& entry) {
  struct fuse_entry_param out {};
  out.ino = entry.node->id;
  out.generation = 1;  // numbers of nodes are never used twice
  out.attr = entry.st;
  out.attr_timeout = seconds_of(entry.attributes_stable);
  out.entry_timeout = seconds_of(entry.name_stable);
  return out;
}

void reply_attributes(fuse_req_t req, const Result<overlay::Entry>& entry) {
  if (!entry.ok()) return reply_error(req, entry.error());
  fuse_reply_attr(req, &entry->st, seconds_of(entry->attributes_stable));
}

}  // namespace cofferdam::fsproxy
