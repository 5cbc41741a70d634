// Placement: whether a path may be a change at all, or belongs to what is never taken home.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "common/policy/fs_rules.h"
#include "orchestrator/changes/ignore_rules.h"

namespace cofferdam::orchestrator::changes {

enum class Place : std::uint8_t { kPlain, kGitDirectory, kReserved, kHidden, kIgnored };

// What is known of the topmost path that decides for all below it.
struct Top {
  Place place = Place::kPlain;
  std::string detail;         // the rule that hides it
  std::uint64_t entries = 0;  // changed objects at or below it
  std::uint64_t bytes = 0;
  bool removed = false;   // the sandbox removed it as a whole
  bool measured = false;  // the upper layer holds it: entries are known
};

class Placement final {
 public:
  // `attributes`: the workload had extended ones.
  Placement(policy::FsRules rules, IgnoreRules ignore, bool attributes = false)
      : rules_(std::move(rules)), ignore_(std::move(ignore)), attributes_(attributes) {}

  bool has_attributes() const { return attributes_; }

  // From now on what the user's rules ignore is plain at and below these paths ("" for all), and so
  // are the directories above them.
  void admit_ignored(std::vector<std::string> paths) { admitted_ = std::move(paths); }
  // Whether `path`, which is plain, is ignored and was admitted.
  bool is_admitted(const std::string& path) const { return ignored_plain_.contains(path); }
  bool is_hidden(const std::string& path, bool is_dir) const {
    return !rules_.decide(path, is_dir).visible();
  }

  // Whether its answers can be used (ignore_rules.h).
  Status check() const { return ignore_.check(); }

  // The topmost path at or above `path` that is not plain, made known if it was not; nullptr when
  // the whole path is plain. Pointers stay valid.
  Top* top_of(const std::string& path, bool is_dir);

  const std::unordered_map<std::string, Top>& tops() const { return tops_; }

 private:
  Top* judge(const std::string& path, bool is_dir);

  policy::FsRules rules_;
  IgnoreRules ignore_;
  bool attributes_;
  bool admits(const std::string& path) const;
  std::optional<std::vector<std::string>> admitted_;
  std::unordered_set<std::string> ignored_plain_;
  std::unordered_set<std::string> plain_directories_;
  std::unordered_map<std::string, Top> tops_;
};

}  // namespace cofferdam::orchestrator::changes
