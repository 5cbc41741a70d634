#include "orchestrator/presets/registry_url.h"

#include <algorithm>

#include "common/base/escape.h"

namespace cofferdam::orchestrator {
namespace {

constexpr std::uint16_t kTlsPort = 443;
constexpr std::uint16_t kHttpPort = 80;

bool is_printable_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > 0x20 && c < 0x7F; });
}

}  // namespace

std::string RegistryUrl::text() const {
  const std::uint16_t usual = tls ? kTlsPort : kHttpPort;
  return std::string(tls ? "https://" : "http://") + endpoint.host.text() +
         (endpoint.port == usual ? "" : ":" + std::to_string(endpoint.port)) + path;
}

std::string RegistryUrl::rule() const {
  return (tls ? "tls://" : "http://") + endpoint.text();
}

Result<RegistryUrl> parse_registry_url(std::string_view text) {
  bool tls = true;
  if (text.starts_with("https://")) {
    text.remove_prefix(8);
  } else if (text.starts_with("http://")) {
    text.remove_prefix(7);
    tls = false;
  } else {
    return Error("a registry's URL must begin with https:// or http://");
  }
  if (!is_printable_ascii(text) || text.find('\\') != std::string_view::npos) {
    return Error("a registry's URL holds characters that no URL has");
  }
  text = text.substr(0, text.find_first_of("?#"));
  const std::size_t slash = text.find('/');
  std::string_view authority = text.substr(0, slash);
  if (const std::size_t at = authority.rfind('@'); at != std::string_view::npos) {
    authority.remove_prefix(at + 1);
  }
  auto endpoint = policy::parse_endpoint(authority, tls ? kTlsPort : kHttpPort);
  if (!endpoint.ok()) return endpoint.error().context("a registry's URL");
  return RegistryUrl{tls, *endpoint,
                     slash == std::string_view::npos ? "/" : std::string(text.substr(slash))};
}

}  // namespace cofferdam::orchestrator
