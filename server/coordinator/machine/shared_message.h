// A message for many receivers, made and serialized once. Constant; the actions that carry it share
// it on any thread.
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

// The actions of all receivers share the message; the machine keeps it for later receivers.
template <typename Message>
using Shared = std::shared_ptr<const SharedMessage<Message>>;

template <typename Message>
Shared<Message> Share(Message message) {
  return std::make_shared<const SharedMessage<Message>>(std::move(message));
}

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_MACHINE_SHARED_MESSAGE_H_
