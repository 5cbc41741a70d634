#include "common/layer/layer_stack.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>

#include "common/layer/freeze.h"
#include "common/os/files.h"
#include "common/os/tree_paths.h"

namespace cofferdam::layer {
namespace {

namespace fs = std::filesystem;

Result<os::UniqueFd> open_directory(const fs::path& path) {
  return os::open_file(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
}

bool directory_at(const fs::path& path) {
  struct stat st {};
  return ::lstat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode);
}

std::optional<std::uint32_t> number_of(std::string_view name) {
  std::uint32_t number = 0;
  const auto [end, code] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (code != std::errc() || end != name.data() + name.size() || number == 0) return std::nullopt;
  return number;
}

Result<std::vector<std::string>> names_in(const fs::path& path) {
  std::vector<std::string> names;
  const auto dir = open_directory(path);
  if (!dir.ok()) {
    if (dir.error().error_number() == ENOENT) return names;
    return dir.error();
  }
  TRY(os::for_each_name(dir->get(), [&](std::string_view name) -> Status {
    names.emplace_back(name);
    return {};
  }));
  return names;
}

}  // namespace

Result<fs::path> frozen_path(const fs::path& layer, std::uint32_t number) {
  const std::string text = std::to_string(number);
  const fs::path own = layer / "layers" / text / "upper";
  if (directory_at(own)) return own;
  const auto reference = os::read_file(layer / "layers" / (text + ".ref"), 8192);
  if (!reference.ok()) {
    return Error("the frozen layer " + own.string() + " is missing", EIO);
  }
  // The places where it may lie, one a line, relative to the layer directory.
  for (std::size_t from = 0; from < reference->size();) {
    const std::size_t end = std::min(reference->find('\n', from), reference->size());
    fs::path place = layer / reference->substr(from, end - from) / "upper";
    if (directory_at(place)) return place.lexically_normal();
    from = end + 1;
  }
  return Error("the frozen layer " + text + " of " + layer.string() +
                   " lay in a sandbox that is gone: " + *reference,
               EIO);
}

Result<std::vector<FrozenLayer>> open_frozen(const fs::path& layer, const MetaStore& meta) {
  TRY_ASSIGN(const std::vector<Checkpoint> chain, CheckpointTable(meta).chain());
  std::vector<FrozenLayer> out;
  for (const Checkpoint& checkpoint : chain) {
    TRY_ASSIGN(const fs::path path, frozen_path(layer, checkpoint.layer));
    TRY_ASSIGN(os::UniqueFd root, open_directory(path));
    out.push_back({checkpoint.layer, std::move(root)});
  }
  return out;
}

Result<std::vector<fs::path>> borrowed_layers(const fs::path& layer) {
  std::vector<fs::path> out;
  TRY_ASSIGN(const std::vector<std::string> names, names_in(layer / "layers"));
  for (const std::string& name : names) {
    if (!name.ends_with(".ref")) continue;
    const auto number = number_of(std::string_view(name).substr(0, name.size() - 4));
    if (!number) continue;
    const auto path = frozen_path(layer, *number);
    if (path.ok()) out.push_back(*path);
  }
  return out;
}

bool has_users(const fs::path& layer) {
  const auto users = names_in(layer / "users");
  return !users.ok() || !users->empty();
}

Status recover_layers(const fs::path& layer, const MetaStore& meta) {
  TRY_ASSIGN(const std::vector<std::string> names, names_in(layer / "layers"));
  if (names.empty()) return {};
  const CheckpointTable table(meta);
  TRY_ASSIGN(const StackHead head, table.head());
  TRY_ASSIGN(const std::vector<Checkpoint> chain, table.chain());
  const bool lent = has_users(layer);
  for (const std::string& name : names) {
    const fs::path path = layer / "layers" / name;
    const auto number = number_of(name);
    if (number && *number >= head.next && directory_at(path)) {
      TRY(take_back_freeze(layer, *number));
      continue;
    }
    if (std::any_of(chain.begin(), chain.end(), [&](const Checkpoint& checkpoint) {
          const std::string text = std::to_string(checkpoint.layer);
          return name == text || name == text + ".ref";
        })) {
      continue;
    }
    // A layer that was folded or dropped, or the beginnings of one.
    if (!lent || !number) TRY(os::remove_tree(path));
  }
  return {};
}

std::uint32_t index_epoch(std::string_view name) {
  const std::size_t first = name.find('-');
  const std::size_t second = first == name.npos ? first : name.find('-', first + 1);
  if (second == name.npos) return 1;
  return number_of(name.substr(second + 1)).value_or(1);
}

Result<ReadStack> open_stack(const fs::path& layer, const MetaStore& meta) {
  constexpr int kAttempts = 200;
  for (int attempt = 0;; ++attempt) {
    const CheckpointTable table(meta);
    TRY_ASSIGN(const StackHead head, table.head());
    TRY_ASSIGN(os::UniqueFd upper, open_directory(layer / "upper"));
    // Between the exchange and the commit of a freeze the upper of the moment is not the whole.
    std::optional<os::UniqueFd> in_between;
    const fs::path fresh = layer / "layers" / std::to_string(head.next);
    TRY_ASSIGN(const bool exchanged, is_exchanged(fresh, upper.get()));
    if (exchanged) {
      auto full = open_directory(fresh / "upper");
      if (full.ok()) in_between = std::move(full).value();
    }
    auto frozen = open_frozen(layer, meta);
    TRY_ASSIGN(const StackHead after, table.head());
    const bool steady = frozen.ok() && after.parent == head.parent && after.next == head.next;
    if ((!steady || exchanged) && attempt < kAttempts) {
      const struct timespec moment { 0, 10'000'000 };
      ::nanosleep(&moment, nullptr);
      continue;
    }
    if (!frozen.ok()) return frozen.error();
    ReadStack stack;
    // Whoever froze it was killed, and nobody has put it right yet.
    stack.roots.push_back(in_between ? std::move(*in_between) : std::move(upper));
    for (FrozenLayer& one : *frozen) stack.roots.push_back(std::move(one.root));
    return stack;
  }
}

}  // namespace cofferdam::layer
