// RuleIndex: which rules of a list speak of a host, without asking each: deciding against 100,000
// rules costs what it costs against ten. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/policy/egress_rule.h"

namespace cofferdam::policy {

class RuleIndex final {
 public:
  // `number` is the rule's place in its list; numbers come in rising order.
  void add(const HostPattern& pattern, std::uint32_t number);
  // The numbers of the rules whose pattern matches, in the list's order.
  std::vector<std::uint32_t> find(const Host& host) const;
  // Whether a rule spells this very host out.
  bool lists(const Host& host) const;

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const {
      return std::hash<std::string_view>()(text);
    }
  };
  using Map = std::unordered_map<std::string, std::vector<std::uint32_t>, Hash, std::equal_to<>>;
  Map exact_;  // by the host's text
  Map below_;  // by the name that they are below
  std::vector<std::uint32_t> any_;
};

}  // namespace cofferdam::policy
