#include "common/policy/upstream_proxy.h"

#include <algorithm>
#include <optional>

#include "common/policy/address_class.h"

namespace cofferdam::policy {
namespace {

constexpr std::string_view kHttp = "http://";
constexpr std::size_t kMaxUser = 1024;  // bytes, decoded

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// RFC 3986 2.1; nothing for a '%' without two digits.
std::optional<std::string> percent_decoded(std::string_view text) {
  std::string decoded;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i];
      continue;
    }
    if (i + 2 >= text.size()) return std::nullopt;
    const int high = hex_value(text[i + 1]);
    const int low = hex_value(text[i + 2]);
    if (high < 0 || low < 0) return std::nullopt;
    decoded += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return decoded;
}

// RFC 4648 section 4.
std::string base64(std::string_view bytes) {
  constexpr std::string_view kAlphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - i);
    unsigned group = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      group = group << 8U | (k < count ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    }
    for (std::size_t k = 0; k < 4; ++k) {
      text += k <= count ? kAlphabet[group >> (18 - 6 * k) & 0x3fU] : '=';
    }
  }
  return text;
}

// RFC 7617: the user has no colon, neither part a control character.
Result<std::string> basic_authorization(std::string_view user_information) {
  const auto colon = user_information.find(':');
  const auto user = percent_decoded(user_information.substr(0, colon));
  const auto password = percent_decoded(
      colon == std::string_view::npos ? std::string_view() : user_information.substr(colon + 1));
  const Error wrong("upstream proxy: the user information does not parse");
  if (!user || !password || user->empty() || user->find(':') != std::string::npos) return wrong;
  const std::string both = *user + ":" + *password;
  const bool plain = std::none_of(both.begin(), both.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
  });
  if (!plain || both.size() > kMaxUser) return wrong;
  return "Basic " + base64(both);
}

}  // namespace

std::string without_user(std::string_view url) {
  const auto scheme = url.find("://");
  const std::size_t start = scheme == std::string_view::npos ? 0 : scheme + 3;
  const auto at = url.rfind('@');
  if (at == std::string_view::npos || at < start) return std::string(url);
  return std::string(url.substr(0, start)) + std::string(url.substr(at + 1));
}

Result<UpstreamProxy> parse_upstream_proxy(std::string_view url) {
  if (url.starts_with("https://")) {
    return Error(
        "upstream proxy: TLS to the proxy itself is not in this version; write http://HOST:PORT");
  }
  if (!url.starts_with(kHttp))
    return Error("upstream proxy: write http://[USER:PASSWORD@]HOST:PORT");
  std::string_view rest = url.substr(kHttp.size());
  if (rest.ends_with('/')) rest.remove_suffix(1);
  std::string authorization;
  if (const auto at = rest.rfind('@'); at != std::string_view::npos) {
    TRY_ASSIGN(authorization, basic_authorization(rest.substr(0, at)));
    rest.remove_prefix(at + 1);
  }
  auto endpoint = parse_endpoint(rest);
  if (!endpoint) return endpoint.error().context("upstream proxy: HOST:PORT");
  if (endpoint->host.is_name() && special_name(endpoint->host.name()) == Reason::kLoopbackAddress) {
    return Error("upstream proxy: write 127.0.0.1 or [::1] for this machine");
  }
  if (!endpoint->host.is_name()) {
    const Reason refused = refuse_proxy_address(endpoint->host.address(), true, false);
    if (refused != Reason::kAllowed) {
      return Error("upstream proxy: " + endpoint->host.text() + " (" +
                   std::string(to_text(refused)) + ") cannot be one");
    }
  }
  return UpstreamProxy{std::move(*endpoint), std::move(authorization),
                       UpstreamProxy::Connect::kAddress};
}

Reason refuse_proxy_address(const IpAddress& address, bool literal, bool own) {
  const AddressClass address_class = classify(address);
  if (own && !literal) return Reason::kHostAddress;
  if (address_class.tier != Tier::kFloor) return Reason::kAllowed;
  const auto bytes = address.bytes();
  const bool unspecified =
      std::all_of(bytes.begin(), bytes.end(), [](std::uint8_t byte) { return byte == 0; });
  const bool near = !unspecified && (address_class.reason == Reason::kLoopbackAddress ||
                                     address_class.reason == Reason::kLinkLocalAddress);
  return near && literal ? Reason::kAllowed : address_class.reason;
}

}  // namespace cofferdam::policy
