// ReaderSession: cofferdam-reader at work on one sandbox, and the check of all that it says.
//
// Nothing of the reader is believed: names are looked at again, every object is hashed and, commits
// and trees, read again by the same strict rules; that a branch is complete is found here. A reader
// that says something impossible, or falls silent, ends the session with an error.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/base/result.h"
#include "orchestrator/changes/git_layer.h"
#include "orchestrator/changes/home_repository.h"
#include "orchestrator/reader/object_check.h"
#include "orchestrator/reader/object_id.h"
#include "orchestrator/secrets/found_secrets.h"

namespace cofferdam::orchestrator::changes {

// Commits and trees that only the sandbox has, checked.
struct Received {
  struct Object {
    reader::ObjectType type = reader::ObjectType::kBlob;
    std::string content;  // of commits and trees, and of blobs that a link's text could be
    bool kept = false;
  };
  std::unordered_map<reader::ObjectId, Object, reader::ObjectIdHash> objects;

  bool holds(const reader::ObjectId& id) const { return objects.contains(id); }
  // The content of a commit, a tree or a small blob of these.
  const std::string* content(const reader::ObjectId& id) const;
};

struct SandboxBranch {
  reader::ObjectId tip;
  std::string refused;  // why it does not come home; empty: it is complete
};

struct SandboxCommits {
  // What HEAD inside says; neither: the sandbox did not touch it.
  std::string head_branch;
  std::optional<reader::ObjectId> head_tip;       // detached
  std::map<std::string, SandboxBranch> branches;  // "HEAD": a detached one
  std::map<std::string, std::string> refused;     // names that are none, with the reason
  Received received;
  // Blob -> the secrets in it -> what each is. Not the reader's work.
  std::map<reader::ObjectId, secrets::FoundSecrets> secrets;
};

// Called for every object, blobs too, once it is verified.
using TakeObject =
    std::function<Status(reader::ObjectType, const reader::ObjectId&, std::string_view content)>;

// How long the reader may say and take nothing, and how long all of it may take.
struct ReaderPatience {
  std::chrono::milliseconds silence = std::chrono::minutes(3);
  std::chrono::milliseconds whole = std::chrono::minutes(20);
};

Result<SandboxCommits> read_commits(const std::filesystem::path& reader, const GitLayer& layer,
                                    const HomeRepository& home, const TakeObject& take,
                                    ReaderPatience patience = {});

}  // namespace cofferdam::orchestrator::changes
