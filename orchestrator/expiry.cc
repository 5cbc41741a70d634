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
  const auto end = parse_rfc3339(expiry);
  if (!end) return std::optional<std::chrono::milliseconds>();
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      *end - std::chrono::system_clock::now());
  if (left.count() <= 0) return Error("its manifest expired at " + expiry);
  return std::optional(left);
}

}  // namespace cofferdam::orchestrator
