// Attacks of a worker with a valid rank and arbitrary bytes, and the required refusal of each. Used
// by tests only; one thread.
#ifndef KAON_TESTS_INTEGRATION_BYZANTINE_BEHAVIOURS_H_
#define KAON_TESTS_INTEGRATION_BYZANTINE_BEHAVIOURS_H_

#include <grpcpp/grpcpp.h>

#include <functional>
#include <vector>

#include "tests/integration/byzantine_peer.h"

namespace kaon {

struct Behaviour {
  const char* name;
  grpc::StatusCode code;
  // Text that the error message must contain.
  const char* names;
  std::function<grpc::Status(ByzantinePeer&)> act;
};

// Attacks by gRPC on the coordinator and the shard.
std::vector<Behaviour> BehavioursOverGrpc();
// Attacks over shared memory: the pushes and pulls of the list above with the same messages, and
// those that only rings can carry.
std::vector<Behaviour> BehavioursOverSharedMemory();

}  // namespace kaon

#endif  // KAON_TESTS_INTEGRATION_BYZANTINE_BEHAVIOURS_H_
