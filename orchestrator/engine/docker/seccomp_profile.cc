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
  const auto family = [](const char* native, std::initializer_list<const char*> others) {
    return Json{{"architecture", native}, {"subArchitectures", others}};
  };
  Json profile;
  // Without the others Docker's filter would end a process that tries another ABI; process 1's
  // answers ENOSYS.
  profile["archMap"] = Json::array({family("SCMP_ARCH_X86_64", {"SCMP_ARCH_X86", "SCMP_ARCH_X32"}),
                                    family("SCMP_ARCH_AARCH64", {"SCMP_ARCH_ARM"})});
  profile["defaultAction"] = "SCMP_ACT_ERRNO";
  profile["defaultErrnoRet"] = ENOSYS;  // 20.10 does not know the key and answers EPERM
  profile["syscalls"] =
      Json::array({{{"names", allowed}, {"action", "SCMP_ACT_ALLOW"}},
                   {{"names", unavailable}, {"action", "SCMP_ACT_ERRNO"}, {"errnoRet", ENOSYS}}});
  return profile;
}

}  // namespace cofferdam::orchestrator::docker
