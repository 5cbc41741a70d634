#include "orchestrator/changes/three_way.h"

#include <git2.h>

#include "orchestrator/changes/git_library.h"
#include "orchestrator/changes/patch.h"
#include "orchestrator/changes/text_hunks.h"

namespace cofferdam::orchestrator::changes {
namespace {

class FileResult final {
 public:
  FileResult() = default;
  ~FileResult() { git_merge_file_result_free(&value); }
  FileResult(const FileResult&) = delete;
  FileResult& operator=(const FileResult&) = delete;
  git_merge_file_result value{};
};

// The whole content, which must be text and what `state` says.
Result<std::string> text_of(const ObjectState& state, const ContentSource& source,
                            const char* whose) {
  const std::string who = whose;
  if (state.kind != layer::Kind::kFile) return Error(who + " is no file");
  if (state.size > kMaxTextBytes) return Error(who + " is too large to be merged as text");
  std::string bytes;
  TRY(source([&](std::string_view piece) -> Status {
        if (bytes.size() + piece.size() > kMaxTextBytes) return Error("it grows");
        bytes += piece;
        return {};
      }).context(who));
  if (!state.sha256.has_value() || sha256(bytes) != *state.sha256) {
    return Error(who + " changed while it was read");
  }
  if (looks_binary(bytes)) return Error(who + " is binary");
  return bytes;
}

git_merge_file_input input_of(const std::string& bytes) {
  git_merge_file_input input = GIT_MERGE_FILE_INPUT_INIT;
  input.ptr = bytes.data();
  input.size = bytes.size();
  return input;
}

}  // namespace

bool has_text_base(const Change& change) {
  return change.base_known && change.base.kind == layer::Kind::kFile;
}

Result<TextMerge> merge_text(const LayerView& view, const Change& change, const ObjectState& ours) {
  const bool with_base = has_text_base(change);
  std::string base_bytes;
  if (with_base) {
    TRY_ASSIGN(base_bytes,
               text_of(
                   change.base,
                   [&](const Sink& sink) { return view.read_base(change.path, change.base, sink); },
                   "what the sandbox started from"));
  }
  TRY_ASSIGN(
      const std::string theirs_bytes,
      text_of(
          change.theirs, [&](const Sink& sink) { return view.read_theirs(change.path, sink); },
          "the sandbox's version"));
  TRY_ASSIGN(const std::string ours_bytes,
             text_of(
                 ours, [&](const Sink& sink) { return view.read_ours(change.path, sink); },
                 "the workspace's version"));
  use_git_library();
  git_merge_file_options options;
  if (git_merge_file_options_init(&options, GIT_MERGE_FILE_OPTIONS_VERSION) != 0) {
    return Error("merge: libgit2 does not know its own options");
  }
  options.ancestor_label = "base";
  options.our_label = "workspace";
  options.their_label = "sandbox";
  options.flags = with_base ? GIT_MERGE_FILE_STYLE_DIFF3 : GIT_MERGE_FILE_STYLE_MERGE;
  const git_merge_file_input base = input_of(base_bytes);
  const git_merge_file_input mine = input_of(ours_bytes);
  const git_merge_file_input yours = input_of(theirs_bytes);
  FileResult merged;
  if (git_merge_file(&merged.value, with_base ? &base : nullptr, &mine, &yours, &options) != 0) {
    const git_error* error = git_error_last();
    return Error(std::string("merge: ") + (error != nullptr ? error->message : "failed"));
  }
  TextMerge result;
  result.clean = merged.value.automergeable != 0;
  if (merged.value.len > 0) result.bytes.assign(merged.value.ptr, merged.value.len);
  return result;
}

}  // namespace cofferdam::orchestrator::changes
