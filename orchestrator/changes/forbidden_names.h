// Names that must not reach a repository, whatever the file system below it makes of them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace cofferdam::orchestrator::changes {

// Whether some file system or git takes `component` for ".git": case, HFS+ ignorable code points,
// NTFS short name (git~1), trailing dots and spaces, alternate data streams
// (.git::$INDEX_ALLOCATION), and a backslash as a separator. git's verify_path (read-cache.c,
// path.c, utf8.c) is the reference.
bool is_dot_git(std::string_view component);

// The path down to and including its first component that is_dot_git, or nothing.
std::optional<std::string_view> dot_git_prefix(std::string_view path);

// `name` equals `wanted` (ASCII lower case) when case, HFS+ ignorables, trailing dots and spaces
// and a stream suffix are disregarded.
bool folds_to(std::string_view name, std::string_view wanted);

// The path with each component as folds_to() compares it.
std::string folded_path(std::string_view path);

// Whether git refuses a symbolic link of this name: ".gitmodules", however it is spelled, and its
// NTFS short names (verify_path in read-cache.c, is_ntfs_dot_generic in path.c).
bool is_dot_gitmodules(std::string_view component);

}  // namespace cofferdam::orchestrator::changes
