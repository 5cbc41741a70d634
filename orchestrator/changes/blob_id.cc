#include "orchestrator/changes/blob_id.h"

#include <openssl/evp.h>

#include <array>
#include <cstdio>
#include <memory>

namespace cofferdam::orchestrator::changes {

Result<std::string> blob_id(std::uint64_t size, const ContentSource& source) {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(),
                                                                        &EVP_MD_CTX_free);
  if (!context || EVP_DigestInit_ex(context.get(), EVP_sha1(), nullptr) != 1) {
    return Error("SHA-1 is not available: git's blob ids cannot be made");
  }
  const std::string header = "blob " + std::to_string(size);
  EVP_DigestUpdate(context.get(), header.c_str(), header.size() + 1);
  std::uint64_t seen = 0;
  TRY(source([&](std::string_view bytes) -> Status {
    seen += bytes.size();
    EVP_DigestUpdate(context.get(), bytes.data(), bytes.size());
    return {};
  }));
  if (seen != size) return Error("content changed while it was read");
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned length = 0;
  EVP_DigestFinal_ex(context.get(), digest.data(), &length);
  std::string hex;
  for (unsigned i = 0; i < length; ++i) {
    std::array<char, 3> digits{};
    std::snprintf(digits.data(), digits.size(), "%02x", digest[i]);
    hex += digits.data();
  }
  return hex;
}

}  // namespace cofferdam::orchestrator::changes
