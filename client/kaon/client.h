// The Kaon client library: connect to a cluster, register or attach to a job, and train.
//
//   auto client = kaon::Client::Connect(options);
//   auto job = client->Register(definition);
//   auto worker = job->Join(rank);
//   worker->LoadWeights(views).Get();                      // rank 0, once
//   auto step = worker->Begin({.step = 1, .token_weight = tokens});
//   step->Push(parameter_id, gradient_view);               // as each gradient becomes ready
//   auto record = step->Finish({.loss = loss}).Get();      // the decision
//   job->Pull(1, targets).Get();                           // the new weights
//
// Threads: Client, Job and Worker may be used from any threads at once; a Worker has one open Step
// at a time. Of a Step, one thread pushes a given tensor, several threads may push different ones.
// Gradients may be pushed in any order of parameters; micro-batches of one parameter in ascending
// order. The library keeps no copy: views stay valid and unmodified until the future of Finish has
// its result. fork() is not supported after Connect. C++17; no gRPC, protobuf or Abseil types.
#ifndef KAON_CLIENT_KAON_CLIENT_H_
#define KAON_CLIENT_KAON_CLIENT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/kaon/client_options.h"
#include "client/kaon/future.h"
#include "client/kaon/job_definition.h"
#include "client/kaon/status.h"
#include "client/kaon/step_record.h"
#include "client/kaon/tensor.h"

namespace kaon {

struct BeginOptions {
  // The job's applied step + 1.
  uint64_t step = 0;
  // Weight w of this worker in the mean over the ranks r (Step::Push), usually its token count.
  double token_weight = 1;
  // Contributions that this worker pushes for each parameter. The shard adds them; it does not
  // average them: divide each loss by this number if it is a mean.
  uint32_t micro_batches = 1;
  // Times each group's base learning rate; the same on all workers. A rank that differs from most,
  // or from rank 0 in a tie, ends its step with INVALID_ARGUMENT.
  double learning_rate_multiplier = 1;
};

struct FinishOptions {
  std::optional<double> loss;
  // Parameters without a gradient this step; every other one must have been pushed. Where other
  // ranks have one, this rank counts as zeros: its weight stays in the mean. A parameter that every
  // rank lists is left alone, or stepped with zeros, as its group's missing_gradient says.
  std::vector<uint32_t> missing_parameters;
};

struct PullTarget {
  uint32_t parameter_id = 0;
  // As many elements as the parameter; its dtype is the wire dtype (equal for all targets of a
  // pull).
  MutableTensorView into;
};

// Totals since Connect.
struct TransferTotals {
  // Payload bytes sent and received, re-sent ones included.
  uint64_t push_bytes = 0;
  uint64_t pull_bytes = 0;
  // Of these bytes, the ones that passed through shared memory.
  uint64_t shm_bytes = 0;
  // Pushes and pulls that asked for a session of it in vain and used the network.
  uint64_t shm_refusals = 0;
  // Calls and streams that were tried again because a connection was lost or refused, a call took
  // too long, or a server refused it. A healthy job has none.
  uint64_t retries = 0;
  // Elements pulled as float16 or bfloat16 that are infinite there, because the fp32 weights are
  // beyond the largest number of the type. Counted again in every pull.
  uint64_t infinite_pulled = 0;
};

class Step {
 public:
  Step(Step&&) noexcept;
  Step& operator=(Step&&) noexcept;
  ~Step();

  // Queues a contribution g. A step uses, for ranks r of token_weight w_r and micro-batches m,
  //   gradient = sum_r w_r (sum_m g_rm) / (sum_r w_r) / loss_scale.
  // The future is ready once the shard has accepted all of g, or with the step's error once the
  // step is over: DEADLINE_EXCEEDED, too, when it is not finished in time.
  // INVALID_ARGUMENT at once for an unknown parameter, a wrong element count or micro-batch, or one
  // pushed before.
  Future<Done> Push(uint32_t parameter_id, TensorView gradient, uint32_t micro_batch = 0);

  // Everything is queued: waits for the decision. DEADLINE_EXCEEDED, DATA_LOSS (the job stopped),
  // ABORTED (another process took this rank), INVALID_ARGUMENT (a gradient is neither pushed nor
  // listed as missing), FAILED_PRECONDITION (the step's timeline is over: on_rewind was called).
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

  // Loads version 0 of the weights; views by parameter id, fp32, valid until the future is ready.
  // For rank 0 of a job without weights; FAILED_PRECONDITION otherwise. INVALID_ARGUMENT when a
  // copy (ParameterSpec::tied_to) differs from its original. After a load that ended
  // without a result another may follow; if the first was decided meanwhile, its weights stay.
  Future<Done> LoadWeights(std::vector<TensorView> weights);

  // FAILED_PRECONDITION while another step is open, or when `step` is not the applied step + 1
  // (names both). A step that ended without a record may be begun again, with other gradients and
  // another share: nothing that was pushed of it before counts, unless it was decided meanwhile;
  // its record is the result then.
  Result<Step> Begin(const BeginOptions& options);

  // What the loss, and so every gradient, of the next step is to be multiplied by: as of the newest
  // step this worker finished, or of its Join. Who gave up on a step joins again to know it.
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

  // Asks the coordinator again: applied step, whether weights are loaded. DATA_LOSS if the job
  // stopped.
  Result<JobDescription> Refresh();

  // Takes a rank; an earlier process of that rank is superseded.
  Result<Worker> Join(uint32_t rank);

  // Reads version `step` (0 = initial weights) of the targets, all or an error. Memory is valid
  // until the future is ready; its contents are undefined after an error.
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
  // Cancels what is under way and waits for the library's threads.
  ~Client();

  // Checks the options and the certificate files; connections are made on first use.
  // INVALID_ARGUMENT names the option; NOT_FOUND a file that cannot be read; FAILED_PRECONDITION a
  // file that cannot be used, with its fault, or plaintext to an address that is not loopback.
  static Result<Client> Connect(const ClientOptions& options);

  // Creates the job, or attaches to an equal one; ALREADY_EXISTS names the first difference,
  // INVALID_ARGUMENT the field, RESOURCE_EXHAUSTED what does not fit.
  Result<Job> Register(const JobDefinition& definition);

  // NOT_FOUND if there is no job of that name.
  Result<Job> Attach(const std::string& name);

  TransferTotals transfer_totals() const;

 private:
  class Impl;
  explicit Client(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace kaon

#endif  // KAON_CLIENT_KAON_CLIENT_H_
