// The marks of overlayfs on disk: whiteouts and opaque directories, by (directory, name).
//
// A whiteout is a character device 0:0. An opaque directory carries the xattr
// `trusted.overlay.opaque` = "y" (where the caller may use trusted.*) or `user.overlay.opaque`.
// Names are single components. Nothing here follows a symbolic link. See docs/layer-format.md.
#pragma once

#include <sys/stat.h>

#include <string>

#include "common/base/result.h"

namespace cofferdam::layer {

// Which xattr marks an opaque directory of a layer.
enum class MarkNamespace { kTrusted, kUser };

// The namespace that this process writes: kTrusted with effective uid 0 in the initial user
// namespace (what a mount of overlayfs by root reads), else kUser.
MarkNamespace own_mark_namespace();

// Whether a stat of an upper object is that of a whiteout.
bool is_whiteout(const struct stat& st);

// Whether (dir, name) is a whiteout; a missing name is not.
Result<bool> has_whiteout(int dir_fd, const std::string& name);

// Creates a whiteout at a name that does not exist. EPERM and EOPNOTSUPP mean that this file
// system holds none: the caller writes a `whiteout` row instead.
Status make_whiteout(int dir_fd, const std::string& name);

// Whether the directory open as `dir_fd` (readable, not O_PATH) carries the mark in either
// namespace; one that may not be read counts as absent.
Result<bool> is_opaque(int dir_fd);

Status set_opaque(int dir_fd, MarkNamespace where);

}  // namespace cofferdam::layer
