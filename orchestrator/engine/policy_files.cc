#include "orchestrator/engine/policy_files.h"

#include "common/os/files.h"

namespace cofferdam::orchestrator {

Status write_policies(const Plan& plan, const SandboxRecord& record, ShownIds shown) {
  constexpr std::uint32_t kNobody = 65534;
  Json fs_policy = plan.fs_policy;
  Json& owner = fs_policy["owner"];
  owner["shown_uid"] = shown.uid;
  owner["shown_gid"] = shown.gid;
  if (!owner.contains("other_uid")) owner["other_uid"] = kNobody;
  if (!owner.contains("other_gid")) owner["other_gid"] = kNobody;
  TRY(os::write_file_atomic(record.fs_policy(), canonical_json(fs_policy) + "\n"));
  return os::write_file_atomic(record.egress_policy(), canonical_json(plan.egress_policy) + "\n");
}

}  // namespace cofferdam::orchestrator
