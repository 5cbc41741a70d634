// Transaction: the steps of a merge, carried out or taken back one by one, each verified.
//
// A step moves or exchanges by renameat2(2) one object between the workspace and a private
// directory (`objects`, where step i has the name "i") and then looks at what came out: if that is
// not the version that was judged, or the directory is not where it was, the step is taken back at
// once. Where each step stands can be told from the two directories alone, so that a run which was
// killed at any point goes on from there. Single thread; the caller holds the workspace's lock.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "orchestrator/changes/changes.h"
#include "orchestrator/changes/layer_view.h"

namespace cofferdam::orchestrator::changes {

// Called before each act on a file system ("create", "exchange", "sync", …) with the path that it
// is about; an error makes that act fail. For tests.
using BeforeAct = std::function<Status(std::string_view act, std::string_view path)>;

enum class Position : std::uint8_t { kBefore, kAfter };
inline Position other(Position p) {
  return p == Position::kBefore ? Position::kAfter : Position::kBefore;
}

struct Step {
  enum class Act : std::uint8_t {
    kRemove,    // the object before goes into `objects`
    kExchange,  // the object after comes out of it, the one before goes in
    kCreate,    // the object after comes out of it
    kMode,      // permission bits of a directory
    kTree,      // as kCreate, with all that lies below; after.sha256 is tree_fingerprint()
  };
  Act act = Act::kRemove;
  std::string path;
  ObjectState before;
  ObjectState after;
  std::uint64_t staged_inode = 0;  // of an exchange: the object that `objects` held at the origin
};

// What a merge decides for good: the base that a path has from then on.
struct Settlement {
  std::string path;
  std::optional<ObjectState> before;  // what had been settled earlier
  ObjectState after;
};

struct BranchMove;  // branch_move.h

struct TransactionPlan {
  Position origin = Position::kBefore;  // where every step stood when staged_inode was recorded
  std::vector<Step> steps;              // in the order in which they are carried out
  std::vector<Settlement> settled;
  std::shared_ptr<const BranchMove> branch;  // what goes with the steps, after them; or none

  // What the workspace holds at each path when all steps stand there.
  std::map<std::string, ObjectState> states(Position at) const;
};

struct StuckStep {
  std::size_t index = 0;
  std::string path;
  std::string why;
};

class Transaction final {
 public:
  // The descriptors and the plan outlive it.
  Transaction(int workspace, int objects, const TransactionPlan& plan, BeforeAct before_act)
      : workspace_(workspace),
        objects_(objects),
        plan_(plan),
        before_act_(std::move(before_act)),
        held_(workspace) {}

  // Brings every step there and reads all of it back; ends at the first step that fails. Steps that
  // are there already, for an earlier run was killed, are verified by what came out of them. Where
  // that holds for all, nothing is read back: what the workspace holds now is somebody's later
  // work.
  Status run(Position to);
  // Brings every step there that can be; the rest is left as somebody else made it.
  std::vector<StuckStep> run_what_can_be(Position to);

  // Paths at which the workspace no longer holds what it did at `at`, with the difference in words:
  // what taking the transaction from there would overwrite.
  Result<std::vector<StuckStep>> changed_since(Position at) const;

 private:
  Status before(std::string_view act, const Step& step) const;
  Result<Position> position(std::size_t index) const;
  Status move(std::size_t index, Position from, Position to);
  // What a step that stands there took out of the workspace must be what was judged.
  Status came_out(std::size_t index, Position at) const;
  Status out_of_workspace(std::size_t index, const ObjectState& expected, std::string_view act);
  // For file systems that do not move every directory (overlayfs, those of a lower layer): a copy
  // goes into `objects`, then the empty directory is removed.
  Status copy_out_directory(int parent, std::size_t index, const ObjectState& expected);
  Status into_workspace(std::size_t index, std::string_view act);
  Status exchange(std::size_t index, const ObjectState& expected_out, const ObjectState& put_in,
                  std::string_view act);
  Status set_mode(std::size_t index, std::uint32_t from, std::uint32_t to);
  Status read_back(Position at) const;
  // The directory that the step is about; from one step to the next it stays open.
  Result<int> parent_of(const Step& step);
  Status still_there(int parent, const Step& step) const;
  // That `name` in `directory` is `expected`, and empty if it is a directory.
  Status is(int directory, const std::string& name, const Step& step,
            const ObjectState& expected) const;

  int workspace_;
  int objects_;
  const TransactionPlan& plan_;
  BeforeAct before_act_;
  HeldTree held_;
};

// A digest over every name, kind, size, mode, modification time and link text below a directory:
// equal when nobody has touched it since.
Result<Sha256Digest> tree_fingerprint(int directory, std::string_view name);

}  // namespace cofferdam::orchestrator::changes
