// Applier: writes the taken items of a decided merge into the workspace, all or nothing.
//
// Each act exchanges or moves by renameat2(2) and then looks at what came out: if that is not the
// version that was judged, or the directory is not where it was, the act is taken back at once. Any
// failure undoes what was done before it, in reverse. Lives for one merge.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "orchestrator/changes/merge.h"
#include "orchestrator/changes/staging.h"

namespace cofferdam::orchestrator::changes {

using BeforeAct = std::function<Status(std::string_view act, std::string_view path)>;

class Applier final {
 public:
  Applier(const LayerView& view, Staging& staging, BeforeAct before_act)
      : view_(view), staging_(staging), before_act_(std::move(before_act)) {}

  // On success the workspace holds every item's theirs, read back and compared.
  Status apply(const std::vector<const MergeItem*>& items);
  // Takes everything back. False: something could not be, and lies in the staging directory.
  bool undo();

 private:
  enum class Act : std::uint8_t { kRemoved, kExchanged, kCreated, kModeSet };
  struct Done {
    Act act = Act::kRemoved;
    std::size_t index = 0;
  };

  Status before(std::string_view act, const MergeItem& item) const;
  Status stage(std::size_t index);
  Status remove(std::size_t index);
  Status exchange(std::size_t index);
  Status create(std::size_t index);
  Status set_directory_mode(std::size_t index, std::uint32_t from, std::uint32_t to);
  Status read_back() const;
  Result<Owner> owner_for(const MergeItem& item) const;
  // That the directory open as `parent` still is the one at the path of the item's parent.
  Status still_there(int parent, const MergeItem& item) const;
  // That the object set aside under `name` is `expected`, and empty if it is a directory.
  Status came_out(const std::string& name, const ObjectState& expected) const;
  // Passes `status` on; an error first takes the act that was just done back, by the directory that
  // it was done in.
  Status verified(int parent, Status status);
  bool undo_one(const Done& done, int parent);

  std::string new_name(std::size_t index) const { return "n" + std::to_string(index); }
  std::string old_name(std::size_t index) const { return "o" + std::to_string(index); }

  const LayerView& view_;
  Staging& staging_;
  BeforeAct before_act_;
  std::vector<const MergeItem*> items_;
  std::vector<Done> done_;
  bool whole_ = true;  // everything that had to be taken back was
};

}  // namespace cofferdam::orchestrator::changes
