// ReviewSession: what every command over one sandbox's changes needs, opened once.
#pragma once

#include "orchestrator/changes/changes.h"
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

  static Result<ReviewSession> open(const SandboxRecord& sandbox);
  static Result<Placement> placement(const SandboxRecord& sandbox);
  Result<ChangeSet> collect(const SandboxRecord& sandbox) const;
  // With the ignored content at and below `paths` (none: all of it) among the changes.
  Result<ChangeSet> collect_with_ignored(const SandboxRecord& sandbox,
                                         const std::vector<std::string>& paths) const;

 private:
  Result<ChangeSet> collect_in(Placement rules) const;
};

}  // namespace cofferdam::orchestrator::changes
