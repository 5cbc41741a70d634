// Secrets that commits bring into the user's history, whether or not the last of them still holds
// them: who pushes the branch publishes all of it.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "orchestrator/changes/home_repository.h"
#include "orchestrator/changes/reader_session.h"

namespace cofferdam::orchestrator::changes {

struct HistorySecret {
  std::string path;  // of the file; where `in_message`, the commit's name
  std::string what;
  bool in_message = false;
};

struct HistorySearch {
  const HomeRepository& home;
  const SandboxCommits& commits;
  std::function<Result<std::string>(reader::ObjectType, const reader::ObjectId&)> read;
  std::function<secrets::FoundSecrets(std::string_view)> secrets_in;
  // Of any object, received or here.
  std::function<secrets::FoundSecrets(reader::ObjectType, const reader::ObjectId&)> secrets_of;
};

// In the commits that `tip` leads to and no reference of the user's own does (what came home before
// is none of these). Each path once. An error where there is more than can be searched.
Result<std::vector<HistorySecret>> secrets_of_history(const HistorySearch& search,
                                                      const reader::ObjectId& tip);

}  // namespace cofferdam::orchestrator::changes
