// Acting for another user: root that works in a repository leaves files of its owner there, and
// follows no link that its owner could not follow.
#pragma once

#include <sys/types.h>

#include "common/base/result.h"

namespace cofferdam::os {

// The effective ids of this process while it lives; nothing at all where the caller is not root or
// is that user. To be used while the process has one thread, and never nested.
class ActingAs final {
 public:
  static Result<ActingAs> begin(uid_t uid, gid_t gid);
  ActingAs(ActingAs&& other) noexcept : active_(other.active_), group_(other.group_) {
    other.active_ = false;
  }
  ActingAs(const ActingAs&) = delete;
  ActingAs& operator=(const ActingAs&) = delete;
  ActingAs& operator=(ActingAs&&) = delete;
  // Ids that cannot be had back end the process.
  ~ActingAs();

 private:
  ActingAs(bool active, gid_t group) : active_(active), group_(group) {}
  bool active_;
  gid_t group_;  // the one to go back to
};

}  // namespace cofferdam::os
