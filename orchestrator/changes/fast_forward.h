// Whether the branch that is checked out can be fast-forwarded to what the sandbox made of it.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "orchestrator/changes/commits.h"
#include "orchestrator/changes/reader_session.h"

namespace cofferdam::orchestrator::changes {

struct FastForwardContext {
  const ReviewSession& session;
  const HomeRepository& home;
  const SandboxCommits& commits;
  Placement& placement;
  const std::vector<std::string>& allow_risky;
};

secrets::FoundSecrets secrets_in(const secrets::SecretScanner& scanner, std::string_view bytes);

// Fills move, ahead, refused and risky of `report`, whose branches are known. Reads only.
Status decide_fast_forward(const FastForwardContext& context, CommitReport& report);

}  // namespace cofferdam::orchestrator::changes
