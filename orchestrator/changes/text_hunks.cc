#include "orchestrator/changes/text_hunks.h"

#include <git2.h>

#include <optional>
#include <string>

#include "common/base/escape.h"

namespace cofferdam::orchestrator::changes {
namespace {

class Library final {
 public:
  Library() { git_libgit2_init(); }
  ~Library() { git_libgit2_shutdown(); }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
};

struct Writing {
  const Sink& out;
  bool escaped = false;
  HunkCount count;
  std::optional<Error> error;

  int emit(std::string_view prefix, std::string_view content) {
    std::string text(prefix);
    text += escaped ? escape_for_terminal(content, true) : std::string(content);
    if (Status s = out(text); !s.ok()) {
      error = s.error();
      return -1;
    }
    return 0;
  }
};

int on_hunk(const git_diff_delta* /*delta*/, const git_diff_hunk* hunk, void* payload) {
  return static_cast<Writing*>(payload)->emit("", {hunk->header, hunk->header_len});
}

int on_line(const git_diff_delta* /*delta*/, const git_diff_hunk* /*hunk*/,
            const git_diff_line* line, void* payload) {
  auto& writing = *static_cast<Writing*>(payload);
  std::string_view content(line->content, line->content_len);
  switch (line->origin) {
    case GIT_DIFF_LINE_ADDITION:
      ++writing.count.added;
      return writing.emit("+", content);
    case GIT_DIFF_LINE_DELETION:
      ++writing.count.removed;
      return writing.emit("-", content);
    case GIT_DIFF_LINE_CONTEXT:
      return writing.emit(" ", content);
    case GIT_DIFF_LINE_CONTEXT_EOFNL:
    case GIT_DIFF_LINE_ADD_EOFNL:
    case GIT_DIFF_LINE_DEL_EOFNL:
      return writing.emit("\n\\ No newline at end of file\n", "");
    default:
      return 0;
  }
}

}  // namespace

bool looks_binary(std::string_view bytes) {
  return bytes.substr(0, 8000).find('\0') != std::string_view::npos;
}

Result<HunkCount> write_text_hunks(std::string_view before, std::string_view after, bool escaped,
                                   const Sink& out) {
  const Library library;
  git_diff_options options;
  if (git_diff_options_init(&options, GIT_DIFF_OPTIONS_VERSION) != 0) {
    return Error("diff: libgit2 does not know its own options");
  }
  options.flags = GIT_DIFF_FORCE_TEXT;
  options.context_lines = 3;
  Writing writing{out, escaped, {}, std::nullopt};
  const char* old_bytes = before.empty() ? "" : before.data();
  const char* new_bytes = after.empty() ? "" : after.data();
  const int code = git_diff_buffers(old_bytes, before.size(), "a", new_bytes, after.size(), "b",
                                    &options, nullptr, nullptr, on_hunk, on_line, &writing);
  if (writing.error.has_value()) return *writing.error;
  if (code != 0) {
    const git_error* error = git_error_last();
    return Error(std::string("diff: ") + (error != nullptr ? error->message : "failed"));
  }
  return writing.count;
}

}  // namespace cofferdam::orchestrator::changes
