#include "tests/simulation/nodes/admin_calls.h"

#include <memory>

namespace kaon::simulation {

void AdminCalls::Call(const CoordinatorNode::MakeCall& make, CoordinatorNode::OnAnswer on_answer) {
  auto done = std::make_shared<bool>(false);
  const auto finish =
      [done, on_answer = std::move(on_answer)](const coordinator::CoordinatorAction& action) {
        if (!std::exchange(*done, true)) on_answer(action);
      };
  world_.queue().After(timeout_, [finish] {
    finish(coordinator::AwaitFailed{0, absl::UnavailableError("deadline"), ""});
  });
  if (world_.Lost()) return;
  CoordinatorNode* node = coordinators_[world_.Below(coordinators_.size())];
  world_.queue().After(world_.Latency(), [this, node, make, finish] {
    node->Call(make, [this, finish](const coordinator::CoordinatorAction& action) {
      if (world_.Lost()) return;
      world_.queue().After(world_.Latency(), [finish, action] { finish(action); });
    });
  });
}

}  // namespace kaon::simulation
