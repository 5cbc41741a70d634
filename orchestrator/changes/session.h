// ReviewSession: what every command over one sandbox's changes needs, opened once.
#pragma once

#include "common/policy/fs_rules.h"
#include "orchestrator/changes/changes.h"
#include "orchestrator/changes/ignore_rules.h"
#include "orchestrator/changes/layer_view.h"
#include "orchestrator/changes/placement.h"
#include "orchestrator/changes/risk.h"
#include "orchestrator/changes/settled.h"
#include "orchestrator/secrets/secret_scanner.h"

namespace cofferdam::orchestrator::changes {

struct ReviewSession {
  LayerView view;
  Settled settled;
  RiskTable risks;
  secrets::SecretScanner secrets;
  policy::FsRules rules;    // that the workload ran under
  bool attributes = false;  // whether it had extended ones
  IgnoreRules ignore;

  static Result<ReviewSession> open(const SandboxRecord& sandbox);
  Placement placement() const { return {rules, ignore, attributes}; }
  Result<ChangeSet> collect() const { return collect_in(placement()); }
  // With the ignored content at and below `paths` (none: all of it) among the changes.
  Result<ChangeSet> collect_with_ignored(const std::vector<std::string>& paths) const;

 private:
  Result<ChangeSet> collect_in(Placement place) const;
};

}  // namespace cofferdam::orchestrator::changes
