// A message that goes to many receivers: made and serialized once, whatever their number. Constant;
// shared by the actions that carry it, on any thread.
#ifndef KAON_SERVER_COORDINATOR_MACHINE_SHARED_MESSAGE_H_
#define KAON_SERVER_COORDINATOR_MACHINE_SHARED_MESSAGE_H_

#include <memory>
#include <string>
#include <utility>

namespace kaon::coordinator {

template <typename Message>
struct SharedMessage {
  explicit SharedMessage(Message made)
      : message(std::move(made)), bytes(message.SerializeAsString()) {}

  const Message message;
  const std::string bytes;
};

// Shared by the actions of all receivers, and by the machine for those that are sent it later.
template <typename Message>
using Shared = std::shared_ptr<const SharedMessage<Message>>;

template <typename Message>
Shared<Message> Share(Message message) {
  return std::make_shared<const SharedMessage<Message>>(std::move(message));
}

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_MACHINE_SHARED_MESSAGE_H_
