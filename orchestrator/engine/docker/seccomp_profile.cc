#include "orchestrator/engine/docker/seccomp_profile.h"

#include <cerrno>
#include <set>
#include <string>

namespace cofferdam::orchestrator::docker {

Result<Json> make_seccomp_profile(const Json& policy) {
  std::set<std::string> allowed;
  Json unavailable;
  try {
    if (policy.at("version") != 1) return Error("seccomp policy: version must be 1");
    for (const char* key : {"allow", "refuse"}) {
      for (const Json& name : policy.at(key)) allowed.insert(name.get<std::string>());
    }
    for (const char* key : {"allow_when", "refuse_when"}) {
      for (const Json& rule : policy.at(key)) allowed.insert(rule.at("syscall").get<std::string>());
    }
    unavailable = policy.at("unavailable");
  } catch (const Json::exception& fault) {
    return Error(std::string("seccomp policy: ") + fault.what());
  }
  return Json{
      {"defaultAction", "SCMP_ACT_ERRNO"},
      {"defaultErrnoRet", ENOSYS},  // 20.10 does not know the key and answers EPERM
      {"syscalls",
       Json::array(
           {{{"names", allowed}, {"action", "SCMP_ACT_ALLOW"}},
            {{"names", unavailable}, {"action", "SCMP_ACT_ERRNO"}, {"errnoRet", ENOSYS}}})}};
}

}  // namespace cofferdam::orchestrator::docker
