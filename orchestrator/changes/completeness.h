// Completeness: which of the received objects have everything that they lead to, here or among the
// received ones, and are no larger than git can bear. Each object is looked at once, however many
// branches lead to it.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/base/result.h"
#include "orchestrator/changes/reader_session.h"

namespace cofferdam::orchestrator::changes {

class Completeness final {
 public:
  using IsHere = std::function<bool(const reader::ObjectId&)>;
  // `submodules`: commits of other repositories that trees may name. All outlive it.
  Completeness(const Received& received, IsHere is_here,
               const std::set<reader::ObjectId>& submodules)
      : received_(received), is_here_(std::move(is_here)), submodules_(submodules) {}

  // Whether the commit `tip` is whole; the error says what is not.
  Status check(const reader::ObjectId& tip);

 private:
  using Reference = std::pair<reader::ObjectId, reader::ObjectType>;
  // Of a tree: directories below one another, and everything in them as often as it stands there.
  struct Extent {
    std::uint32_t depth = 0;
    std::uint64_t places = 0;
  };
  struct Step {
    reader::ObjectId id;
    reader::ObjectType type = reader::ObjectType::kBlob;
    std::vector<Reference> references;
    std::size_t next = 0;
    Extent extent;
  };
  struct Settled {
    std::uint32_t reason = 0;  // one more than the place in reasons_; 0: whole
    Extent extent;
  };

  // Whether `reference` is settled as whole; else it was put on the path, or is an error.
  Result<bool> look_at(const Reference& reference);
  // Counts what a tree holds into the tree at the path's end.
  Status add_to_path(const Extent& below);
  Result<std::vector<Reference>> references_of(const Received::Object& object) const;

  const Received& received_;
  IsHere is_here_;
  const std::set<reader::ObjectId>& submodules_;
  std::unordered_map<reader::ObjectId, Settled, reader::ObjectIdHash> settled_;
  std::vector<std::string> reasons_;
  std::vector<Step> path_;
};

// The received objects that `tips` lead to.
reader::ObjectIdSet reachable(const Received& received, const std::vector<reader::ObjectId>& tips);

}  // namespace cofferdam::orchestrator::changes
