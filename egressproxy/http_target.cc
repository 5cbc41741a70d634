#include "egressproxy/http_target.h"

#include <algorithm>

namespace cofferdam::egressproxy::http {
namespace {

using policy::Endpoint;
using policy::Reason;
using policy::Verdict;

TargetResult refuse(int status, Reason reason, std::string why, const Site& site) {
  TargetResult result;
  result.refusal.status = status;
  result.refusal.decision = {Verdict::kDeny, reason, {}};
  result.refusal.why = std::move(why);
  result.refusal.protocol = "http";
  if (!site.is_proxy) result.refusal.port = site.port;
  return result;
}

TargetResult refuse_host(const Endpoint& endpoint, const Site& site, std::string why) {
  TargetResult result = refuse(421, Reason::kHostMismatch, std::move(why), site);
  result.refusal.host = endpoint.host.text();
  result.refusal.port = endpoint.port;
  return result;
}

// On the explicit port: absolute-form, and Host says the same.
TargetResult find_proxy_target(const RequestHead& head, const Site& site) {
  if (head.target.starts_with('/') || head.target == "*") {
    return refuse(400, Reason::kMalformed, "this is a proxy: the target must be absolute", site);
  }
  AbsoluteResult absolute = parse_absolute_target(head.target);
  if (!absolute.target) {
    return refuse(absolute.error.status, Reason::kMalformed, std::move(absolute.error.why), site);
  }
  if (head.host) {
    const auto named = policy::parse_endpoint(*head.host, 80);
    if (!named) return refuse(400, Reason::kNameInvalid, "not a Host", site);
    if (*named != absolute.target->endpoint) {
      return refuse_host(*named, site, "the Host header and the target name different hosts");
    }
  }
  return {Target{absolute.target->endpoint, std::move(absolute.target->path)}, {}};
}

}  // namespace

std::string path_of(std::string_view origin_target) {
  return std::string(origin_target.substr(0, origin_target.find('?')));
}

TargetResult find_target(const RequestHead& head, const Site& site) {
  if (site.is_proxy) return find_proxy_target(head, site);
  if (!head.host) return refuse(400, Reason::kMalformed, "no Host", site);
  // Without a port Host means this connection's.
  const auto named = policy::parse_endpoint(*head.host, site.port);
  if (!named) return refuse(400, Reason::kNameInvalid, "not a Host", site);
  std::string path = head.target;
  if (!head.target.starts_with('/') && !(head.target == "*" && head.method == "OPTIONS")) {
    AbsoluteResult absolute = parse_absolute_target(head.target);
    if (!absolute.target) {
      return refuse(absolute.error.status, Reason::kMalformed, std::move(absolute.error.why), site);
    }
    if (absolute.target->endpoint != *named) {
      return refuse_host(*named, site, "the Host header and the target name different hosts");
    }
    path = std::move(absolute.target->path);
  }
  const bool known = site.any_host || std::find(site.hosts.begin(), site.hosts.end(),
                                                named->host) != site.hosts.end();
  if (!known || named->port != site.port) {
    return refuse_host(*named, site, "this connection was not opened to that host");
  }
  return {Target{*named, std::move(path)}, {}};
}

}  // namespace cofferdam::egressproxy::http
