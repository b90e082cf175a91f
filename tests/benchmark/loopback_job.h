// A job over loopback for benchmarks: real servers and real clients in this process, as a trainer
// would use them. Each object is used by one thread at a time; trainers of one job by
// different ones at once.
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

namespace kaon::benchmark {

struct LoopbackOptions {
  int shards = 1;
  // none: what is measured is not the disk.
  std::string durability = "none";
  // Of each shard.
  uint64_t host_memory_bytes = 0;
  // Compute threads of each shard; 0 = as many as there are CPUs.
  uint32_t threads = 0;
  // Of each shard; if there are any, all trainers must use them.
  uint32_t shm_sessions = 0;
  // What deploy/make_certificates.sh has made, with a worker for each rank; empty = no TLS.
  std::string certificates;
};

// Serving from its construction to its end. CHECKs that they start.
class LoopbackServers {
 public:
  explicit LoopbackServers(const LoopbackOptions& options);
  ~LoopbackServers();

  // With the certificate of rank `rank`, if there are any.
  Client Connect(uint32_t rank) const;
  // Where the shards keep their data, on the disk that a benchmark may compare them with.
  const std::string& directory() const { return directory_; }

 private:
  const Transport transport_;
  const std::string certificates_;
  std::string directory_;
  std::vector<std::unique_ptr<shard::ShardServer>> shards_;
  std::unique_ptr<coordinator::CoordinatorServer> coordinator_;
};

// One rank of a data-parallel trainer, whose gradients are the same in every step. CHECKs every
// outcome.
class LoopbackTrainer {
 public:
  // Registers the job, or attaches to it; rank 0 loads the weights if nobody has. Gradients and
  // pulled weights are `wire`, which is kFloat32 or kBFloat16.
  LoopbackTrainer(const LoopbackServers& servers, const JobDefinition& definition, uint32_t rank,
                  DType wire);

  // Begins the next step; returns when the shards have accepted the last byte. Gradients are ready
  // one after the other, the last after `backward`, as those of a backward pass on a GPU: meanwhile
  // this processor is idle.
  void Push(absl::Duration backward = absl::ZeroDuration());
  // Returns when the step is decided.
  void Finish();
  // Of the newest step.
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

// As many as the job's world.
LoopbackTrainers MakeTrainers(const LoopbackServers& servers, const JobDefinition& definition,
                              DType wire = DType::kFloat32);

// Seconds until all are done, each in a thread of its own; one alone in the caller's.
double SecondsOfAll(LoopbackTrainers& trainers, const std::function<void(LoopbackTrainer&)>& work);

}  // namespace kaon::benchmark

#endif  // KAON_TESTS_BENCHMARK_LOOPBACK_JOB_H_
