// A coordinator and shards in this process, on loopback ports without TLS, for tests of the real
// client against the real servers (also under sanitizers). Owned by one test; one thread.
#ifndef KAON_TESTS_TESTING_IN_PROCESS_CLUSTER_H_
#define KAON_TESTS_TESTING_IN_PROCESS_CLUSTER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "client/kaon/client.h"
#include "server/coordinator/coordinator_server.h"
#include "server/shard/shard_server.h"

namespace kaon::testing {

class InProcessCluster {
 public:
  // Serving when it returns; CHECKs otherwise. Data directories are made below the test's temporary
  // directory.
  explicit InProcessCluster(int num_shards, std::string checkpoint_dir = "",
                            uint32_t shm_sessions = 0, std::string traces_address = "");
  ~InProcessCluster();

  // Ends the coordinator and starts another on the same port.
  void ReplaceCoordinator();
  // StopShard writes nothing on the way out. StartShard restarts the shard with its data directory
  // and port.
  void StopShard(int shard);
  void StartShard(int shard);

  std::string coordinator_address() const;
  std::string shard_address(int shard) const;
  // Returns a client of the coordinator with deadlines that suit a test; `options` sets the rest.
  Client Connect(ClientOptions options = ClientOptions()) const;

 private:
  struct Shard {
    std::string directory;
    int port = 0;
    // Null while the shard is stopped.
    std::unique_ptr<shard::ShardServer> server;
  };

  void StartCoordinator(int port);

  const std::string checkpoint_dir_;
  // Shared-memory sessions of each shard.
  const uint32_t shm_sessions_;
  const std::string traces_address_;
  std::vector<Shard> shards_;
  std::unique_ptr<coordinator::CoordinatorServer> coordinator_;
  int coordinator_port_ = 0;
};

}  // namespace kaon::testing

#endif  // KAON_TESTS_TESTING_IN_PROCESS_CLUSTER_H_
