#include "fsproxy/fuse/arguments.h"

#include <charconv>

namespace cofferdam::fsproxy {
namespace {

Result<int> parse_fd(const std::string& text, const std::string& flag) {
  int fd = -1;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), fd);
  if (fault != std::errc() || end != text.data() + text.size() || fd < 3) {
    return Error(flag + ": " + text + " is no descriptor (3 or more)");
  }
  return fd;
}

}  // namespace

Result<Arguments> parse_arguments(const std::vector<std::string>& args) {
  Arguments out;
  for (std::size_t i = 0; i < args.size(); i += 2) {
    const std::string& flag = args[i];
    if (i + 1 >= args.size()) return Error(flag + ": value is missing");
    const std::string& value = args[i + 1];
    int* fd = nullptr;
    if (flag == "--policy") {
      out.policy_file = value;
      continue;
    }
    if (flag == "--passthrough") {
      if (value != "auto" && value != "off") return Error("--passthrough: auto or off");
      out.passthrough = value == "auto";
      continue;
    }
    if (flag == "--mount") {
      const std::size_t equals = value.rfind('=');
      if (equals == std::string::npos || equals == 0) return Error("--mount: NAME=FD");
      TRY_ASSIGN(const int number, parse_fd(value.substr(equals + 1), flag));
      out.mounts.emplace_back(value.substr(0, equals), number);
      continue;
    }
    if (flag == "--events-fd") fd = &out.events_fd;
    if (flag == "--ready-fd") fd = &out.ready_fd;
    if (flag == "--liveness-fd") fd = &out.liveness_fd;
    if (flag == "--control-fd") fd = &out.control_fd;
    if (fd == nullptr) return Error("unknown flag " + flag);
    TRY_ASSIGN(*fd, parse_fd(value, flag));
  }
  if (out.policy_file.empty()) return Error("--policy is missing");
  if (out.events_fd < 0) return Error("--events-fd is missing");
  if (out.ready_fd < 0) return Error("--ready-fd is missing");
  if (out.liveness_fd < 0) return Error("--liveness-fd is missing");
  if (out.mounts.empty()) return Error("--mount is missing");
  return out;
}

}  // namespace cofferdam::fsproxy
