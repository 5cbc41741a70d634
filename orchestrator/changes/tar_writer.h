// TarWriter: a pax archive (POSIX.1-2017, pax) whose bytes depend on its members alone: no times,
// no owners, modes of two kinds. Member names are safe to unpack anywhere; what is not is refused.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/result.h"
#include "orchestrator/changes/binary_hunk.h"

namespace cofferdam::orchestrator::changes {

class TarWriter final {
 public:
  explicit TarWriter(Sink out) : out_(std::move(out)) {}

  // Names are relative, without ".", ".." or empty components. Content must be `size` bytes.
  Status add_file(const std::string& name, bool executable, std::uint64_t size,
                  const ContentSource& content);
  Status add_directory(const std::string& name);
  // A link whose text leads out of the archive is refused.
  Status add_link(const std::string& name, const std::string& text);
  Status finish();

 private:
  Status header(char type, const std::string& name, const std::string& link, std::uint64_t size,
                unsigned mode);
  Status block(char type, const std::string& name, const std::string& link, std::uint64_t size,
               unsigned mode);
  Status pad(std::uint64_t size);

  Sink out_;
};

}  // namespace cofferdam::orchestrator::changes
