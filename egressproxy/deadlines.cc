#include "egressproxy/deadlines.h"

#include <array>
#include <charconv>
#include <string>

namespace cofferdam::egressproxy {
namespace {

struct Named {
  std::string_view name;
  milliseconds Deadlines::*member;
};
constexpr std::array<Named, 10> kNamed = {{{"first_byte", &Deadlines::first_byte},
                                           {"hello", &Deadlines::hello},
                                           {"refused", &Deadlines::refused},
                                           {"head", &Deadlines::head},
                                           {"keep_alive", &Deadlines::keep_alive},
                                           {"response", &Deadlines::response},
                                           {"body", &Deadlines::body},
                                           {"upload", &Deadlines::upload},
                                           {"write", &Deadlines::write},
                                           {"tunnel", &Deadlines::tunnel}}};

}  // namespace

Status shorten_deadline(Deadlines& deadlines, std::string_view text) {
  const auto equals = text.find('=');
  const std::string_view digits =
      equals == std::string_view::npos ? std::string_view() : text.substr(equals + 1);
  std::uint32_t value = 0;
  const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (digits.empty() || code != std::errc{} || end != digits.data() + digits.size() || value == 0) {
    return Error("--deadline '" + std::string(text) + "': write NAME=MILLISECONDS");
  }
  for (const Named& one : kNamed) {
    if (one.name != text.substr(0, equals)) continue;
    if (milliseconds(value) > deadlines.*one.member) {
      return Error("--deadline " + std::string(one.name) + ": at most " +
                   std::to_string((deadlines.*one.member).count()) + " ms");
    }
    deadlines.*one.member = milliseconds(value);
    return {};
  }
  return Error("--deadline '" + std::string(text) + "': no deadline of that name");
}

}  // namespace cofferdam::egressproxy
