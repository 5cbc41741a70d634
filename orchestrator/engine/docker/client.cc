#include "orchestrator/engine/docker/client.h"

#include <charconv>
#include <utility>

#include "common/base/escape.h"

namespace cofferdam::orchestrator::docker {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kUsualPatience = seconds(30);
constexpr milliseconds kLongPatience = seconds(90);
constexpr int kOldestMinor = 41;  // Docker 20.10

// "1.41" → 41; -1 for anything that is not version 1.
int minor_version(const Json& body, const char* key) {
  const auto found = body.find(key);
  if (found == body.end() || !found->is_string()) return -1;
  const auto text = found->get<std::string>();
  if (!text.starts_with("1.")) return -1;
  int minor = -1;
  const auto [end, fault] = std::from_chars(text.data() + 2, text.data() + text.size(), minor);
  return fault == std::errc() && end == text.data() + text.size() ? minor : -1;
}

std::map<std::string, std::string> string_map(const Json& body, const char* key) {
  std::map<std::string, std::string> out;
  const auto found = body.find(key);
  if (found == body.end() || !found->is_object()) return out;
  for (const auto& [name, value] : found->items()) {
    if (value.is_string()) out[name] = value.get<std::string>();
  }
  return out;
}

// The daemon's own words; it puts names that others chose into them.
std::string message_of(const HttpReply& reply) {
  const auto body = parse_json(reply.body);
  if (body.ok() && body->is_object() && body->contains("message") &&
      (*body)["message"].is_string()) {
    return escape_for_terminal((*body)["message"].get<std::string>());
  }
  return "status " + std::to_string(reply.status);
}

HttpCall post(std::string target, const Json& body) {
  return {"POST", std::move(target), "application/json", canonical_json(body)};
}

}  // namespace

std::string percent_encode(std::string_view text) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '.' || c == '_' || c == '~';
    if (plain) {
      out += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      out += {'%', kDigits[byte >> 4U], kDigits[byte & 15U]};
    }
  }
  return out;
}

Result<std::string> choose_api_version(const Json& version) {
  if (!version.is_object()) return Error("the Docker daemon does not tell its version");
  const int newest = minor_version(version, "ApiVersion");
  const int oldest = minor_version(version, "MinAPIVersion");
  if (newest < kOldestMinor) {
    return Error("the Docker daemon is too old: its API is " +
                 version.value("ApiVersion", std::string("unknown")) +
                 ". Remedy: Docker 20.10 or newer");
  }
  return "1." + std::to_string(std::max(kOldestMinor, oldest));
}

Result<ImageFacts> parse_image(const Json& inspect) {
  ImageFacts facts;
  try {
    facts.id = inspect.at("Id").get<std::string>();
    const Json& config = inspect.at("Config");
    if (!config.is_object()) return facts;
    facts.labels = string_map(config, "Labels");
    if (const auto volumes = config.find("Volumes"); volumes != config.end()) {
      for (const auto& [path, nothing] : volumes->items()) facts.volumes.push_back(path);
    }
    const auto env = config.find("Env");
    if (env == config.end() || !env->is_array()) return facts;
    for (const Json& entry : *env) {
      const auto text = entry.get<std::string>();
      const std::size_t equals = text.find('=');
      if (equals != std::string::npos && equals > 0) {
        facts.env[text.substr(0, equals)] = text.substr(equals + 1);
      }
    }
  } catch (const Json::exception& fault) {
    return Error(std::string("the Docker daemon's description of the image: ") + fault.what());
  }
  return facts;
}

Result<DockerClient> DockerClient::connect(const std::string& socket_path, int interrupt) {
  DockerClient client(socket_path, interrupt);
  auto version = client.ask_json({"GET", "/version", "", ""});
  if (!version.ok()) {
    return Error(version.error().message() +
                     ". Remedy: start the Docker daemon, or set DOCKER_HOST to its socket",
                 version.error().error_number());
  }
  TRY_ASSIGN(const std::string chosen, choose_api_version(*version));
  client.prefix_ = "/v" + chosen;
  client.server_version_ = escape_for_terminal(version->value("Version", std::string("unknown")));
  return client;
}

Result<HttpReply> DockerClient::ask(HttpCall call, milliseconds deadline) const {
  call.target = prefix_ + call.target;
  TRY_ASSIGN(HttpReply reply, http_exchange(socket_path_, call, {deadline, interrupt_}));
  if (reply.status >= 400) {
    return Error("Docker: " + message_of(reply), reply.status == 404 ? ENOENT : EIO);
  }
  return reply;
}

Result<Json> DockerClient::ask_json(HttpCall call) const {
  TRY_ASSIGN(const HttpReply reply, ask(std::move(call), kUsualPatience));
  return parse_json(reply.body).context("the Docker daemon's answer");
}

Result<std::vector<std::string>> DockerClient::runtimes() const {
  TRY_ASSIGN(const Json info, ask_json({"GET", "/info", "", ""}));
  std::vector<std::string> names;
  const Json known = info.value("Runtimes", Json::object());
  for (const auto& [name, runtime] : known.items()) names.push_back(name);
  return names;
}

Result<ImageFacts> DockerClient::inspect_image(std::string_view reference) const {
  TRY_ASSIGN(const Json body,
             ask_json({"GET", "/images/" + percent_encode(reference) + "/json", "", ""}));
  return parse_image(body);
}

Status DockerClient::import_image(std::string tar, std::string_view repository,
                                  std::string_view tag,
                                  const std::vector<std::string>& changes) const {
  std::string target =
      "/images/create?fromSrc=-&repo=" + percent_encode(repository) + "&tag=" + percent_encode(tag);
  for (const std::string& change : changes) target += "&changes=" + percent_encode(change);
  TRY_ASSIGN(const HttpReply reply,
             ask({"POST", target, "application/x-tar", std::move(tar)}, kLongPatience));
  // One JSON object a line; a failure comes as {"error": …} after status 200.
  if (reply.body.find("\"error\"") != std::string::npos) {
    return Error("Docker: importing an image: " + escape_for_terminal(reply.body));
  }
  return {};
}

Result<std::string> DockerClient::create_container(std::string_view name,
                                                   const Json& request) const {
  TRY_ASSIGN(const Json body,
             ask_json(post("/containers/create?name=" + percent_encode(name), request)));
  if (!body.is_object() || !body.contains("Id") || !body["Id"].is_string()) {
    return Error("Docker: a container without an id");
  }
  return body["Id"].get<std::string>();
}

Status DockerClient::start_container(std::string_view id) const {
  TRY_ASSIGN([[maybe_unused]] const HttpReply reply,
             ask({"POST", "/containers/" + percent_encode(id) + "/start", "", ""}, kLongPatience));
  return {};
}

Result<Json> DockerClient::inspect_container(std::string_view id) const {
  return ask_json({"GET", "/containers/" + percent_encode(id) + "/json", "", ""});
}

Status DockerClient::remove_container(std::string_view id) const {
  const auto reply =
      ask({"DELETE", "/containers/" + percent_encode(id) + "?force=1&v=1", "", ""}, kLongPatience);
  if (reply.ok() || reply.error().error_number() == ENOENT) return {};
  return reply.error();
}

Result<std::vector<ContainerEntry>> DockerClient::list_containers(
    const std::map<std::string, std::string>& labels) const {
  Json filters{{"label", Json::array()}};
  for (const auto& [name, value] : labels) filters["label"].push_back(name + "=" + value);
  TRY_ASSIGN(
      const Json body,
      ask_json({"GET", "/containers/json?all=1&filters=" + percent_encode(canonical_json(filters)),
                "", ""}));
  std::vector<ContainerEntry> entries;
  try {
    for (const Json& item : body) {
      ContainerEntry entry;
      entry.id = item.at("Id").get<std::string>();
      for (const Json& name : item.at("Names")) {
        auto text = name.get<std::string>();
        entry.names.push_back(text.starts_with("/") ? text.substr(1) : std::move(text));
      }
      entry.labels = string_map(item, "Labels");
      entries.push_back(std::move(entry));
    }
  } catch (const Json::exception& fault) {
    return Error(std::string("the Docker daemon's list of containers: ") + fault.what());
  }
  return entries;
}

}  // namespace cofferdam::orchestrator::docker
