// Collector: joins the upper layer's walk with the base records into a change set.
//
// A path's change is its merged view against its base (docs/layer-format.md). Work and memory are
// proportional to what the sandbox touched.
#pragma once

#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "common/base/result.h"
#include "orchestrator/changes/changes.h"
#include "orchestrator/changes/layer_view.h"
#include "orchestrator/changes/placement.h"
#include "orchestrator/changes/risk.h"
#include "orchestrator/changes/settled.h"
#include "orchestrator/changes/upper_walk.h"
#include "orchestrator/secrets/found_secrets.h"

namespace cofferdam::orchestrator::changes {

// What changes are judged by; all of it outlives the collector.
struct Criteria {
  const RiskTable& risks;
  const secrets::SecretScanner& secrets;
  const Settled& settled;
  std::uint32_t umask;  // bits that new objects of the user do not get either
};

class Collector final {
 public:
  Collector(const LayerView& view, Placement placement, Criteria criteria)
      : view_(view), placement_(std::move(placement)), criteria_(criteria) {}

  Result<ChangeSet> collect();

 private:
  // How the merged view at a path that the upper layer does not hold comes about.
  enum class Absent : std::uint8_t { kRemoved, kUntouched };

  Status take_upper();
  Result<Visit> visit_upper(const std::string& path, const UpperEntry& entry);
  Status take_whiteout_rows();
  Result<bool> take_bulk(const std::string& path, const UpperEntry& entry);
  Status take_base(const layer::BaseRecord& record);
  Status take_without_base(const std::string& path, const UpperEntry& entry);
  Absent without_upper(std::string_view path) const;
  bool was_absent(std::string_view path) const;
  Status judge(const std::string& path, const layer::BaseRecord* record, const UpperEntry* entry);
  // Secret text -> what it is.
  using Secrets = secrets::FoundSecrets;
  Result<ObjectState> theirs(const std::string& path, const UpperEntry& entry,
                             Secrets& secrets) const;
  // Those that the base does not hold already make the change a risky one.
  void judge_secrets(Change& change, Secrets secrets) const;
  static void mark_secret(Change& change, const std::string& reason);
  void restrict_mode(Change& change) const;
  bool affords_holes(std::uint64_t holes);
  Status grow(std::size_t bytes);
  void report_tops();
  void report_attributes();

  const LayerView& view_;
  Placement placement_;
  Criteria criteria_;
  ChangeSet set_;
  std::unordered_map<std::string, UpperEntry> upper_;
  std::unordered_set<std::string> with_base_;        // upper paths that have a base record
  std::unordered_set<std::string> new_directories_;  // directories whose base is something else
  std::vector<std::string> bulk_;                    // directories taken as a whole
  std::size_t entries_ = 0;
  std::size_t bytes_ = 0;
  std::uint64_t holes_ = 0;
};

}  // namespace cofferdam::orchestrator::changes
