// kaon::torch::RemoteOptimizer: a torch::optim::Optimizer whose state and step are on a Kaon
// cluster. C++17, over libkaon_client; it has run with Debian's libtorch 1.13, and with 2.15 in
// C++20. Compile torch.cc with the program and include this header as <kaon/torch.h>:
//
//     kaon::torch::RemoteOptimizerOptions options;
//     options.job.name = "gpt";
//     options.job.preset = "moonlight";
//     auto optimizer =
//         kaon::torch::RemoteOptimizer::Create(model->named_parameters(), options);
//     loss.backward(); (*optimizer)->step(); (*optimizer)->zero_grad();
//
// One thread uses an optimizer at a time. It shares the parameters with the model.
#ifndef KAON_CLIENT_LIBTORCH_TORCH_H_
#define KAON_CLIENT_LIBTORCH_TORCH_H_

#include <kaon/client.h>
#include <torch/torch.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace kaon::torch {

struct RemoteOptimizerOptions {
  // The job; its parameters come from the model.
  JobDefinition job;
  uint32_t rank = 0;
  // Unset: ClientOptions::FromEnvironment.
  std::optional<ClientOptions> connection;
  // Limit of the wait for weights, which rank 0 loads.
  std::chrono::milliseconds weights_timeout = std::chrono::minutes(5);
};

// Options of a param_group. A scheduler of libtorch changes lr, and the shards
// step with it.
class GroupOptions : public ::torch::optim::OptimizerCloneableOptions<GroupOptions> {
 public:
  explicit GroupOptions(double lr = 0) : lr_(lr) {}
  double get_lr() const override { return lr_; }
  void set_lr(const double lr) override { lr_ = lr; }

 private:
  double lr_;
};

class RemoteOptimizer : public ::torch::optim::Optimizer {
 public:
  using NamedParameters = ::torch::OrderedDict<std::string, ::torch::Tensor>;

  // Registers the job and loads the model's weights, or attaches to an equal
  // job and pulls its weights. Frozen parameters are left out, and a tied one
  // is taken once. There is one param_group for each group of the job that has
  // parameters.
  //   INVALID_ARGUMENT  a dtype is not float32, bfloat16 or float16
  // Also returns the errors of Connect, Register, Join, LoadWeights and Pull.
  static Result<std::unique_ptr<RemoteOptimizer>> Create(const NamedParameters& parameters,
                                                         RemoteOptimizerOptions options);

  // Waits for the decision of all ranks and pulls the new weights. A parameter
  // without a gradient is left alone, or stepped with zeros, as its group says;
  // last_record() says why a step was skipped. An error is a c10::Error with
  // the words of status(), as libtorch's are. step() may be called again then:
  // if the step was decided, it only pulls.
  //   FAILED_PRECONDITION with another timeline() than before: the job went
  //                        back to a checkpoint, whose weights are in the
  //                        model now. Compute new gradients.
  ::torch::Tensor step(LossClosure closure = nullptr) override;

  // Takes the learning rates of the job as they are now, after `kaonctl group
  // set`. A param_group keeps its factor on them. Call it on every rank after
  // the same step; otherwise lr of a scheduler is a factor on the old rate.
  Status RefreshGroups();

  // Returns the status of the newest step.
  const Status& status() const { return status_; }
  // Returns the newest decision; empty before the first.
  const std::optional<StepRecord>& last_record() const { return last_record_; }
  uint64_t applied_step() const { return applied_step_; }
  // Grows when the job goes back to a checkpoint.
  uint64_t timeline() const { return timeline_; }
  // Multiply the loss by this before backward(); the shards divide by it. It is
  // 1 without a loss scaler.
  double loss_scale() const { return session_.worker.loss_scale(); }
  // Sets the weight of this rank's gradients in the mean over the ranks, such
  // as its number of tokens; 1 before.
  void set_token_weight(double token_weight) { token_weight_ = token_weight; }

 private:
  struct Trained {
    std::string name;
    ::torch::Tensor tensor;
  };
  // The client outlives its job and worker.
  struct Session {
    Client client;
    Job job;
    Worker worker;
  };

  RemoteOptimizer(std::vector<Trained> trained, Session session);

  static std::vector<Trained> TrainedOf(const NamedParameters& parameters);
  static std::vector<::torch::optim::OptimizerParamGroup> GroupsOf(
      const std::vector<Trained>& trained, const Job& job);
  static Status Load(Worker& worker, const std::vector<Trained>& trained);
  BeginOptions OptionsOfStep() const;
  Status Decide(const ::torch::Tensor& loss);
  Status Pull();
  void TakeGroups(const JobDescription& job);
  // Returns OK if the job did not go back to a checkpoint. Otherwise reads its
  // weights and returns `error`, or returns why it could not.
  Status FollowRewind(Status error);

  const std::vector<Trained> trained_;
  Session session_;
  // Groups with parameters, in the order of param_groups().
  std::vector<ParameterGroup> groups_;
  double token_weight_ = 1;
  uint64_t timeline_ = 0;
  uint64_t applied_step_ = 0;
  // An error that may come of a rewind, which is not followed to its end yet.
  Status unfollowed_;
  // A step is decided, and its weights are not in the parameters yet.
  bool is_unpulled_ = false;
  Status status_;
  std::optional<StepRecord> last_record_;
};

}  // namespace kaon::torch

#endif  // KAON_CLIENT_LIBTORCH_TORCH_H_
