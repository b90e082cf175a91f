// What a worker with a good rank and arbitrary bytes can do, and how each of it must be refused.
// For tests; one thread.
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
  // In the message.
  const char* names;
  std::function<grpc::Status(ByzantinePeer&)> act;
};

// Of a peer that calls by gRPC: coordinator and shard.
std::vector<Behaviour> BehavioursOverGrpc();
// Of a peer that uses shared memory: the pushes and pulls of the above, in the same words, and what
// only rings can carry.
std::vector<Behaviour> BehavioursOverSharedMemory();

}  // namespace kaon

#endif  // KAON_TESTS_INTEGRATION_BYZANTINE_BEHAVIOURS_H_
