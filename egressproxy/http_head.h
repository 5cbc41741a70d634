// HTTP/1.x heads: scanning, parsing, our own validation, writing. Pure.
//
// Boost.Beast's parser reads a head first; then our own strict reader (RFC 9112 sections 2 to 6)
// reads the same bytes, and only what both understand alike is accepted. Nothing of a received head
// is ever forwarded as it came: heads are written anew from the parts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/policy/host_name.h"

namespace cofferdam::egressproxy::http {

inline constexpr std::size_t kMaxHead = 32768;
inline constexpr std::size_t kMaxStartLine = 8192;
inline constexpr std::size_t kMaxFields = 100;
inline constexpr std::size_t kMaxResponseHead = 65536;

struct Field {
  std::string name;   // as sent
  std::string value;  // without the white space around it
};

enum class BodyKind : std::uint8_t { kNone, kLength, kChunked, kUntilClose };

struct Framing {
  BodyKind kind = BodyKind::kNone;
  std::uint64_t length = 0;  // of kLength
};

// Why a head was refused: the status for the client, and a sentence for it.
struct HeadError {
  int status = 400;
  std::string why;
};

// How much of `bytes` is a head.
struct HeadScan {
  enum class State : std::uint8_t { kNeedMore, kComplete, kRefused };
  State state = State::kNeedMore;
  std::size_t skip = 0;    // an empty line before the start line
  std::size_t length = 0;  // of the head behind it, with its empty line
  HeadError error;         // of kRefused
};
HeadScan scan_head(std::string_view bytes, std::size_t limit = kMaxHead);

struct RequestHead {
  std::string method;
  std::string target;
  int minor = 1;  // HTTP/1.<minor>
  std::vector<Field> fields;
  Framing framing;
  bool keep_alive = true;
  bool expects_continue = false;
  bool websocket = false;           // Connection: upgrade and Upgrade: websocket, without a body
  std::optional<std::string> host;  // the one Host field; absent only in HTTP/1.0
};

struct ResponseHead {
  int status = 502;
  int minor = 1;
  std::string reason;
  std::vector<Field> fields;
  Framing
      framing;  // kUntilClose when nothing else is said; see response_framing for what has no body
  bool keep_alive = true;
  bool websocket = false;  // of a 101
};

// `head` ends with its empty line.
struct RequestResult {
  std::optional<RequestHead> head;
  HeadError error;
};
RequestResult parse_request(std::string_view head);
Result<ResponseHead> parse_response(std::string_view head);

// The body of a response to `method` (RFC 9112 6.3).
Framing response_framing(const ResponseHead& head, std::string_view method);

// The authority and path of an absolute-form target; http only.
struct AbsoluteTarget {
  policy::Endpoint endpoint;
  std::string path;  // origin-form, at least "/"
};
struct AbsoluteResult {
  std::optional<AbsoluteTarget> target;
  HeadError error;
};
AbsoluteResult parse_absolute_target(std::string_view target);

// Whether a field is between two neighbours only (RFC 9110 7.6.1), `connection` being the tokens of
// the Connection field.
bool is_hop_by_hop(std::string_view name, const std::vector<std::string>& connection);
std::vector<std::string> connection_tokens(const std::vector<Field>& fields);

// Heads for the other side: canonical Host first, hop-by-hop fields left out, framing written anew.
// `via` is this proxy's name in Via (RFC 9110 7.6.3); empty: no such field is added.
std::string write_request(const RequestHead& head, std::string_view authority,
                          std::string_view origin_target, std::string_view via = {});
std::string write_response(const ResponseHead& head, const Framing& framing, bool keep_alive,
                           int client_minor, std::string_view via = {});

// Whether a message has passed the proxy of this name before.
bool came_through(const std::vector<Field>& fields, std::string_view via);

// The text of an authority for a Host field: the default port of http is left out.
std::string authority_text(const policy::Endpoint& endpoint);

bool equal_folded(std::string_view a, std::string_view b);

}  // namespace cofferdam::egressproxy::http
