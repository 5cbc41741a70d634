// The seccomp filter: policies/seccomp/default.json compiled by libseccomp, and the answer to each
// refused call.
//
// Two programs are installed one after the other, because libseccomp cannot except arguments from
// a call that it allows: `refusals` (everything allowed but refuse_when), then `allowlist`, whose
// default is the notification. The kernel takes the strictest answer of the two.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/os/unique_fd.h"

namespace cofferdam::orchestrator {

struct SeccompPrograms {
  os::UniqueFd refusals;   // struct sock_filter[]
  os::UniqueFd allowlist;  // the same
};

struct SeccompArgument {
  unsigned int index = 0;
  std::uint64_t mask = 0;
  std::uint64_t value = 0;
};
struct SeccompRule {
  std::string syscall;
  std::vector<SeccompArgument> arguments;
  int error_number = 0;  // refuse_when only
};

class SeccompPolicy final {
 public:
  // Unknown keys, unknown system calls (but those of `newer`) and calls named twice are errors.
  static Result<SeccompPolicy> parse(std::string_view json);
  // One that is compiled in: default, strict (process.seccomp of the manifest).
  static Result<SeccompPolicy> built_in(std::string_view profile = "default");

  // What `json` (policies/seccomp/strict.json) names is refused too. A call that was not allowed,
  // and an unknown key, are errors.
  Status refuse_further(std::string_view json);

  Result<SeccompPrograms> compile() const;

  // For a call that was notified: EPERM when the policy refuses it by name, else ENOSYS.
  int answer(std::string_view syscall) const;

 private:
  std::vector<std::string> allow_;
  std::vector<SeccompRule> allow_when_;
  std::vector<std::string> unavailable_;
  std::vector<SeccompRule> refuse_when_;
  std::vector<std::string> refuse_;
  std::vector<std::string> newer_;
};

// The name of a system call of this machine, or its number as text.
std::string syscall_name(int number);

}  // namespace cofferdam::orchestrator
