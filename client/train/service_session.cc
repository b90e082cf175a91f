#include "client/train/service_session.h"

#include <chrono>
#include <set>
#include <thread>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "kernels/steady_clock.h"
#include "proto/status_macros.h"

namespace kaon::train {
namespace {

// Time between checks of a waiting worker whether to give up.
constexpr std::chrono::milliseconds kLookInterval(100);
// Time that an open step may take after the user requested a stop.
constexpr absl::Duration kStopGrace = absl::Seconds(10);

absl::Status ToAbsl(const kaon::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.code()), status.message());
}

kaon::TensorView ViewOf(const std::vector<std::byte>& tensor, kernels::DType dtype) {
  return {tensor.data(), tensor.size() / kernels::SizeOf(dtype), static_cast<kaon::DType>(dtype)};
}

}  // namespace

absl::StatusOr<std::unique_ptr<ServiceSession>> ServiceSession::Create(
    const ServiceSessionOptions& options, StopGate& gate) {
  auto rewind = std::make_shared<Rewind>();
  kaon::ClientOptions client_options = options.client;
  client_options.on_rewind = [rewind](uint64_t, uint64_t step) {
    MutexLock lock(rewind->mu);
    rewind->step = step;
  };
  std::unique_ptr<DeviceGradients> on_device;
  if (!client_options.nccl.empty()) {
    KAON_ASSIGN_OR_RETURN(on_device, DeviceGradients::Create(client_options.nccl_device));
  }
  kaon::Result<kaon::Client> client = kaon::Client::Connect(client_options);
  if (!client.ok()) return ToAbsl(client.status());
  kaon::Result<kaon::Job> job = client->Register(options.job);
  if (!job.ok()) return ToAbsl(job.status());
  kaon::Result<kaon::Worker> worker = job->Join(options.rank);
  if (!worker.ok()) return ToAbsl(worker.status());
  return std::make_unique<ServiceSession>(std::move(client).value(), std::move(job).value(),
                                          std::move(worker).value(), gate, std::move(rewind),
                                          std::move(on_device));
}

template <typename T>
kaon::Result<T> ServiceSession::Await(kaon::Future<T> future) {
  return Await(std::move(future), [&future] { future.Cancel(); });
}

template <typename T, typename Cancel>
kaon::Result<T> ServiceSession::Await(kaon::Future<T>&& future, const Cancel& cancel) {
  absl::Time give_up = absl::InfiniteFuture();
  while (!future.WaitFor(kLookInterval)) {
    if (give_up == absl::InfiniteFuture() && gate_.stop_requested()) {
      give_up = SteadyNow() + kStopGrace;
    }
    if (!gate_.failure().ok() || SteadyNow() > give_up) {
      cancel();
      break;
    }
  }
  return future.Get();
}

absl::StatusOr<uint64_t> ServiceSession::Start(
    const std::vector<std::vector<float>>& initial_weights) {
  kaon::Result<kaon::JobDescription> job = job_.Refresh();
  if (!job.ok()) return ToAbsl(job.status());
  // The session starts at the present step, so earlier rewinds do not matter.
  (void)TakeRewind();
  KAON_RETURN_IF_ERROR(FollowRewind());
  if (!job->weights_loaded && worker_.rank() == 0) {
    std::vector<kaon::TensorView> views;
    for (const std::vector<float>& tensor : initial_weights) {
      views.push_back({tensor.data(), tensor.size(), kaon::DType::kFloat32});
    }
    const kaon::Result<kaon::Done> loaded = Await(worker_.LoadWeights(std::move(views)));
    if (!loaded.ok()) return ToAbsl(loaded.status());
    return uint64_t{0};
  }
  while (!job->weights_loaded) {
    if (!gate_.failure().ok() || gate_.stop_requested()) {
      return absl::CancelledError("stopped while waiting for rank 0 to load the weights");
    }
    std::this_thread::sleep_for(kLookInterval);
    job = job_.Refresh();
    if (!job.ok()) return ToAbsl(job.status());
  }
  return job->applied_step;
}

absl::StatusOr<StepOutcome> ServiceSession::Exchange(const StepContribution& contribution) {
  const absl::Time begin = SteadyNow();
  kaon::BeginOptions options;
  options.step = contribution.step;
  options.token_weight = contribution.token_weight;
  options.learning_rate_multiplier = contribution.learning_rate_multiplier;
  options.group_multipliers = contribution.group_multipliers;
  kaon::Result<kaon::Step> step = worker_.Begin(options);
  if (!step.ok()) return ToAbsl(step.status());
  const TensorBuffers& gradients = *contribution.gradients;
  if (on_device_ != nullptr) KAON_RETURN_IF_ERROR(on_device_->CopyIn(gradients));
  std::vector<kaon::Future<kaon::Done>> pushes;
  const std::set<uint32_t> missing(contribution.missing_parameters.begin(),
                                   contribution.missing_parameters.end());
  for (uint32_t id = 0; id < gradients.tensors.size(); ++id) {
    if (missing.count(id) > 0) continue;
    kaon::TensorView view = ViewOf(gradients.tensors[id], gradients.dtype);
    if (on_device_ != nullptr) {
      view.elements = on_device_->data(id);
      view.device = on_device_->device();
    }
    pushes.push_back(step->Push(id, view));
  }
  kaon::FinishOptions finish;
  finish.loss = contribution.loss;
  finish.missing_parameters = contribution.missing_parameters;
  kaon::Future<kaon::StepRecord> decision = step->Finish(finish);
  absl::Status failed;
  for (kaon::Future<kaon::Done>& push : pushes) {
    const kaon::Result<kaon::Done> pushed =
        Await(std::move(push), [&decision] { decision.Cancel(); });
    if (!pushed.ok() && failed.ok()) failed = ToAbsl(pushed.status());
  }
  StepOutcome outcome;
  const absl::Time pushed = SteadyNow();
  outcome.push_seconds = absl::ToDoubleSeconds(pushed - begin);
  // The gradients are in use until the decision, also after a failed push.
  if (!failed.ok()) decision.Cancel();
  kaon::Result<kaon::StepRecord> record = Await(std::move(decision));
  if (!record.ok()) {
    return failed.ok() || absl::IsCancelled(failed) ? ToAbsl(record.status()) : failed;
  }
  outcome.record = std::move(record).value();
  outcome.decide_seconds = absl::ToDoubleSeconds(SteadyNow() - pushed);
  return outcome;
}

absl::Status ServiceSession::FollowRewind() {
  if (!std::exchange(rewound_, false)) return absl::OkStatus();
  kaon::Result<kaon::Worker> worker = job_.Join(worker_.rank());
  if (!worker.ok()) return ToAbsl(worker.status());
  worker_ = std::move(worker).value();
  return absl::OkStatus();
}

absl::Status ServiceSession::Pull(uint64_t step, TensorBuffers* weights) {
  KAON_RETURN_IF_ERROR(FollowRewind());
  if (on_device_ != nullptr) KAON_RETURN_IF_ERROR(on_device_->AllocateWeights(*weights));
  std::vector<kaon::PullTarget> targets;
  for (uint32_t id = 0; id < weights->tensors.size(); ++id) {
    const kaon::TensorView view = ViewOf(weights->tensors[id], weights->dtype);
    kaon::MutableTensorView into = {weights->tensors[id].data(), view.num_elements, view.dtype};
    if (on_device_ != nullptr) {
      into.elements = on_device_->weights(id);
      into.device = on_device_->device();
    }
    targets.push_back({id, into});
  }
  const absl::Status pulled = ToAbsl(Await(job_.Pull(step, std::move(targets))).status());
  if (pulled.ok() && on_device_ != nullptr) on_device_->CopyOut(weights);
  // The version may belong to an old timeline; Refresh learns of the new one.
  if (absl::IsFailedPrecondition(pulled)) (void)job_.Refresh();
  return pulled;
}

std::optional<uint64_t> ServiceSession::TakeRewind() {
  MutexLock lock(rewind_->mu);
  rewound_ = rewound_ || rewind_->step.has_value();
  return std::exchange(rewind_->step, std::nullopt);
}

TransferredBytes ServiceSession::transferred() const {
  const kaon::TransferTotals totals = client_.transfer_totals();
  return {totals.push_bytes, totals.pull_bytes, totals.shm_bytes};
}

}  // namespace kaon::train
