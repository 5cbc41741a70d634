#include "orchestrator/engine/docker/pause_image.h"

#include "common/base/sha256.h"
#include "common/os/files.h"
#include "orchestrator/engine/docker/tar_archive.h"

namespace cofferdam::orchestrator::docker {
namespace {

constexpr const char* kRepository = "cofferdam-init";
constexpr const char* kDigestLabel = "dev.cofferdam.init";
constexpr std::size_t kTagDigits = 32;

}  // namespace

Result<PauseImage> find_or_import_pause_image(const DockerClient& client,
                                              const std::filesystem::path& program) {
  TRY_ASSIGN(const std::string content, os::read_file(program));
  const std::string digest = to_hex(sha256(content));
  const std::string tag = digest.substr(0, kTagDigits);
  const std::string reference = std::string(kRepository) + ":" + tag;
  auto image = client.inspect_image(reference);
  if (!image.ok() && image.error().error_number() != ENOENT) return image.error();
  const auto fits = [&] {
    const auto label = image->labels.find(kDigestLabel);
    return label != image->labels.end() && label->second == digest;
  };
  if (!image.ok() || !fits()) {
    TRY_ASSIGN(std::string tar, make_tar_of_program("init", content));
    TRY(client.import_image(std::move(tar), kRepository, tag,
                            {std::string("LABEL ") + kDigestLabel + "=" + digest}));
    image = client.inspect_image(reference);
    if (!image.ok()) return image.error();
    if (!fits()) return Error("Docker: the imported image " + reference + " is another one");
  }
  return PauseImage{image->id, digest};
}

}  // namespace cofferdam::orchestrator::docker
