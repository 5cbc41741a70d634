#include "orchestrator/changes/text_hunks.h"

#include <git2.h>

#include <optional>
#include <string>

#include "common/base/escape.h"
#include "orchestrator/changes/git_library.h"

namespace cofferdam::orchestrator::changes {
namespace {

struct Writing {
  const Sink& out;
  HunkStyle style;
  HunkCount count;
  std::optional<Error> error;

  int emit(std::string_view prefix, std::string_view content, std::string_view code = {}) {
    std::string text(prefix);
    text += style.escaped ? escape_for_terminal(content, true) : std::string(content);
    if (Status s = out(coloured(style.colour && !code.empty(), code, std::move(text))); !s.ok()) {
      error = s.error();
      return -1;
    }
    return 0;
  }
};

int on_hunk(const git_diff_delta* /*delta*/, const git_diff_hunk* hunk, void* payload) {
  return static_cast<Writing*>(payload)->emit("", {hunk->header, hunk->header_len}, "36");
}

int on_line(const git_diff_delta* /*delta*/, const git_diff_hunk* /*hunk*/,
            const git_diff_line* line, void* payload) {
  auto& writing = *static_cast<Writing*>(payload);
  std::string_view content(line->content, line->content_len);
  switch (line->origin) {
    case GIT_DIFF_LINE_ADDITION:
      ++writing.count.added;
      return writing.emit("+", content, "32");
    case GIT_DIFF_LINE_DELETION:
      ++writing.count.removed;
      return writing.emit("-", content, "31");
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

std::string coloured(bool colour, std::string_view code, std::string line) {
  if (!colour) return line;
  const bool ends = line.ends_with('\n');
  if (ends) line.pop_back();
  return "\x1b[" + std::string(code) + "m" + line + "\x1b[m" + (ends ? "\n" : "");
}

bool looks_binary(std::string_view bytes) {
  return bytes.substr(0, 8000).find('\0') != std::string_view::npos;
}

Result<HunkCount> write_text_hunks(std::string_view before, std::string_view after, HunkStyle style,
                                   const Sink& out) {
  use_git_library();
  git_diff_options options;
  if (git_diff_options_init(&options, GIT_DIFF_OPTIONS_VERSION) != 0) {
    return Error("diff: libgit2 does not know its own options");
  }
  options.flags = GIT_DIFF_FORCE_TEXT;
  options.context_lines = 3;
  Writing writing{out, style, {}, std::nullopt};
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
