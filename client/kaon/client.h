// The Kaon client library: connect to a cluster, register or attach to a job, and train.
//
//     auto client = kaon::Client::Connect(options);
//     auto job = client->Register(definition);
//     auto worker = job->Join(rank);
//     worker->LoadWeights(views).Get();                      // rank 0, once
//     auto step = worker->Begin({.step = 1, .token_weight = tokens});
//     step->Push(parameter_id, gradient_view);               // as each gradient becomes ready
//     auto record = step->Finish({.loss = loss}).Get();      // the decision
//     job->Pull(1, targets).Get();                           // the new weights
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
#include <optional>
#include <string>
#include <vector>

#include "kaon/client_options.h"
#include "kaon/future.h"
#include "kaon/job_definition.h"
#include "kaon/status.h"
#include "kaon/step_record.h"
#include "kaon/tensor.h"

namespace kaon {

struct BeginOptions {
  // The job's applied step + 1.
  uint64_t step = 0;
  // Weight w of this worker in the mean over the ranks r (Step::Push), usually its token count.
  double token_weight = 1;
  // Contributions that this worker pushes for each parameter. The shard adds them and does not
  // average them: if the loss is a mean, divide each loss by this number.
  uint32_t micro_batches = 1;
  // Factor on each group's base learning rate. All workers must pass the same value. A rank that
  // differs from most ranks, or in a tie from rank 0, ends its step with INVALID_ARGUMENT.
  double learning_rate_multiplier = 1;
};

struct FinishOptions {
  std::optional<double> loss;
  // Ids of the parameters without a gradient in this step; push all others. If other ranks push a
  // listed parameter, this rank counts as zeros: its weight stays in the mean. If every rank lists
  // it, ParameterGroup::missing_gradient decides: leave it alone, or step it with zeros.
  std::vector<uint32_t> missing_parameters;
};

struct PullTarget {
  uint32_t parameter_id = 0;
  // Memory for as many elements as the parameter has. Its dtype is the wire dtype, equal for all
  // targets of a pull.
  MutableTensorView into;
};

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
};

class Step {
 public:
  Step(Step&&) noexcept;
  Step& operator=(Step&&) noexcept;
  ~Step();

  // Queues a contribution g; `gradient` has the parameter's element count. For ranks r of
  // token_weight w_r and micro-batches m, a step uses
  //     gradient = sum_r w_r (sum_m g_rm) / (sum_r w_r) / loss_scale.
  // The future is ready once the shard has accepted all of g. If the step ends first, the future
  // has the step's error; DEADLINE_EXCEEDED if Finish is not called in time.
  // Fails at once with INVALID_ARGUMENT for an unknown parameter, a wrong element count or
  // micro-batch, or a contribution that was pushed before.
  Future<Done> Push(uint32_t parameter_id, TensorView gradient, uint32_t micro_batch = 0);

  // Declares that every gradient is queued, and waits for the decision. Errors: DEADLINE_EXCEEDED;
  // DATA_LOSS (the job stopped); ABORTED (another process took this rank).
  // INVALID_ARGUMENT: a gradient is neither pushed nor listed as missing. FAILED_PRECONDITION: the
  // step's timeline is over, and on_rewind was called.
  Future<StepRecord> Finish(FinishOptions options = {});

 private:
  friend class Worker;
  class Impl;
  explicit Step(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

class Worker {
 public:
  Worker(Worker&&) noexcept;
  Worker& operator=(Worker&&) noexcept;
  ~Worker();

  // Loads version 0 of the weights. `weights`: one fp32 view for each parameter id, valid until the
  // future is ready. Call it on rank 0 of a job without weights; otherwise FAILED_PRECONDITION.
  // INVALID_ARGUMENT when a copy (ParameterSpec::tied_to) differs from its original.
  // You may retry a load that ended without a result. If the first one was decided after all, its
  // weights stay.
  Future<Done> LoadWeights(std::vector<TensorView> weights);

  // Opens a step. FAILED_PRECONDITION while another step is open, or when `step` is not the applied
  // step + 1; the error names both numbers.
  // You may retry a step that ended without a record, with other gradients and another token
  // weight. Earlier pushes are discarded. If the first try was decided after all, Finish returns
  // its record.
  Result<Step> Begin(const BeginOptions& options);

  // Multiply the next loss, and so every gradient, by this. Finish and Join update it; after
  // abandoning a step, Join again.
  double loss_scale() const;

  uint32_t rank() const;

 private:
  friend class Job;
  class Impl;
  explicit Worker(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

class Job {
 public:
  Job(Job&&) noexcept;
  Job& operator=(Job&&) noexcept;
  ~Job();

  const JobDescription& description() const;

  // Reads the applied step and weights_loaded from the coordinator again. DATA_LOSS if the job
  // stopped.
  Result<JobDescription> Refresh();

  // Claims a rank. An earlier process of that rank loses it: its calls end with ABORTED.
  Result<Worker> Join(uint32_t rank);

  // Reads version `step` of the targets (0: the initial weights); delivers all of them, or an
  // error. Keep the memory valid until the future is ready; its contents are undefined after an
  // error.
  Future<Done> Pull(uint64_t step, std::vector<PullTarget> targets);

 private:
  friend class Client;
  class Impl;
  explicit Job(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

class Client {
 public:
  Client(Client&&) noexcept;
  Client& operator=(Client&&) noexcept;
  // Cancels running operations and waits for the library's threads.
  ~Client();

  // Checks the options and the certificate files; the first call connects. INVALID_ARGUMENT names
  // the option, NOT_FOUND the file that cannot be read. FAILED_PRECONDITION: a file is faulty, or
  // an address that is not loopback has no TLS.
  static Result<Client> Connect(const ClientOptions& options);

  // Creates the job, or attaches to an equal one. ALREADY_EXISTS names the first difference,
  // INVALID_ARGUMENT the field, RESOURCE_EXHAUSTED what does not fit.
  Result<Job> Register(const JobDefinition& definition);

  // Attaches to a registered job. NOT_FOUND if no job has that name.
  Result<Job> Attach(const std::string& name);

  TransferTotals transfer_totals() const;

 private:
  class Impl;
  explicit Client(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace kaon

#endif  // KAON_CLIENT_KAON_CLIENT_H_
