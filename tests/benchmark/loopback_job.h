// Runs a job over loopback for benchmarks, with real servers and real clients in this process. One
// thread at a time uses an object; different threads use the trainers of one job concurrently.
#ifndef KAON_TESTS_BENCHMARK_LOOPBACK_JOB_H_
#define KAON_TESTS_BENCHMARK_LOOPBACK_JOB_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/kaon/client.h"
#include "server/coordinator/coordinator_server.h"
#include "server/shard/shard_server.h"
#include "tests/benchmark/watcher.h"

namespace kaon::benchmark {

struct LoopbackOptions {
  int shards = 1;
  // none: benchmarks do not measure the disk by default.
  std::string durability = "none";
  // Memory of each shard.
  uint64_t host_memory_bytes = 0;
  // Device of each shard, such as "cuda:0"; empty: the CPU.
  std::string device;
  // Compute threads of each shard; 0: as many as there are CPUs.
  uint32_t threads = 0;
  // Sessions of each shard. If there are any, all trainers must use them.
  uint32_t shm_sessions = 0;
  // Serves metrics and the status page. Watch looks at them.
  bool watched = false;
  // Output directory of deploy/certificates.sh, with a worker for each rank; empty: no TLS.
  std::string certificates;
};

// Serves from its construction to its destruction. CHECKs that the servers start.
class LoopbackServers {
 public:
  explicit LoopbackServers(const LoopbackOptions& options);
  ~LoopbackServers();

  // Connects with the certificate of rank `rank`, if there are certificates.
  Client Connect(uint32_t rank) const;
  // Scrapes the metrics once a second and holds the status page open, until Unwatch. The servers
  // are `watched`.
  void Watch();
  void Unwatch() { watcher_.reset(); }
  // Returns the directory of the shards' data, on the disk that a benchmark may compare them with.
  const std::string& directory() const { return directory_; }

 private:
  const Transport transport_;
  const std::string certificates_;
  std::string directory_;
  std::vector<std::unique_ptr<shard::ShardServer>> shards_;
  std::unique_ptr<coordinator::CoordinatorServer> coordinator_;
  // The ports of shards and coordinator, if the servers are `watched`.
  std::vector<int> metrics_ports_;
  // Null unless somebody looks.
  std::unique_ptr<Watcher> watcher_;
};

// One rank of a data-parallel trainer with the same gradients in every step. CHECKs every outcome.
class LoopbackTrainer {
 public:
  // Registers the job or attaches to it; rank 0 loads the weights if there are none. `wire` is the
  // dtype of gradients and pulled weights: kFloat32 or kBFloat16.
  LoopbackTrainer(const LoopbackServers& servers, const JobDefinition& definition, uint32_t rank,
                  DType wire);

  // Begins the next step; returns when the shards have accepted the last byte. Gradients become
  // ready one after the other, the last after `backward`, as in a backward pass on a GPU. The CPU
  // is idle meanwhile.
  void Push(absl::Duration backward = absl::ZeroDuration());
  // Returns when the step is decided.
  void Finish();
  // Pulls the weights of the newest step.
  void Pull();
  TransferTotals totals() const { return client_.transfer_totals(); }

 private:
  void LoadWeights();

  Client client_;
  Job job_;
  Worker worker_;
  const DType wire_;
  std::vector<uint64_t> sizes_;
  std::vector<std::vector<std::byte>> gradients_;
  std::vector<std::vector<std::byte>> weights_;
  std::unique_ptr<Step> step_;
  uint64_t next_ = 0;
};

using LoopbackTrainers = std::vector<std::unique_ptr<LoopbackTrainer>>;

// Returns one trainer for each rank of the job's world.
LoopbackTrainers MakeTrainers(const LoopbackServers& servers, const JobDefinition& definition,
                              DType wire = DType::kFloat32);

// Returns the seconds until all trainers are done, each on a thread of its own. A single trainer
// runs on the caller's thread.
double SecondsOfAll(LoopbackTrainers& trainers, const std::function<void(LoopbackTrainer&)>& work);

}  // namespace kaon::benchmark

#endif  // KAON_TESTS_BENCHMARK_LOOPBACK_JOB_H_
