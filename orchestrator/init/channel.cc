#include "orchestrator/init/channel.h"

namespace cofferdam::init {

Status send_message(int socket, const Json& body, const std::vector<int>& fds) {
  return os::send_packet(socket, canonical_json(body), fds);
}

Result<Message> receive_message(int socket) {
  TRY_ASSIGN(os::Packet packet, os::receive_packet(socket));
  Message message;
  message.end_of_stream = packet.end_of_stream;
  if (packet.end_of_stream) return message;
  TRY_ASSIGN(message.body, parse_json(packet.bytes));
  if (!message.body.is_object() || !message.body.contains("type") ||
      !message.body["type"].is_string()) {
    return Error("a message without a type");
  }
  message.fds = std::move(packet.fds);
  return message;
}

Status expect(const Message& message, const char* wanted) {
  if (message.end_of_stream) return Error("the other side is gone");
  if (message.body["type"] != wanted) return Error(std::string("expected a message: ") + wanted);
  return {};
}

}  // namespace cofferdam::init
