// Calls of an admin to the coordinator that answers, in a simulated cluster. Requests and answers
// have latency and may be lost; none is repeated. Owned by the node of an admin; one thread.
#ifndef KAON_TESTS_SIMULATION_NODES_ADMIN_CALLS_H_
#define KAON_TESTS_SIMULATION_NODES_ADMIN_CALLS_H_

#include <functional>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tests/simulation/nodes/coordinator_node.h"
#include "tests/simulation/world.h"

namespace kaon::simulation {

class AdminCalls {
 public:
  AdminCalls(World& world, std::vector<CoordinatorNode*> coordinators, absl::Duration timeout)
      : world_(world), coordinators_(std::move(coordinators)), timeout_(timeout) {}

  // Runs `on_answer` once. No answer within the timeout is UNAVAILABLE.
  void Call(const CoordinatorNode::MakeCall& make, CoordinatorNode::OnAnswer on_answer);

 private:
  World& world_;
  const std::vector<CoordinatorNode*> coordinators_;
  const absl::Duration timeout_;
};

// Returns the response to a call, or the status that it ended with.
template <typename Reply>
auto ResponseOf(const coordinator::CoordinatorAction& action) -> decltype(Reply::response) {
  if (const auto* reply = std::get_if<Reply>(&action)) return reply->response;
  return std::get<coordinator::AwaitFailed>(action).status;
}

}  // namespace kaon::simulation

#endif  // KAON_TESTS_SIMULATION_NODES_ADMIN_CALLS_H_
