#include "orchestrator/changes/patch.h"

#include <array>
#include <cstdio>
#include <optional>

#include "common/os/tree_paths.h"
#include "orchestrator/changes/blob_id.h"
#include "orchestrator/changes/forbidden_names.h"
#include "orchestrator/changes/text_hunks.h"

namespace cofferdam::orchestrator::changes {
namespace {

using Written = PatchResult::Written;

bool is_blob(const ObjectState& state) {
  return state.kind == layer::Kind::kFile || state.kind == layer::Kind::kSymlink;
}

std::string git_mode(const ObjectState& state) {
  if (state.kind == layer::Kind::kSymlink) return "120000";
  return (state.mode & 0100U) != 0 ? "100755" : "100644";
}

// What git's two modes say of a file's permission bits, all else being usual.
bool mode_has_a_form(const ObjectState& base, const ObjectState& theirs) {
  if (theirs.kind != layer::Kind::kFile) return true;
  const bool same_as_before = base.kind == layer::Kind::kFile && base.mode == theirs.mode;
  return same_as_before || theirs.mode == 0644 || theirs.mode == 0755 || theirs.mode == 0664 ||
         theirs.mode == 0775;
}

// One side of a section: nothing, or a blob.
struct Side {
  std::optional<ObjectState> state;
  ContentSource source;
  std::optional<std::string> bytes;  // the whole content, where it is small enough for text
};

// `source`, with an error at its end when the content is not what was judged.
ContentSource checked(ContentSource source, const ObjectState& state) {
  return [source = std::move(source), state](const Sink& sink) -> Status {
    Sha256 hash;
    TRY(source([&](std::string_view bytes) -> Status {
      hash.update(bytes);
      return sink(bytes);
    }));
    if (!state.sha256.has_value() || hash.finish() != *state.sha256) {
      return Error("content changed while it was read");
    }
    return {};
  };
}

// Reads small content once, for its id and its lines.
Status load(Side& side) {
  if (side.state.has_value() && side.state->size > kMaxTextBytes) return {};
  std::string bytes;
  if (side.state.has_value()) {
    TRY(side.source([&](std::string_view piece) -> Status {
      if (bytes.size() + piece.size() > kMaxTextBytes) {
        return Error("content changed while it was read");
      }
      bytes += piece;
      return {};
    }));
  }
  side.bytes = std::move(bytes);
  return {};
}

Result<std::string> id_of_content(const Side& side) {
  if (!side.bytes.has_value()) return blob_id(side.state->size, side.source);
  return blob_id(side.bytes->size(), [&](const Sink& sink) { return sink(*side.bytes); });
}

std::uint64_t size_of(const Side& side) {
  return side.state.has_value() ? side.state->size : 0;
}

// What a section is about; `similarity` above 0: a rename.
struct Names {
  const std::string& before;
  const std::string& after;
  unsigned similarity = 0;
};

class Section final {
 public:
  Section(const Names& names, const Side& before, const Side& after, PatchStyle style,
          const Sink& out)
      : names_(names), before_(before), after_(after), style_(style), out_(out) {}

  Status write(PatchResult& result) {
    const bool content_differs = !before_.state.has_value() || !after_.state.has_value() ||
                                 before_.state->sha256 != after_.state->sha256;
    TRY(header(content_differs));
    if (!content_differs) return {};
    if (before_.bytes.has_value() && after_.bytes.has_value() && !looks_binary(*before_.bytes) &&
        !looks_binary(*after_.bytes)) {
      return text(*before_.bytes, *after_.bytes, result);
    }
    result.binary = true;
    return binary();
  }

 private:
  Status header(bool content_differs) {
    const std::string old_name = quote_name("a/" + names_.before);
    const std::string new_name = quote_name("b/" + names_.after);
    std::string text = "diff --git " + old_name + " " + new_name + "\n";
    if (!before_.state.has_value()) {
      text += "new file mode " + git_mode(*after_.state) + "\n";
    } else if (!after_.state.has_value()) {
      text += "deleted file mode " + git_mode(*before_.state) + "\n";
    } else if (git_mode(*before_.state) != git_mode(*after_.state)) {
      text +=
          "old mode " + git_mode(*before_.state) + "\nnew mode " + git_mode(*after_.state) + "\n";
    }
    if (names_.similarity > 0) {
      text += "similarity index " + std::to_string(names_.similarity) + "%\nrename from " +
              quote_name(names_.before) + "\nrename to " + quote_name(names_.after) + "\n";
    }
    if (content_differs) {
      TRY_ASSIGN(const std::string old_id, id_of(before_));
      TRY_ASSIGN(const std::string new_id, id_of(after_));
      text += "index " + old_id + ".." + new_id;
      if (before_.state.has_value() && after_.state.has_value() &&
          git_mode(*before_.state) == git_mode(*after_.state)) {
        text += " " + git_mode(*before_.state);
      }
      text += "\n";
    }
    return out_(bold(std::move(text)));
  }

  std::string bold(std::string lines) const {
    return coloured(style_.colour, "1", std::move(lines));
  }

  static Result<std::string> id_of(const Side& side) {
    if (!side.state.has_value()) return std::string(kNullBlobId);
    return id_of_content(side);
  }

  Status text(std::string_view old_bytes, std::string_view new_bytes, PatchResult& result) {
    if (old_bytes.empty() && new_bytes.empty()) return {};
    const std::string old_name = quote_name("a/" + names_.before);
    const std::string new_name = quote_name("b/" + names_.after);
    TRY(out_(bold("--- " + (before_.state.has_value() ? old_name : "/dev/null") + "\n+++ " +
                  (after_.state.has_value() ? new_name : "/dev/null") + "\n")));
    TRY_ASSIGN(const HunkCount count,
               write_text_hunks(old_bytes, new_bytes, {style_.for_display, style_.colour}, out_));
    result.lines_added += count.added;
    result.lines_removed += count.removed;
    return {};
  }

  Status binary() {
    if (style_.for_display) {
      return out_("Binary content: " + std::to_string(size_of(before_)) + " -> " +
                  std::to_string(size_of(after_)) + " bytes\n");
    }
    TRY(out_("GIT binary patch\n"));
    TRY(hunk(after_));
    return hunk(before_);
  }

  Status hunk(const Side& side) {
    if (side.state.has_value()) return write_literal_hunk(side.state->size, side.source, out_);
    return write_literal_hunk(
        0, [](const Sink&) -> Status { return {}; }, out_);
  }

  Names names_;
  const Side& before_;
  const Side& after_;
  PatchStyle style_;
  const Sink& out_;
};

PatchResult directory_result(const Change& change) {
  PatchResult result;
  if (change.kind == ChangeKind::kMode) {
    return {Written::kNone, "a patch holds no permission bits of directories", false, 0, 0};
  }
  result.written = Written::kImplied;
  result.note = "a patch holds no directories: an empty one is not created or removed by it";
  return result;
}

}  // namespace

std::string quote_name(std::string_view name) {
  bool plain = !name.empty();
  std::string quoted = "\"";
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    constexpr std::string_view kLetters = "\a\b\t\n\v\f\r";
    constexpr std::string_view kEscapes = "abtnvfr";
    const std::size_t at = c == '\0' ? std::string_view::npos : kLetters.find(c);
    if (at != std::string_view::npos) {
      quoted += '\\';
      quoted += kEscapes[at];
    } else if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (byte < 0x20 || byte >= 0x7F) {
      std::array<char, 5> octal_text{};
      std::snprintf(octal_text.data(), octal_text.size(), "\\%03o", byte);
      quoted += octal_text.data();
    } else {
      quoted += c;
      // A blank is legal without quotes and ambiguous: quotes always tell where a name ends.
      if (c == ' ') plain = false;
      continue;
    }
    plain = false;
  }
  return plain ? std::string(name) : quoted + "\"";
}

Result<PatchResult> write_patch(const LayerView& view, const Change& change, PatchStyle style,
                                const Sink& out) {
  const bool old_blob = is_blob(change.base);
  const bool new_blob = is_blob(change.theirs);
  if (!old_blob && !new_blob) return directory_result(change);

  // One such section makes git refuse the whole patch.
  const bool links =
      change.base.kind == layer::Kind::kSymlink || change.theirs.kind == layer::Kind::kSymlink;
  if (links && !style.for_display && is_dot_gitmodules(os::leaf_of(change.path))) {
    return PatchResult{Written::kNone, "git takes no link of this name", false, 0, 0};
  }

  PatchResult result;
  Side none;
  Side before;
  Side after;
  if (old_blob) {
    if (!change.base.sha256.has_value()) {
      return PatchResult{Written::kNone, "what it was before is not known", false, 0, 0};
    }
    before.state = change.base;
    before.source =
        checked([&](const Sink& sink) { return view.read_base(change.path, change.base, sink); },
                change.base);
    // Asked first: a section that cannot be finished must not be begun.
    const bool readable = before.state->size > kMaxTextBytes
                              ? blob_id(before.state->size, before.source).ok()
                              : load(before).ok();
    if (!readable) {
      return PatchResult{Written::kNone,
                         "its content before the change was too large to keep, and the workspace "
                         "holds something else now",
                         false, 0, 0};
    }
  }
  if (new_blob) {
    after.state = change.theirs;
    after.source = checked([&](const Sink& sink) { return view.read_theirs(change.path, sink); },
                           change.theirs);
  }
  TRY(load(after));
  if (!old_blob) TRY(load(before));
  TRY(load(none));
  // git knows no change of type: it is a deletion and a creation.
  if (old_blob && new_blob && change.base.kind != change.theirs.kind) {
    TRY(Section({change.path, change.path}, before, none, style, out).write(result));
    TRY(Section({change.path, change.path}, none, after, style, out).write(result));
  } else if (old_blob && new_blob && change.base.sha256 == change.theirs.sha256 &&
             git_mode(change.base) == git_mode(change.theirs)) {
    return PatchResult{Written::kNone, "a patch holds no permission bits but the executable one",
                       false, 0, 0};
  } else {
    TRY(Section({change.path, change.path}, before, after, style, out).write(result));
  }
  if (!mode_has_a_form(change.base, change.theirs)) {
    result.written = Written::kPartly;
    result.note = "a patch holds no permission bits but the executable one";
  }
  return result;
}

Result<PatchResult> write_rename(const LayerView& view, const Change& from, const Change& to,
                                 unsigned similarity, PatchStyle style, const Sink& out) {
  if (to.theirs.kind == layer::Kind::kSymlink && !style.for_display &&
      is_dot_gitmodules(os::leaf_of(to.path))) {
    return PatchResult{Written::kNone, "git takes no link of this name", false, 0, 0};
  }
  PatchResult result;
  Side before;
  Side after;
  before.state = from.base;
  before.source = checked(
      [&](const Sink& sink) { return view.read_base(from.path, from.base, sink); }, from.base);
  after.state = to.theirs;
  after.source =
      checked([&](const Sink& sink) { return view.read_theirs(to.path, sink); }, to.theirs);
  if (similarity < 100) {
    TRY(load(before));
    TRY(load(after));
  }
  TRY(Section({from.path, to.path, similarity}, before, after, style, out).write(result));
  if (!mode_has_a_form({}, to.theirs)) {
    result.written = Written::kPartly;
    result.note = "a patch holds no permission bits but the executable one";
  }
  return result;
}

}  // namespace cofferdam::orchestrator::changes
