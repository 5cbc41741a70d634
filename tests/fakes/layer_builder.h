// LayerBuilder: makes a sandbox's layer by hand, as fsproxy would have (docs/layer-format.md). For
// tests of what reads layers. Keeps the merged view as a value beside it.
#pragma once

#include <filesystem>
#include <string>

#include "common/base/json_text.h"
#include "common/layer/meta_store.h"
#include "common/os/files.h"
#include "orchestrator/sandbox_store.h"
#include "tests/fakes/tree.h"

namespace cofferdam::fakes {

class LayerBuilder final {
 public:
  // `workspace` holds the base already.
  explicit LayerBuilder(std::filesystem::path workspace);

  // Creates or replaces what is no directory; a directory is created.
  void put(const std::string& path, const Node& node);
  void remove(const std::string& path);  // with all below it
  void chmod(const std::string& path, std::uint32_t mode);
  void rename(const std::string& from, const std::string& to);
  void read(const std::string& path);

  // An upper object without any record: what no correct fsproxy leaves.
  void forge_upper(const std::string& path, const Node& node);
  void set_rules(const Json& rules, bool attributes = false);

  bool whiteouts_in_meta = false;  // rows of `whiteout` instead of device 0:0
  bool base_is_unknown = false;    // records made from now on have state 1

  const Tree& theirs() const { return theirs_; }
  orchestrator::SandboxRecord record() const;
  std::filesystem::path sandbox() const { return sandbox_.path(); }

 private:
  std::filesystem::path upper(const std::string& path) const {
    return sandbox_.path() / "upper" / path;
  }
  std::filesystem::path lower(const std::string& path) const { return workspace_ / path; }
  void record_base(const std::string& path);
  void record_base_tree(const std::string& path);
  void copy_up_directory(const std::string& path);
  bool lower_shows(const std::string& path) const;

  std::filesystem::path workspace_;
  os::TempDir sandbox_;
  layer::MetaStore meta_;
  Tree theirs_;
};

}  // namespace cofferdam::fakes
