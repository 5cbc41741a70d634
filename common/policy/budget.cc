#include "common/policy/budget.h"

#include <array>
#include <string>

namespace cofferdam::policy {
namespace {

struct Key {
  const char* name;
  std::optional<std::uint64_t> Budget::*field;
  std::uint64_t most;
};

// Counts have a most that their bookkeeping is made for; bytes have none that anybody reaches.
constexpr std::array kKeys = {
    Key{"bytes_up", &Budget::bytes_up, std::uint64_t{1} << 62U},
    Key{"bytes_down", &Budget::bytes_down, std::uint64_t{1} << 62U},
    Key{"connections", &Budget::connections, 1'000'000},
    Key{"connections_per_second", &Budget::connections_per_second, 1'000'000},
    Key{"names_per_minute", &Budget::names_per_minute, 100'000},
};

const Key* find_key(std::string_view name) {
  for (const Key& key : kKeys) {
    if (name == key.name) return &key;
  }
  return nullptr;
}

}  // namespace

Result<Budget> budget_from_json(const Json& json, std::string_view where) {
  const std::string prefix = std::string(where) + ": budgets: ";
  if (!json.is_object()) return Error(prefix + "not an object");
  Budget budget;
  for (const auto& [name, value] : json.items()) {
    const Key* key = find_key(name);
    if (key == nullptr) return Error(prefix + "unknown key '" + name + "'");
    const bool positive = value.is_number_unsigned() ? value.get<std::uint64_t>() > 0
                                                     : value.is_number_integer() && value > 0;
    if (!positive || value.get<std::uint64_t>() > key->most) {
      return Error(prefix + name + " is a whole number from 1 to " + std::to_string(key->most));
    }
    budget.*(key->field) = value.get<std::uint64_t>();
  }
  return budget;
}

Json to_json(const Budget& budget) {
  Json json = Json::object();
  for (const Key& key : kKeys) {
    if (budget.*(key.field)) json[key.name] = *(budget.*(key.field));
  }
  return json;
}

}  // namespace cofferdam::policy
