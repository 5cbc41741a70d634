#include "common/os/acting_as.h"

#include <unistd.h>

#include "common/base/check.h"

namespace cofferdam::os {

Result<ActingAs> ActingAs::begin(uid_t uid, gid_t gid) {
  if (::geteuid() != 0 || uid == 0) return ActingAs(false, 0);
  const gid_t before = ::getegid();
  if (::setegid(gid) != 0) return Error::from_errno("setegid");
  if (::seteuid(uid) != 0) {
    const Error failed = Error::from_errno("seteuid");
    CHECK(::setegid(before) == 0);
    return failed;
  }
  return ActingAs(true, before);
}

ActingAs::~ActingAs() {
  if (!active_) return;
  CHECK(::seteuid(0) == 0);
  CHECK(::setegid(group_) == 0);
}

}  // namespace cofferdam::os
