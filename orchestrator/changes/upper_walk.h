// The walk of an upper layer: every object in it, whiteouts and opaque directories told apart.
//
// Few directories are held open at a time, so that neither depth nor breadth costs descriptors or
// stack. The visitor decides per directory whether it is entered.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "common/base/result.h"
#include "common/layer/meta_store.h"
#include "orchestrator/changes/upper_stack.h"

namespace cofferdam::orchestrator::changes {

struct UpperEntry {
  layer::Kind kind = layer::Kind::kOther;
  std::uint32_t mode = 0;  // 07777
  std::uint64_t size = 0;
  std::uint64_t holes = 0;  // bytes of `size` that nothing is stored for
  bool whiteout = false;    // character device 0:0
  bool detached = false;    // a directory at or below which nothing of lower shows through
  std::string problem;      // why the walk could not look at or into it; empty: none
};

// Bytes of a file's size that nothing is stored for: they cost nothing to make.
std::uint64_t holes_of(const struct stat& st);

enum class Visit : std::uint8_t { kEnter, kSkip };

// Visits parents before their children. A path longer than os::kMaxTreePath is
// visited with a problem and not entered.
Status walk_upper(
    int upper,
    const std::function<Result<Visit>(const std::string& path, const UpperEntry&)>& visit);

// The same over all layers: what shows, and whiteouts that cover something.
Status walk_upper(
    const UpperStack& stack,
    const std::function<Result<Visit>(const std::string& path, const UpperEntry&)>& visit);

// Objects at or below the directory `path`, and the bytes of the files among them.
struct TreeSize {
  std::uint64_t entries = 0;
  std::uint64_t bytes = 0;
};
Result<TreeSize> measure_upper(const UpperStack& stack, const std::string& path);

}  // namespace cofferdam::orchestrator::changes
