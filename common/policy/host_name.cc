#include "common/policy/host_name.h"

#include <algorithm>
#include <charconv>

namespace cofferdam::policy {
namespace {

constexpr std::size_t kMaxName = 253;
constexpr std::size_t kMaxLabel = 63;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_hex(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'f');
}

// WHATWG URL, "ends-in-a-number checker", on a lower-case last label.
bool is_number_label(std::string_view label) {
  if (std::all_of(label.begin(), label.end(), is_digit)) return true;
  return label.starts_with("0x") && std::all_of(label.begin() + 2, label.end(), is_hex);
}

char fold(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

bool is_name_char(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || c == '-' || c == '_' || c == '.';
}

Error invalid(const char* why) {
  return Error(std::string("host name: ") + why);
}

// Folds, and checks everything but the last label's being a number.
Result<std::string> canonical_labels(std::string_view text) {
  if (text.empty()) return invalid("empty");
  if (text.size() > kMaxName + 1) return invalid("longer than 253 bytes");
  std::string name(text);
  std::transform(name.begin(), name.end(), name.begin(), fold);
  if (!std::all_of(name.begin(), name.end(), is_name_char)) {
    return invalid("a character that no host name has");
  }
  if (name.back() == '.') name.pop_back();
  if (name.empty()) return invalid("empty");
  if (name.size() > kMaxName) return invalid("longer than 253 bytes");
  std::size_t label = 0;
  for (const char c : name) {
    if (c != '.') {
      if (++label > kMaxLabel) return invalid("a label longer than 63 bytes");
      continue;
    }
    if (label == 0) return invalid("an empty label");
    label = 0;
  }
  if (label == 0) return invalid("an empty label");
  return name;
}

std::string_view last_label(std::string_view name) {
  const auto dot = name.rfind('.');
  return dot == std::string_view::npos ? name : name.substr(dot + 1);
}

}  // namespace

Result<HostName> HostName::parse(std::string_view text) {
  TRY_ASSIGN(std::string name, canonical_labels(text));
  if (is_number_label(last_label(name))) return invalid("ends in a number");
  return HostName(std::move(name));
}

std::vector<std::string_view> HostName::labels() const {
  std::vector<std::string_view> labels;
  std::string_view rest = text_;
  while (true) {
    const auto dot = rest.find('.');
    labels.push_back(rest.substr(0, dot));
    if (dot == std::string_view::npos) return labels;
    rest.remove_prefix(dot + 1);
  }
}

std::size_t HostName::label_count() const {
  return static_cast<std::size_t>(std::count(text_.begin(), text_.end(), '.')) + 1;
}

bool HostName::is_below(const HostName& parent) const {
  if (text_.size() < parent.text_.size() + 2) return false;
  return text_.ends_with(parent.text_) && text_[text_.size() - parent.text_.size() - 1] == '.';
}

Result<Host> Host::parse(std::string_view text) {
  if (text.starts_with('[')) {
    if (text.size() < 4 || text.back() != ']') return invalid("an open bracket");
    const std::string_view inner = text.substr(1, text.size() - 2);
    const bool has_colon = inner.find(':') != std::string_view::npos;
    const auto address = has_colon ? IpAddress::parse(inner) : std::nullopt;
    if (!address) return invalid("brackets around what is not an IPv6 address");
    return Host(*address);
  }
  if (text.find(':') != std::string_view::npos) return invalid("an IPv6 address without brackets");
  TRY_ASSIGN(const std::string name, canonical_labels(text));
  if (is_number_label(last_label(name))) {
    const auto address = IpAddress::parse(text);
    if (!address) return invalid("ends in a number and is not a dotted quad");
    return Host(*address);
  }
  TRY_ASSIGN(HostName host, HostName::parse(text));
  return Host(std::move(host));
}

Result<std::uint16_t> parse_port(std::string_view text) {
  if (text.empty() || text.size() > 5 || text.front() == '0' ||
      !std::all_of(text.begin(), text.end(), is_digit)) {
    return Error("port: not a number from 1 to 65535");
  }
  unsigned value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  if (value == 0 || value > 65535) return Error("port: not a number from 1 to 65535");
  return static_cast<std::uint16_t>(value);
}

Result<Endpoint> parse_endpoint(std::string_view text, std::uint16_t default_port) {
  const auto bracket = text.rfind(']');
  const auto colon = text.rfind(':');
  const bool has_port =
      colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket);
  if (!has_port) {
    if (default_port == 0) return Error("no port");
    TRY_ASSIGN(Host host, Host::parse(text));
    return Endpoint{std::move(host), default_port};
  }
  TRY_ASSIGN(Host host, Host::parse(text.substr(0, colon)));
  TRY_ASSIGN(const std::uint16_t port, parse_port(text.substr(colon + 1)));
  return Endpoint{std::move(host), port};
}

}  // namespace cofferdam::policy
