// Walk: from the tips of branches to everything that only the sandbox has, each object checked.
//
// Iterative; memory is bounded by the limits. What an object refers to is asked for by name, so
// that what the user's repository holds already is never read here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "common/base/result.h"
#include "orchestrator/reader/inflate.h"
#include "orchestrator/reader/object_id.h"
#include "orchestrator/reader/pack.h"

namespace cofferdam::orchestrator::reader {

struct WalkLimits {
  std::uint64_t object_bytes = std::uint64_t{512} << 20U;
  std::uint64_t all_bytes = std::uint64_t{8} << 30U;
  std::size_t objects = 2'000'000;
};

// Who is asked, and who takes what was found.
class ObjectHost {
 public:
  ObjectHost() = default;
  ObjectHost(const ObjectHost&) = delete;
  ObjectHost& operator=(const ObjectHost&) = delete;
  virtual ~ObjectHost() = default;
  // For each id whether the user's repository lacks it.
  virtual Result<std::vector<bool>> missing(const std::vector<ObjectId>& ids) = 0;
  // The sandbox's loose object of this name. An error says what is wrong with that object.
  virtual Result<std::optional<LooseObject>> loose(const ObjectId& id) = 0;
  virtual Status give(ObjectType type, const ObjectId& id, std::string_view content) = 0;
};

class Walk final {
 public:
  // Both outlive it.
  Walk(ObjectHost& host, std::vector<Pack>& packs, WalkLimits limits = {})
      : host_(host), packs_(packs), limits_(limits) {}

  // Gives the commit `tip` and all that it leads to and that is missing at home. An error says what
  // is wrong with this branch; `broken()` then tells whether the host failed, which ends
  // everything.
  Status take(const ObjectId& tip);
  bool broken() const { return broken_; }

 private:
  using Wanted = std::pair<ObjectId, ObjectType>;
  Status need(std::vector<Wanted> wanted);
  Status take_one(const Wanted& wanted);
  Result<PackedObject> read(const ObjectId& id);

  ObjectHost& host_;
  std::vector<Pack>& packs_;
  WalkLimits limits_;
  std::unordered_map<ObjectId, ObjectType, ObjectIdHash> seen_;
  std::vector<Wanted> pending_;
  std::uint64_t bytes_ = 0;
  bool broken_ = false;
};

}  // namespace cofferdam::orchestrator::reader
