// The Kaon client library: connect to a cluster, register or attach to a job, and train.
//
//     auto client = kaon::Client::Connect(options).value();
//     auto job = client.Register(definition).value();
//     auto worker = job.Join(rank).value();
//     if (rank == 0 && !job.description().weights_loaded) {
//       worker.LoadWeights(initial_weights).Get().value();  // once in the life of the job
//     }
//     uint64_t applied = job.WaitForWeights(timeout).value();
//     job.Pull(applied, targets).Get().value();
//     for (uint64_t step = applied + 1; step <= last_step; ++step) {
//       double loss = backward();  // yours: reads the weights, writes the gradients
//       worker.RunStep({step, tokens}, gradients, loss, weights).value();
//     }
//
// RunStep is Begin, Push, Finish and Pull. Call these to send each gradient as it becomes ready:
//
//     auto open_step = worker.Begin({step, tokens}).value();
//     (void)open_step.Push("hidden.weight", gradients[0]);  // or by the parameter's id
//     (void)open_step.Push(1, gradients[1]);
//     auto record = open_step.Finish({loss}).Get().value();  // the decision
//     job.Pull(step, targets).Get().value();
//
// Threads: any threads may use a Client, Job or Worker concurrently. A Worker has one open Step at
// a time. One thread pushes a given tensor of a Step; several threads may push different tensors.
// Order: push the parameters in any order, and the micro-batches of one parameter in ascending
// order.
// Memory: the library copies no tensor. Keep each view valid and unmodified until the future of
// Finish has its result.
// Do not call fork() after Connect. C++17; no gRPC, protobuf or Abseil types.
#ifndef KAON_CLIENT_KAON_CLIENT_H_
#define KAON_CLIENT_KAON_CLIENT_H_

#include <cstdint>
#include <memory>
#include <string>

#include "kaon/client_options.h"
#include "kaon/job.h"
#include "kaon/job_definition.h"
#include "kaon/status.h"
#include "kaon/step.h"
#include "kaon/worker.h"

namespace kaon {

// Totals since Connect.
struct TransferTotals {
  // Payload bytes sent and received; a byte that is resent counts again.
  uint64_t push_bytes = 0;
  uint64_t pull_bytes = 0;
  // The part of push_bytes + pull_bytes that passed through shared memory.
  uint64_t shm_bytes = 0;
  // Pushes and pulls that asked for a shared-memory session, got none and used the network.
  uint64_t shm_refusals = 0;
  // Retries of calls and streams: a connection was lost or refused, a call timed out, or a server
  // refused it. A healthy job has none.
  uint64_t retries = 0;
  // Elements pulled as float16 or bfloat16 that are infinite, because the fp32 weight exceeds the
  // largest number of that type. Each pull counts them again.
  uint64_t infinite_pulled = 0;
  // The part of push_bytes + pull_bytes that left or reached a device over NCCL.
  uint64_t nccl_bytes = 0;
};

class Client {
 public:
  Client(Client&&) noexcept;
  Client& operator=(Client&&) noexcept;
  // Cancels running operations and waits for the library's threads.
  ~Client();

  // Checks the options and the certificate files, then blocks until a coordinator answers.
  // INVALID_ARGUMENT names the option, NOT_FOUND the file that cannot be read. FAILED_PRECONDITION:
  // a file is faulty, an address that is not loopback has no TLS, or every address is another
  // server's. DEADLINE_EXCEEDED after call_deadline names the newest error of each address, such
  // as an unreachable host, an unknown CA, or a server of another role.
  static Result<Client> Connect(const ClientOptions& options);

  // Creates the job, or attaches to an equal one. ALREADY_EXISTS names the first difference,
  // INVALID_ARGUMENT the field, RESOURCE_EXHAUSTED what does not fit.
  Result<Job> Register(const JobDefinition& definition);

  // Attaches to a registered job. NOT_FOUND if no job has that name.
  Result<Job> Attach(const std::string& name);

  // Returns OK if tensors may be on that device; INVALID_ARGUMENT says why not. -1: host memory.
  // It does not ask the shards. A shard without NCCL gets the tensors through host memory.
  Status CheckDevice(int device) const;

  TransferTotals transfer_totals() const;

 private:
  class Impl;
  explicit Client(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace kaon

#endif  // KAON_CLIENT_KAON_CLIENT_H_
