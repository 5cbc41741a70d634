#include "orchestrator/engine/seccomp_policy.h"

#include <seccomp.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <set>
#include <type_traits>

#include "common/base/json_text.h"
#include "common/os/memory_file.h"
#include "orchestrator/engine/embedded_seccomp.h"

namespace cofferdam::orchestrator {
namespace {

using Filter = std::unique_ptr<std::remove_pointer_t<scmp_filter_ctx>, void (*)(scmp_filter_ctx)>;

bool contains(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::uint64_t number_of(const Json& text) {
  return std::strtoull(text.get<std::string>().c_str(), nullptr, 16);
}

SeccompRule parse_rule(const Json& entry) {
  SeccompRule rule;
  rule.syscall = entry.at("syscall").get<std::string>();
  for (const Json& part : entry.at("args")) {
    rule.arguments.push_back({part.at("index").get<unsigned int>(), number_of(part.at("mask")),
                              number_of(part.at("value"))});
  }
  if (entry.contains("errno")) {
    if (entry["errno"] != "EPERM") throw std::invalid_argument("errno: only EPERM is known");
    rule.error_number = EPERM;
  }
  return rule;
}

std::vector<SeccompRule> parse_rules(const Json& entries) {
  std::vector<SeccompRule> rules;
  for (const Json& entry : entries) rules.push_back(parse_rule(entry));
  return rules;
}

// Negative numbers are libseccomp's for calls that this architecture does not have.
std::optional<int> resolve(const std::string& name) {
  const int number = ::seccomp_syscall_resolve_name(name.c_str());
  if (number < 0) return std::nullopt;
  return number;
}

Result<Filter> make_filter(std::uint32_t default_action) {
  Filter filter(::seccomp_init(default_action), ::seccomp_release);
  if (!filter) return Error("seccomp_init failed");
  int done = ::seccomp_attr_set(filter.get(), SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ERRNO(ENOSYS));
  if (done == 0) done = ::seccomp_attr_set(filter.get(), SCMP_FLTATR_CTL_OPTIMIZE, 2);
  if (done != 0) return Error::from_errno("seccomp_attr_set", -done);
  return filter;
}

Status add_rule(const Filter& filter, std::uint32_t action, const std::string& name,
                const std::vector<SeccompArgument>& arguments) {
  const auto number = resolve(name);
  if (!number) return {};
  std::vector<scmp_arg_cmp> comparisons;
  for (const SeccompArgument& argument : arguments) {
    comparisons.push_back({argument.index, SCMP_CMP_MASKED_EQ, argument.mask, argument.value});
  }
  const int done =
      ::seccomp_rule_add_array(filter.get(), action, *number,
                               static_cast<unsigned int>(comparisons.size()), comparisons.data());
  if (done != 0) return Error::from_errno("seccomp rule for " + name, -done);
  return {};
}

Result<os::UniqueFd> export_program(const Filter& filter) {
  TRY_ASSIGN(os::UniqueFd fd, os::make_empty_memory_file("seccomp"));
  const int done = ::seccomp_export_bpf(filter.get(), fd.get());
  if (done != 0) return Error::from_errno("seccomp_export_bpf", -done);
  TRY(os::rewind_file(fd.get()));
  return fd;
}

}  // namespace

Result<SeccompPolicy> SeccompPolicy::parse(std::string_view json) {
  TRY_ASSIGN(const Json body, parse_json(json));
  SeccompPolicy policy;
  try {
    if (body.at("version") != 1) return Error("seccomp policy: version must be 1");
    static const std::set<std::string> kKeys{"version",     "about",       "allow",  "allow_when",
                                             "unavailable", "refuse_when", "refuse", "newer"};
    for (const auto& [key, value] : body.items()) {
      if (!kKeys.contains(key)) return Error("seccomp policy: unknown key " + key);
    }
    body.at("allow").get_to(policy.allow_);
    body.at("unavailable").get_to(policy.unavailable_);
    body.at("refuse").get_to(policy.refuse_);
    body.at("newer").get_to(policy.newer_);
    policy.allow_when_ = parse_rules(body.at("allow_when"));
    policy.refuse_when_ = parse_rules(body.at("refuse_when"));
  } catch (const std::exception& fault) {
    return Error(std::string("seccomp policy: ") + fault.what());
  }
  std::set<std::string> seen;
  for (const auto* names : {&policy.allow_, &policy.unavailable_, &policy.refuse_}) {
    for (const std::string& name : *names) {
      if (!seen.insert(name).second) return Error("seccomp policy: " + name + " is named twice");
      if (::seccomp_syscall_resolve_name(name.c_str()) == __NR_SCMP_ERROR &&
          !contains(policy.newer_, name)) {
        return Error("seccomp policy: unknown system call " + name);
      }
    }
  }
  for (const SeccompRule& rule : policy.allow_when_) {
    if (contains(policy.allow_, rule.syscall)) {
      return Error("seccomp policy: " + rule.syscall + " is allowed without its condition");
    }
  }
  return policy;
}

Result<SeccompPolicy> SeccompPolicy::built_in(std::string_view profile) {
  TRY_ASSIGN(SeccompPolicy policy, parse(kSeccompPolicyJson));
  if (profile == "default") return policy;
  if (profile != "strict") return Error("no such seccomp profile: " + std::string(profile));
  TRY(policy.refuse_further(kStrictSeccompJson).context("strict"));
  return policy;
}

Status SeccompPolicy::refuse_further(std::string_view json) {
  TRY_ASSIGN(const Json body, parse_json(json));
  std::vector<std::string> names;
  try {
    if (body.at("version") != 1) return Error("seccomp policy: version must be 1");
    for (const auto& [key, value] : body.items()) {
      if (key != "version" && key != "about" && key != "refuse") {
        return Error("seccomp policy: unknown key " + key);
      }
    }
    body.at("refuse").get_to(names);
  } catch (const Json::exception& fault) {
    return Error(std::string("seccomp policy: ") + fault.what());
  }
  for (std::string& name : names) {
    const auto conditions =
        std::erase_if(allow_when_, [&](const SeccompRule& rule) { return rule.syscall == name; });
    if (std::erase(allow_, name) == 0 && conditions == 0) {
      return Error("seccomp policy: " + name + " is not allowed anyway");
    }
    if (!contains(refuse_, name)) refuse_.push_back(std::move(name));
  }
  return {};
}

Result<SeccompPrograms> SeccompPolicy::compile() const {
  TRY_ASSIGN(const Filter refusals, make_filter(SCMP_ACT_ALLOW));
  for (const SeccompRule& rule : refuse_when_) {
    TRY(add_rule(refusals, SCMP_ACT_ERRNO(static_cast<std::uint32_t>(rule.error_number)),
                 rule.syscall, rule.arguments));
  }
  TRY_ASSIGN(const Filter allowlist, make_filter(SCMP_ACT_NOTIFY));
  for (const std::string& name : allow_) TRY(add_rule(allowlist, SCMP_ACT_ALLOW, name, {}));
  for (const SeccompRule& rule : allow_when_) {
    TRY(add_rule(allowlist, SCMP_ACT_ALLOW, rule.syscall, rule.arguments));
  }
  for (const std::string& name : unavailable_) {
    TRY(add_rule(allowlist, SCMP_ACT_ERRNO(ENOSYS), name, {}));
  }
  SeccompPrograms programs;
  TRY_ASSIGN(programs.refusals, export_program(refusals));
  TRY_ASSIGN(programs.allowlist, export_program(allowlist));
  return programs;
}

int SeccompPolicy::answer(std::string_view syscall) const {
  return contains(refuse_, syscall) ? EPERM : ENOSYS;
}

std::string syscall_name(int number) {
  char* name = ::seccomp_syscall_resolve_num_arch(SCMP_ARCH_NATIVE, number);
  if (name == nullptr) return std::to_string(number);
  std::string text(name);
  ::free(name);
  return text;
}

}  // namespace cofferdam::orchestrator
