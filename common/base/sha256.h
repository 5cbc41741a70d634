// SHA-256 (FIPS 180-4), by OpenSSL.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace cofferdam {

using Sha256Digest = std::array<std::uint8_t, 32>;

// Feeds bytes in any number of pieces; finish() once.
class Sha256 final {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void update(std::string_view bytes);
  Sha256Digest finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

Sha256Digest sha256(std::string_view bytes);

// Lower-case hexadecimal, and back (64 digits exactly).
std::string to_hex(const Sha256Digest& digest);
std::optional<Sha256Digest> digest_from_hex(std::string_view hex);

}  // namespace cofferdam
