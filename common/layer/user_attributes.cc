#include "common/layer/user_attributes.h"

#include <sys/xattr.h>

namespace cofferdam::layer {
namespace {

constexpr std::size_t kMaxValue = 65536;  // XATTR_SIZE_MAX of <linux/limits.h>

// All names, each with a zero byte at its end.
Result<std::string> name_list(int fd) {
  std::string text;
  for (;;) {
    const ssize_t size = ::flistxattr(fd, nullptr, 0);
    if (size < 0 && (errno == EOPNOTSUPP || errno == ENODATA)) return std::string();
    if (size < 0) return Error::from_errno("listxattr");
    text.resize(static_cast<std::size_t>(size));
    if (size == 0) return text;
    const ssize_t got = ::flistxattr(fd, text.data(), text.size());
    // It grew meanwhile.
    if (got < 0 && errno == ERANGE) continue;
    if (got < 0) return Error::from_errno("listxattr");
    text.resize(static_cast<std::size_t>(got));
    return text;
  }
}

}  // namespace

bool is_reserved_attribute(std::string_view name) {
  for (const std::string_view mark : {"user.overlay", "user.cofferdam"}) {
    if (name.starts_with(mark) && (name.size() == mark.size() || name[mark.size()] == '.')) {
      return true;
    }
  }
  return false;
}

Result<std::vector<std::string>> user_attributes(int fd) {
  TRY_ASSIGN(const std::string text, name_list(fd));
  std::vector<std::string> out;
  for (std::size_t at = 0; at < text.size();) {
    std::string name(text.c_str() + at);
    at += name.size() + 1;
    if (name.starts_with("user.") && !is_reserved_attribute(name)) out.push_back(std::move(name));
  }
  return out;
}

Result<std::string> attribute_value(int fd, const std::string& name) {
  std::string value(256, '\0');
  for (;;) {
    const ssize_t got = ::fgetxattr(fd, name.c_str(), value.data(), value.size());
    if (got >= 0) {
      value.resize(static_cast<std::size_t>(got));
      return value;
    }
    if (errno != ERANGE || value.size() >= kMaxValue) return Error::from_errno("getxattr");
    value.resize(kMaxValue);
  }
}

}  // namespace cofferdam::layer
