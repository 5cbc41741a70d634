// A workspace with a base, in a directory whose surroundings are watched.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "common/os/files.h"
#include "orchestrator/changes/changes.h"
#include "orchestrator/changes/merge.h"
#include "tests/fakes/layer_builder.h"
#include "tests/fakes/tree.h"

namespace cofferdam::orchestrator::changes {

class Workbench {
 public:
  explicit Workbench(const fakes::Tree& base)
      : root_(std::move(*os::TempDir::create(fakes::scratch_directory(), "cofferdam-workbench-"))) {
    std::filesystem::create_directory(workspace());
    fakes::write_tree(workspace(), base);
    fakes::write_node(root_.path(), "beside", fakes::file("not to be touched"));
  }

  std::filesystem::path workspace() const { return root_.path() / "workspace"; }
  std::filesystem::path beside() const { return root_.path() / "beside"; }
  std::filesystem::path root() const { return root_.path(); }
  fakes::Tree ours() const { return fakes::read_tree(workspace()); }
  fakes::Tree everything() const { return fakes::read_tree(root_.path()); }

  // The user's own edit: what is there goes away first.
  void edit(const std::string& path, const fakes::Node& node) const {
    std::filesystem::remove_all(workspace() / path);
    fakes::write_node(workspace(), path, node);
  }
  void erase(const std::string& path) const { std::filesystem::remove_all(workspace() / path); }

 private:
  os::TempDir root_;
};

inline ChangeSet changes_of(const fakes::LayerBuilder& layer) {
  auto set = compute_changes(layer.record());
  EXPECT_TRUE(set.ok()) << (set.ok() ? "" : set.error().message());
  return set.ok() ? std::move(*set) : ChangeSet{};
}

inline MergeReport merge_of(const fakes::LayerBuilder& layer, const MergeOptions& options = {}) {
  auto report = merge_sandbox(layer.record(), options);
  EXPECT_TRUE(report.ok()) << (report.ok() ? "" : report.error().message());
  return report.ok() ? std::move(*report) : MergeReport{};
}

// "A path" a line, in the order of the set.
inline std::string listing(const ChangeSet& set) {
  std::string text;
  for (const Change& change : set.changes) {
    text += std::string(to_text(change.kind)) + " " + change.path + "\n";
  }
  return text;
}

inline const MergeItem* item_of(const MergeReport& report, const std::string& path) {
  const auto found = std::find_if(report.items.begin(), report.items.end(),
                                  [&](const MergeItem& i) { return i.change.path == path; });
  return found == report.items.end() ? nullptr : &*found;
}

}  // namespace cofferdam::orchestrator::changes
