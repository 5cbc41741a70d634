#include "orchestrator/expiry.h"

#include "common/base/json_text.h"
#include "common/base/text_time.h"
#include "common/os/files.h"

namespace cofferdam::orchestrator {

Result<std::optional<std::chrono::milliseconds>> left_of_manifest(const SandboxRecord& record) {
  TRY_ASSIGN(const std::string text, os::read_file(record.directory / "manifest.json"));
  TRY_ASSIGN(const Json manifest, parse_json(text));
  const bool has_expiry = manifest.is_object() && manifest.contains("expiry");
  const auto* text_of = has_expiry ? manifest["expiry"].get_ptr<const std::string*>() : nullptr;
  const std::string expiry = text_of == nullptr ? "" : *text_of;
  const auto now = std::chrono::system_clock::now();
  std::optional<std::chrono::milliseconds> left;
  if (const auto end = parse_rfc3339(expiry)) {
    left = std::chrono::duration_cast<std::chrono::milliseconds>(*end - now);
    if (left->count() <= 0) return Error("its manifest expired at " + expiry);
  }
  const Json max = manifest.is_object()
                       ? manifest.value("lifetime", Json::object()).value("max_ms", Json())
                       : Json();
  const auto created = parse_rfc3339(record.created);
  if (!max.is_number_integer()) return left;
  if (!created) return Error("when it was made cannot be told, and its manifest bounds its life");
  const auto of_life = std::chrono::duration_cast<std::chrono::milliseconds>(
      *created + std::chrono::milliseconds(max.get<std::int64_t>()) - now);
  if (of_life.count() <= 0) {
    return Error(
        "its lifetime ended; its manifest says lifetime.max. Remedy: merge or export what "
        "it made, and run a new one");
  }
  if (!left || of_life < *left) left = of_life;
  return left;
}

}  // namespace cofferdam::orchestrator
