#include <kaon/torch.h>

#include <map>

namespace kaon::torch {

namespace {

Result<DType> DTypeOf(const std::string& name, const ::torch::Tensor& tensor) {
  if (tensor.scalar_type() == ::torch::kFloat32) return DType::kFloat32;
  if (tensor.scalar_type() == ::torch::kBFloat16) return DType::kBFloat16;
  if (tensor.scalar_type() == ::torch::kFloat16) return DType::kFloat16;
  return Status(StatusCode::kInvalidArgument,
                "parameter " + name + ": dtype is " + ::c10::toString(tensor.scalar_type()) +
                    ", expecting float32, bfloat16 or float16: convert it");
}

uint64_t NumElements(const ::torch::Tensor& tensor) {
  return static_cast<uint64_t>(tensor.numel());
}

bool IsDense(const ::torch::Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.is_contiguous();
}

// Returns the groups that have parameters.
std::vector<ParameterGroup> UsedGroups(const JobDescription& job) {
  std::vector<ParameterGroup> used;
  for (const ParameterGroup& group : job.definition.groups) {
    for (const ParameterRoute& route : job.routes) {
      if (route.group != group.name) continue;
      used.push_back(group);
      break;
    }
  }
  return used;
}

}  // namespace

Result<std::unique_ptr<RemoteOptimizer>> RemoteOptimizer::Create(const NamedParameters& parameters,
                                                                 RemoteOptimizerOptions options) {
  std::vector<Trained> trained = TrainedOf(parameters);
  for (const Trained& one : trained) {
    const Result<DType> dtype = DTypeOf(one.name, one.tensor);
    if (!dtype.ok()) return dtype.status();
    ParameterSpec& spec = options.job.parameters.emplace_back();
    spec.name = one.name;
    spec.dtype = *dtype;
    for (const int64_t size : one.tensor.sizes()) spec.shape.push_back(static_cast<uint64_t>(size));
  }
  if (!options.connection.has_value()) {
    Result<ClientOptions> connection = ClientOptions::FromEnvironment();
    if (!connection.ok()) return connection.status();
    options.connection = std::move(*connection);
  }
  Result<Client> client = Client::Connect(*options.connection);
  if (!client.ok()) return client.status();
  Result<Job> job = client->Register(options.job);
  if (!job.ok()) return job.status();
  Result<Worker> worker = job->Join(options.rank);
  if (!worker.ok()) return worker.status();
  if (options.rank == 0 && !job->description().weights_loaded) {
    const Status loaded = Load(*worker, trained);
    if (!loaded.ok()) return loaded;
  }
  const Result<uint64_t> applied = job->WaitForWeights(options.weights_timeout);
  if (!applied.ok()) return applied.status();
  std::unique_ptr<RemoteOptimizer> optimizer(new RemoteOptimizer(
      std::move(trained), {std::move(*client), std::move(*job), std::move(*worker)}));
  const Result<JobDescription> now = optimizer->session_.job.Refresh();
  if (!now.ok()) return now.status();
  optimizer->timeline_ = now->timeline;
  optimizer->applied_step_ = now->applied_step;
  const Status pulled = optimizer->Pull();
  if (!pulled.ok()) return pulled;
  return optimizer;
}

RemoteOptimizer::RemoteOptimizer(std::vector<Trained> trained, Session session)
    : Optimizer(GroupsOf(trained, session.job), std::make_unique<GroupOptions>()),
      trained_(std::move(trained)),
      session_(std::move(session)),
      groups_(UsedGroups(session_.job.description())) {}

std::vector<RemoteOptimizer::Trained> RemoteOptimizer::TrainedOf(
    const NamedParameters& parameters) {
  std::vector<Trained> trained;
  for (const auto& item : parameters) {
    bool is_tied = false;
    for (const Trained& other : trained) is_tied |= other.tensor.is_same(item.value());
    if (item.value().requires_grad() && !is_tied) trained.push_back({item.key(), item.value()});
  }
  return trained;
}

std::vector<::torch::optim::OptimizerParamGroup> RemoteOptimizer::GroupsOf(
    const std::vector<Trained>& trained, const Job& job) {
  std::vector<::torch::optim::OptimizerParamGroup> groups;
  for (const ParameterGroup& group : UsedGroups(job.description())) {
    std::vector<::torch::Tensor> members;
    for (size_t id = 0; id < trained.size(); ++id) {
      if (job.description().routes[id].group == group.name) members.push_back(trained[id].tensor);
    }
    groups.emplace_back(std::move(members), std::make_unique<GroupOptions>(group.lr.value_or(0)));
  }
  return groups;
}

Status RemoteOptimizer::Load(Worker& worker, const std::vector<Trained>& trained) {
  std::vector<::torch::Tensor> dense;
  std::vector<TensorView> views;
  for (const Trained& one : trained) {
    dense.push_back(one.tensor.detach().to(::torch::kCPU, ::torch::kFloat32).contiguous());
    views.push_back({dense.back().data_ptr(), NumElements(dense.back())});
  }
  return worker.LoadWeights(std::move(views)).Get().status();
}

BeginOptions RemoteOptimizer::OptionsOfStep() const {
  BeginOptions begin;
  begin.step = applied_step_ + 1;
  begin.token_weight = token_weight_;
  for (size_t i = 0; i < groups_.size(); ++i) {
    const double base = groups_[i].lr.value_or(0);
    const double lr = param_groups()[i].options().get_lr();
    // A base of 0 makes infinity, which Begin refuses.
    if (lr != base) begin.group_multipliers[groups_[i].name] = lr / base;
  }
  return begin;
}

Status RemoteOptimizer::Decide(const ::torch::Tensor& loss) {
  FinishOptions finish;
  if (loss.defined()) finish.loss = loss.item<double>();
  // The library reads them until the step is decided or destroyed.
  std::vector<::torch::Tensor> gradients;
  Result<Step> step = session_.worker.Begin(OptionsOfStep());
  if (!step.ok()) return step.status();
  for (uint32_t id = 0; id < trained_.size(); ++id) {
    const ::torch::Tensor gradient = trained_[id].tensor.grad();
    if (!gradient.defined()) {
      finish.missing_parameters.push_back(id);
      continue;
    }
    gradients.push_back(gradient.to(::torch::kCPU).contiguous());
    const Result<DType> dtype = DTypeOf(trained_[id].name, gradient);
    if (!dtype.ok()) return dtype.status();
    Future<Done> pushed =
        step->Push(id, {gradients.back().data_ptr(), NumElements(gradient), *dtype});
    // The future is ready at once if a view does not fit.
    if (!pushed.Ready()) continue;
    const Status refused = pushed.Get().status();
    if (!refused.ok()) return refused;
  }
  Result<StepRecord> record = step->Finish(std::move(finish)).Get();
  if (!record.ok()) return record.status();
  last_record_ = std::move(*record);
  applied_step_ = last_record_->step;
  is_unpulled_ = last_record_->applied;
  return Status();
}

Status RemoteOptimizer::Pull() {
  ::torch::NoGradGuard no_gradients;
  std::vector<::torch::Tensor> received;
  // A pull has one dtype.
  std::map<DType, std::vector<PullTarget>> by_dtype;
  for (uint32_t id = 0; id < trained_.size(); ++id) {
    const ::torch::Tensor& tensor = trained_[id].tensor;
    received.push_back(
        IsDense(tensor) ? tensor.detach()
                        : ::torch::empty(tensor.sizes(), tensor.options().device(::torch::kCPU)));
    const Result<DType> dtype = DTypeOf(trained_[id].name, tensor);
    if (!dtype.ok()) return dtype.status();
    by_dtype[*dtype].emplace_back(
        id, MutableTensorView{received.back().data_ptr(), NumElements(tensor), *dtype});
  }
  for (auto& [dtype, targets] : by_dtype) {
    const Status pulled = session_.job.Pull(applied_step_, std::move(targets)).Get().status();
    if (!pulled.ok()) return pulled;
  }
  for (size_t id = 0; id < trained_.size(); ++id) {
    if (!IsDense(trained_[id].tensor)) trained_[id].tensor.detach().copy_(received[id]);
  }
  is_unpulled_ = false;
  return Status();
}

void RemoteOptimizer::TakeGroups(const JobDescription& job) {
  const std::vector<ParameterGroup> old = std::exchange(groups_, UsedGroups(job));
  for (size_t i = 0; i < groups_.size(); ++i) {
    const double before = old[i].lr.value_or(0);
    const double base = groups_[i].lr.value_or(0);
    ::torch::optim::OptimizerOptions& options = param_groups()[i].options();
    // Ranks' factors must be equal to the last bit.
    if (base != before) options.set_lr(before == 0 ? base : base * (options.get_lr() / before));
  }
}

Status RemoteOptimizer::RefreshGroups() {
  const Result<JobDescription> now = session_.job.Refresh();
  if (!now.ok()) return now.status();
  TakeGroups(*now);
  return Status();
}

Status RemoteOptimizer::FollowRewind(Status error) {
  unfollowed_ = error;
  const Result<JobDescription> now = session_.job.Refresh();
  if (!now.ok()) return now.status();
  if (now->timeline == timeline_) {
    unfollowed_ = Status();
    return Status();
  }
  // A worker learns the loss scale of another timeline from a step that it loses to it, or from a
  // join.
  Result<Worker> worker = session_.job.Join(session_.worker.rank());
  if (!worker.ok()) return worker.status();
  session_.worker = std::move(*worker);
  applied_step_ = now->applied_step;
  const Status pulled = Pull();
  if (!pulled.ok()) return pulled;
  timeline_ = now->timeline;
  // The checkpoint may be older than a change of groups.
  TakeGroups(*now);
  unfollowed_ = Status();
  return error;
}

::torch::Tensor RemoteOptimizer::step(LossClosure closure) {
  ::torch::Tensor loss;
  // The gradients may be of the weights before.
  status_ = unfollowed_.ok() ? Status() : FollowRewind(unfollowed_);
  TORCH_CHECK(status_.ok(), "kaon: ", status_.message());
  if (!is_unpulled_) {
    if (closure != nullptr) {
      ::torch::AutoGradMode with_gradients(true);
      loss = closure();
    }
    ::torch::NoGradGuard no_gradients;
    status_ = Decide(loss);
  }
  if (status_.ok() && is_unpulled_) status_ = Pull();
  if (status_.code() == StatusCode::kFailedPrecondition) {
    const Status followed = FollowRewind(status_);
    if (!followed.ok()) status_ = followed;
  }
  TORCH_CHECK(status_.ok(), "kaon: ", status_.message());
  return loss;
}

}  // namespace kaon::torch
