#include "fsproxy/fuse/policy_file.h"

#include <algorithm>
#include <initializer_list>
#include <set>

namespace cofferdam::fsproxy {
namespace {

// Reads members of one object; the first fault stays.
class Reader final {
 public:
  Reader(const Json& json, std::string where, std::initializer_list<const char*> keys)
      : json_(json), where_(std::move(where)) {
    if (!json.is_object()) {
      fail("must be an object");
      return;
    }
    for (const auto& item : json.items()) {
      const std::string& found = item.key();
      if (std::none_of(keys.begin(), keys.end(), [&](const char* k) { return found == k; })) {
        fail("unknown key " + found);
      }
    }
    for (const char* key : keys) {
      if (!json.contains(key)) fail(std::string(key) + " is missing");
    }
  }

  std::string text(const char* key) {
    if (!ok() || !json_[key].is_string()) return fail(std::string(key) + " must be a string"), "";
    return json_[key].get<std::string>();
  }
  std::optional<std::string> path_or_null(const char* key) {
    if (!ok() || json_[key].is_null()) return std::nullopt;
    std::string path = text(key);
    if (!path.starts_with('/')) fail(std::string(key) + " must be an absolute path or null");
    return path;
  }
  bool flag(const char* key) {
    if (!ok() || !json_[key].is_boolean()) return fail(std::string(key) + " must be true or false");
    return json_[key].get<bool>();
  }
  std::uint64_t number(const char* key) { return ok() ? number_of(json_[key], key) : 0; }
  std::uint32_t id(const char* key) { return ok() ? id_of(json_[key], key) : 0; }
  std::vector<std::uint32_t> ids(const char* key) {
    std::vector<std::uint32_t> out;
    if (!ok() || !json_[key].is_array() || json_[key].empty()) {
      fail(std::string(key) + " must be a list of numbers");
      return out;
    }
    for (const Json& value : json_[key]) {
      out.push_back(id_of(value, key));
    }
    return out;
  }
  const Json& member(const char* key) const { return json_[key]; }
  bool ok() const { return fault_.empty(); }
  Status status() const {
    if (ok()) return {};
    return Error(where_ + ": " + fault_);
  }

 private:
  bool fail(std::string what) {
    if (fault_.empty()) fault_ = std::move(what);
    return false;
  }
  std::uint64_t number_of(const Json& value, const char* key) {
    if (value.is_number_unsigned()) return value.get<std::uint64_t>();
    fail(std::string(key) + " must be a number, 0 or more");
    return 0;
  }
  std::uint32_t id_of(const Json& value, const char* key) {
    const std::uint64_t number = number_of(value, key);
    // 2^32 - 1 means "no change" to chown(2).
    if (number >= 0xFFFFFFFFU) fail(std::string(key) + " is no id");
    return static_cast<std::uint32_t>(number);
  }
  const Json& json_;
  std::string where_;
  std::string fault_;
};

Result<MountPolicy> parse_mount(const Json& json, const std::string& where,
                                const NamesOf& names_of) {
  Reader in(json, where,
            {"name", "path", "lower", "layer", "writable", "record", "xattr", "rules"});
  TRY(in.status());
  MountPolicy mount;
  mount.name = in.text("name");
  mount.path = in.text("path");
  mount.lower = in.path_or_null("lower");
  mount.layer = in.path_or_null("layer");
  mount.writable = in.flag("writable");
  mount.record = in.flag("record");
  mount.extended = in.flag("xattr");
  TRY(in.status());
  if (mount.name.empty()) return Error(where + ": name is empty");
  if (mount.writable && !mount.layer) return Error(where + ": writable needs a layer");
  if (!mount.lower && !mount.layer) return Error(where + ": needs lower or a layer");
  policy::FsRules::Names names = policy::FsRules::Names::kExact;
  if (mount.lower && names_of) names = names_of(*mount.lower);
  auto rules = policy::FsRules::parse(in.member("rules"), names);
  if (!rules.ok()) return rules.error().context(where);
  mount.rules = std::move(rules).value();
  return mount;
}

}  // namespace

Result<FsPolicy> parse_fs_policy(std::string_view text, const NamesOf& names_of) {
  TRY_ASSIGN(const Json json, parse_json(text));
  Reader in(json, "policy",
            {"version", "sandbox", "operation", "manifest", "owner", "quota", "mounts"});
  TRY(in.status());
  FsPolicy policy;
  const std::uint64_t version = in.number("version");
  policy.sandbox = in.text("sandbox");
  policy.operation = in.text("operation");
  policy.manifest = in.text("manifest");
  TRY(in.status());
  if (version != 1) return Error("policy: version " + std::to_string(version) + " is not known");

  Reader owner(in.member("owner"), "policy.owner",
               {"uids", "gids", "shown_uid", "shown_gid", "other_uid", "other_gid"});
  TRY(owner.status());
  policy.owner.uids = owner.ids("uids");
  policy.owner.gids = owner.ids("gids");
  policy.owner.shown_uid = owner.id("shown_uid");
  policy.owner.shown_gid = owner.id("shown_gid");
  policy.owner.other_uid = owner.id("other_uid");
  policy.owner.other_gid = owner.id("other_gid");
  TRY(owner.status());

  Reader quota(in.member("quota"), "policy.quota", {"bytes", "entries"});
  TRY(quota.status());
  policy.quota_bytes = quota.number("bytes");
  policy.quota_entries = quota.number("entries");
  TRY(quota.status());

  const Json& mounts = in.member("mounts");
  if (!mounts.is_array() || mounts.empty()) return Error("policy: mounts must be a list");
  std::set<std::string> names;
  for (std::size_t i = 0; i < mounts.size(); ++i) {
    const std::string where = "policy.mounts[" + std::to_string(i) + "]";
    TRY_ASSIGN(MountPolicy mount, parse_mount(mounts[i], where, names_of));
    if (!names.insert(mount.name).second) return Error(where + ": name is used twice");
    policy.mounts.push_back(std::move(mount));
  }
  return policy;
}

}  // namespace cofferdam::fsproxy
