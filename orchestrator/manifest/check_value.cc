#include "orchestrator/manifest/check_value.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <limits>

#include "common/base/escape.h"
#include "common/base/text_time.h"
#include "common/policy/address.h"
#include "common/policy/egress_rule.h"
#include "common/policy/fs_rules.h"
#include "common/policy/host_name.h"
#include "common/policy/nat64.h"
#include "common/policy/upstream_proxy.h"
#include "orchestrator/manifest/quantity.h"
#include "orchestrator/sandbox_store.h"

namespace cofferdam::orchestrator {
namespace {

bool is_plain_text(std::string_view text) {
  return is_valid_utf8(text) && std::none_of(text.begin(), text.end(), [](char c) {
           return static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
         });
}

bool is_variable_name(std::string_view name) {
  if (name.empty() || name.size() > 255 || (name[0] >= '0' && name[0] <= '9')) return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
}

// Proxy settings of curl's family and of package managers, in any case.
bool is_proxy_variable(std::string_view name) {
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower.ends_with("_proxy") || lower == "proxy" || lower.ends_with("_noproxy");
}

Result<Json> check_enum(std::string_view values, std::string_view text) {
  std::string allowed;
  while (!values.empty()) {
    const std::size_t bar = values.find('|');
    const std::string_view one = values.substr(0, bar);
    values = bar == std::string_view::npos ? std::string_view() : values.substr(bar + 1);
    if (one == text) return Json(text);
    if (one.size() > 2 && one.front() == '(') {
      if (one.substr(1, one.size() - 2) == text) {
        return Error(std::string(text) + ": not in this version");
      }
      continue;
    }
    allowed += (allowed.empty() ? "" : ", ") + std::string(one);
  }
  return Error(std::string(text) + ": not one of: " + allowed);
}

Result<Json> check_path(std::string_view text) {
  if (!is_plain_text(text) || text.empty() || text[0] != '/') {
    return Error("must be an absolute path in valid UTF-8");
  }
  std::string normal = std::filesystem::path(text).lexically_normal().string();
  if (normal.size() > 1 && normal.back() == '/') normal.pop_back();
  if (normal != text) return Error("must be in normal form: " + normal);
  return Json(text);
}

Result<Json> check_server(std::string_view text) {
  if (policy::IpAddress::parse(text)) return Json(text);
  const auto endpoint = policy::parse_endpoint(text);
  if (!endpoint.ok() || endpoint->host.is_name()) return Error("must be ADDRESS or ADDRESS:PORT");
  return Json(text);
}

Result<Json> check_number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value) ||
      value < 0.01 || value > 100'000) {
    return Error("must be a number from 0.01 to 100000");
  }
  return Json(value);
}

template <typename Fault>
Result<Json> text_unless(std::string_view text, const Fault& fault) {
  if (fault) return Error(*fault);
  return Json(text);
}

}  // namespace

std::optional<std::string> variable_fault(std::string_view name, std::string_view value) {
  if (!is_variable_name(name)) return std::string(name) + ": not the name of a variable";
  if (is_proxy_variable(name)) {
    return std::string(name) +
           ": proxy variables are never set inside: every connection ends in the gate anyway";
  }
  if (value.find('\0') != std::string_view::npos) return std::string(name) + ": holds a NUL byte";
  if (!is_valid_utf8(value)) return std::string(name) + ": its value is not valid UTF-8";
  if (value.size() > 64 * 1024) return std::string(name) + ": its value is larger than 64 KiB";
  return std::nullopt;
}

std::optional<std::string> glob_fault(std::string_view pattern) {
  if (!is_plain_text(pattern)) return "a pattern must be valid UTF-8 without control characters";
  const auto rules = policy::FsRules::parse(
      Json::array({{{"id", "pattern"}, {"action", "hide"}, {"pattern", pattern}}}));
  if (rules.ok()) return std::nullopt;
  return rules.error().message();
}

std::optional<std::string> include_fault(std::string_view path) {
  if (auto fault = glob_fault(path)) return fault;
  if (path.starts_with("**") || path.find("/**") != std::string_view::npos) {
    return "a directory stands for everything below it; write it without **";
  }
  while (path.ends_with('/')) path.remove_suffix(1);
  const std::size_t last = path.rfind('/');
  constexpr std::string_view kWild = "*?[\\";
  if (last != std::string_view::npos &&
      path.substr(0, last).find_first_of(kWild) != std::string_view::npos) {
    return "wildcards may only stand in the last part of the path";
  }
  if (path.empty() || path.starts_with("./") || path == ".") {
    return "must be a path below the workspace: src/lib, docs/*.md";
  }
  return std::nullopt;
}

std::optional<std::string> rule_fault(std::string_view rule) {
  const auto parsed = policy::parse_rule(rule);
  if (parsed.ok()) return std::nullopt;
  return parsed.error().message();
}

std::optional<std::string> deny_rule_fault(std::string_view rule) {
  const auto parsed = policy::parse_deny_rule(rule);
  if (parsed.ok()) return std::nullopt;
  return parsed.error().message();
}

Result<Json> check_value(const KeySpec& key, std::string_view text) {
  constexpr std::uint64_t kMaxCount = 1'000'000'000'000;
  switch (key.shape) {
    case Shape::kEnum: {
      auto value = check_enum(key.values, text);
      if (value.ok() && key.path == "version") return Json(1);
      return value;
    }
    case Shape::kEnumList:
      return check_enum(key.values, text);
    case Shape::kName:
      if (!is_sandbox_name(text)) return Error("must match [a-z0-9][a-z0-9_.-]{0,62}");
      return Json(text);
    case Shape::kTime: {
      const auto time = parse_rfc3339(text);
      if (!time) return Error("must be a time in UTC: 2027-01-31T12:00:00Z");
      return Json(to_rfc3339(*time));
    }
    case Shape::kLabel:
      if (text.empty() || text.size() > 128 || !is_plain_text(text)) {
        return Error("must be text of at most 128 bytes without control characters");
      }
      return Json(text);
    case Shape::kWordList:
    case Shape::kString:
      if (text.empty() || !is_plain_text(text)) {
        return Error("must be text without control characters");
      }
      return Json(text);
    case Shape::kPath:
    case Shape::kPathList:
      return check_path(text);
    case Shape::kGlobList:
      return text_unless(text, glob_fault(text));
    case Shape::kRuleList:
    case Shape::kRule:
      return text_unless(text, rule_fault(text));
    case Shape::kDenyList:
      return text_unless(text, deny_rule_fault(text));
    case Shape::kAddressList:
      if (!policy::Cidr::parse(text).ok()) return Error("must be an IP address or a range");
      return Json(text);
    case Shape::kServerList:
      return check_server(text);
    case Shape::kNat64List:
      if (auto prefix = policy::Nat64Prefix::parse(text); !prefix.ok()) return prefix.error();
      return Json(text);
    case Shape::kProxyUrl:
      if (auto proxy = policy::parse_upstream_proxy(text); !proxy.ok()) return proxy.error();
      return Json(text);
    case Shape::kIncludeList:
      return text_unless(text, include_fault(text));
    case Shape::kVariableName:
    case Shape::kVariableList:
      return text_unless(text, variable_fault(text, ""));
    case Shape::kSize:
      if (const auto size = parse_size(text); size && *size > 0) return Json(*size);
      return Error("must be a size: 4096, 64KiB, 512MiB, 2GiB");
    case Shape::kDuration:
      if (const auto duration = parse_duration(text)) return Json(duration->count());
      return Error("must be a duration: 1500ms, 90s, 10m, 2h, 7d");
    case Shape::kCount:
      if (const auto count = parse_count(text, kMaxCount); count && *count > 0) return Json(*count);
      return Error("must be a whole number above 0");
    case Shape::kNumber:
      return check_number(text);
    case Shape::kBool:
      if (text == "true" || text == "false") return Json(text == "true");
      return Error("must be true or false");
    case Shape::kMap:
    case Shape::kMapList:
    case Shape::kVariableMap:
    case Shape::kLater:
      break;
  }
  return Error("cannot be a single value");
}

}  // namespace cofferdam::orchestrator
