#include "client/kaon/kaon.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/c/handles.h"
#include "client/c/sized_struct.h"
#include "client/wire/job_json.h"
#include "client/wire/public_status.h"
#include "proto/version.h"

using kaon::Result;
using kaon::Status;
using kaon::StatusCode;
using kaon::c::Attempt;
using kaon::c::CheckArguments;
using kaon::c::Free;
using kaon::c::Guarded;
using kaon::c::ReadStruct;
using kaon::c::Release;
using kaon::c::ReleaseFuture;
using kaon::c::WriteStruct;

// Does what KAON_RETURN_IF_ERROR does, for public statuses.
#define KAON_C_RETURN_IF_ERROR(expression)                         \
  do {                                                             \
    if (Status status = (expression); !status.ok()) return status; \
  } while (false)

namespace {

// Keeps times within the range of chrono's nanoseconds; no deadline is as long.
constexpr uint64_t kLongestMs = uint64_t{1} << 40;

constexpr double kAbsent = std::numeric_limits<double>::quiet_NaN();

Status InvalidArgument(std::string message) {
  return Status(StatusCode::kInvalidArgument, std::move(message));
}

// Returns a copy that kaon_string_free frees.
char* CopyOf(const std::string& text) {
  char* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy != nullptr) std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

Result<kaon::ClientOptions> OptionsFromC(const kaon_client_options& from) {
  kaon::ClientOptions options;
  if (from.endpoints == nullptr) {
    Result<kaon::ClientOptions> environment = kaon::ClientOptions::FromEnvironment();
    if (!environment.ok()) return environment.status();
    options = std::move(*environment);
  } else {
    options.coordinators = absl::StrSplit(from.endpoints, ',');
  }
  if (from.tls_ca != nullptr) options.tls.ca = from.tls_ca;
  if (from.tls_certificate != nullptr) options.tls.certificate = from.tls_certificate;
  if (from.tls_private_key != nullptr) options.tls.private_key = from.tls_private_key;
  if (from.transport < KAON_TRANSPORT_AUTO || from.transport > KAON_TRANSPORT_SHM) {
    return InvalidArgument(absl::StrCat("transport is ", from.transport, ", expecting 0 .. 2"));
  }
  options.transport = static_cast<kaon::Transport>(from.transport);
  if (from.lanes != 0) options.lanes = from.lanes;
  const auto set_ms = [](uint64_t ms, std::chrono::milliseconds& to) {
    if (ms != 0) to = std::chrono::milliseconds(std::min(ms, kLongestMs));
  };
  set_ms(from.call_deadline_ms, options.call_deadline);
  set_ms(from.step_deadline_ms, options.step_deadline);
  set_ms(from.wait_log_interval_ms, options.wait_log_interval);
  if (from.max_bytes_in_flight != 0) options.max_bytes_in_flight = from.max_bytes_in_flight;
  if (from.nccl != nullptr) options.nccl = from.nccl;
  options.nccl_device = from.nccl_device;
  if (from.on_rewind != nullptr) {
    options.on_rewind = [call = from.on_rewind, argument = from.on_rewind_argument](
                            uint64_t timeline, uint64_t step) { call(argument, timeline, step); };
  }
  return options;
}

Status CheckTensors(const kaon_tensor* tensors, size_t number) {
  if (number > 0) KAON_C_RETURN_IF_ERROR(CheckArguments({{"tensors", tensors}}));
  for (size_t i = 0; i < number; ++i) {
    if (tensors[i].dtype >= KAON_FLOAT32 && tensors[i].dtype <= KAON_FLOAT16) continue;
    return InvalidArgument(absl::StrCat("parameter ", tensors[i].parameter_id, ": dtype is ",
                                        tensors[i].dtype, ", expecting 1 .. 3"));
  }
  return Status();
}

Status CheckNotForked(const kaon_future& future) {
  if (!future.InForkedChild()) return Status();
  return Status(StatusCode::kFailedPrecondition,
                absl::StrCat("this process is a fork of process ", future.process,
                             ", which has the future: connect after fork()"));
}

kaon::TensorView ViewOf(const kaon_tensor& tensor, int device = -1, void* ready_event = nullptr) {
  return {tensor.elements, tensor.num_elements, static_cast<kaon::DType>(tensor.dtype), device,
          ready_event};
}

Status FillRecord(const kaon_future& future, kaon_step_record* to) {
  const kaon::StepRecord& from = *future.completion->record();
  kaon::MutexLock lock(future.mu);
  if (future.groups.empty() && future.norm_groups.empty()) {
    for (const kaon::GroupNorm& group : from.norms) {
      future.groups.push_back({group.group.c_str(), group.norm.value_or(kAbsent), kAbsent,
                               group.clip_factor, group.exempt});
    }
    for (const kaon::NormGroupNorm& group : from.norm_groups) {
      future.norm_groups.push_back({group.norm_group.c_str(), group.norm.value_or(kAbsent),
                                    group.live_norm.value_or(kAbsent), group.clip_factor, 0});
    }
  }
  kaon_step_record record = {};
  record.step = from.step;
  record.reason = from.reason.c_str();
  record.ranks = from.ranks.data();
  record.num_ranks = from.ranks.size();
  record.groups = future.groups.data();
  record.num_groups = future.groups.size();
  record.norm_groups = future.norm_groups.data();
  record.num_norm_groups = future.norm_groups.size();
  record.grad_norm = from.grad_norm.value_or(kAbsent);
  record.live_norm = from.live_norm.value_or(kAbsent);
  record.loss = from.loss.value_or(kAbsent);
  record.next_loss_scale = from.next_loss_scale;
  record.applied_updates = from.applied_updates;
  record.state_digest = from.state_digest;
  record.applied = from.applied;
  return WriteStruct("kaon_step_record", record, to);
}

}  // namespace

extern "C" {

const char* kaon_version(void) {
  static const std::string* const version =
      std::make_unique<std::string>(kaon::proto::ThisVersion().version).release();
  return version->c_str();
}

int32_t kaon_status_code(const kaon_status* status) {
  return status == nullptr ? 0 : static_cast<int32_t>(status->status.code());
}

const char* kaon_status_message(const kaon_status* status) {
  return status == nullptr ? "" : status->status.message().c_str();
}

int32_t kaon_status_retriable(const kaon_status* status) {
  return status != nullptr && status->status.retriable();
}

void kaon_status_free(kaon_status* status) { Free(status); }

void kaon_string_free(char* text) { std::free(text); }

kaon_status* kaon_client_connect(const kaon_client_options* options, kaon_client** client) {
  return Guarded([&]() -> Status {
    KAON_C_RETURN_IF_ERROR(CheckArguments({{"client", client}}));
    kaon_client_options known = {};
    if (options != nullptr) {
      KAON_C_RETURN_IF_ERROR(ReadStruct("kaon_client_options", options, known));
    }
    const Result<kaon::ClientOptions> converted = OptionsFromC(known);
    if (!converted.ok()) return converted.status();
    Result<kaon::Client> connected = kaon::Client::Connect(*converted);
    if (!connected.ok()) return connected.status();
    Release(client, std::move(*connected));
    return Status();
  });
}

kaon_status* kaon_client_register(kaon_client* client, const char* definition_json,
                                  kaon_job** job) {
  return Guarded([&]() -> Status {
    KAON_C_RETURN_IF_ERROR(
        CheckArguments({{"client", client}, {"definition_json", definition_json}, {"job", job}}));
    const absl::StatusOr<kaon::JobDefinition> definition =
        kaon::client::ParseJobDefinition(definition_json);
    if (!definition.ok()) return kaon::client::ToPublic(definition.status());
    Result<kaon::Job> registered = client->client.Register(*definition);
    if (!registered.ok()) return registered.status();
    Release(job, std::move(*registered));
    return Status();
  });
}

kaon_status* kaon_client_attach(kaon_client* client, const char* name, kaon_job** job) {
  return Guarded([&]() -> Status {
    KAON_C_RETURN_IF_ERROR(CheckArguments({{"client", client}, {"name", name}, {"job", job}}));
    Result<kaon::Job> attached = client->client.Attach(name);
    if (!attached.ok()) return attached.status();
    Release(job, std::move(*attached));
    return Status();
  });
}

kaon_status* kaon_client_transfer_totals(const kaon_client* client, kaon_transfer_totals* totals) {
  return Guarded([&]() -> Status {
    KAON_C_RETURN_IF_ERROR(CheckArguments({{"client", client}, {"totals", totals}}));
    const kaon::TransferTotals from = client->client.transfer_totals();
    return WriteStruct("kaon_transfer_totals",
                       kaon_transfer_totals{sizeof(kaon_transfer_totals), from.push_bytes,
                                            from.pull_bytes, from.shm_bytes, from.shm_refusals,
                                            from.retries, from.infinite_pulled, from.nccl_bytes},
                       totals);
  });
}

kaon_status* kaon_client_check_device(const kaon_client* client, int32_t device) {
  return Guarded([&]() -> Status {
    KAON_C_RETURN_IF_ERROR(CheckArguments({{"client", client}}));
    return client->client.CheckDevice(device);
  });
}

void kaon_client_free(kaon_client* client) { Free(client); }

kaon_status* kaon_job_description(const kaon_job* job, char** json) {
  return Guarded([&]() -> Status {
    KAON_C_RETURN_IF_ERROR(CheckArguments({{"job", job}, {"json", json}}));
    const absl::StatusOr<std::string> text = kaon::client::DescriptionJson(job->job.description());
    if (!text.ok()) return kaon::client::ToPublic(text.status());
    *json = CopyOf(*text);
    if (*json == nullptr) return Status(StatusCode::kResourceExhausted, "no memory is left");
    return Status();
  });
}

kaon_status* kaon_job_refresh(kaon_job* job, kaon_progress* progress) {
  return Guarded([&]() -> Status {
    KAON_C_RETURN_IF_ERROR(CheckArguments({{"job", job}, {"progress", progress}}));
    const Result<kaon::JobDescription> now = job->job.Refresh();
    if (!now.ok()) return now.status();
    return WriteStruct(
        "kaon_progress",
        kaon_progress{sizeof(kaon_progress), now->timeline, now->applied_step, now->weights_loaded},
        progress);
  });
}

kaon_status* kaon_job_wait_for_weights(kaon_job* job, uint64_t timeout_ms, uint64_t* step) {
  return Guarded([&]() -> Status {
    KAON_C_RETURN_IF_ERROR(CheckArguments({{"job", job}, {"step", step}}));
    const Result<uint64_t> applied =
        job->job.WaitForWeights(std::chrono::milliseconds(std::min(timeout_ms, kLongestMs)));
    if (!applied.ok()) return applied.status();
    *step = *applied;
    return Status();
  });
}

kaon_status* kaon_job_join(kaon_job* job, uint32_t rank, kaon_worker** worker) {
  return Guarded([&]() -> Status {
    KAON_C_RETURN_IF_ERROR(CheckArguments({{"job", job}, {"worker", worker}}));
    Result<kaon::Worker> joined = job->job.Join(rank);
    if (!joined.ok()) return joined.status();
    Release(worker, std::move(*joined));
    return Status();
  });
}

kaon_status* kaon_job_pull(kaon_job* job, uint64_t step, const kaon_tensor* tensors,
                           size_t num_tensors, kaon_future** pulled) {
  return kaon_job_pull_to_device(job, step, tensors, num_tensors, -1, pulled);
}

kaon_status* kaon_job_pull_to_device(kaon_job* job, uint64_t step, const kaon_tensor* tensors,
                                     size_t num_tensors, int32_t device, kaon_future** pulled) {
  return Guarded([&]() -> Status {
    KAON_C_RETURN_IF_ERROR(CheckArguments({{"job", job}, {"pulled", pulled}}));
    KAON_C_RETURN_IF_ERROR(CheckTensors(tensors, num_tensors));
    std::vector<kaon::PullTarget> targets;
    targets.reserve(num_tensors);
    for (size_t i = 0; i < num_tensors; ++i) {
      targets.emplace_back(
          tensors[i].parameter_id,
          kaon::MutableTensorView{tensors[i].elements, tensors[i].num_elements,
                                  static_cast<kaon::DType>(tensors[i].dtype), device});
    }
    ReleaseFuture(job->job.Pull(step, std::move(targets)), pulled);
    return Status();
  });
}

void kaon_job_free(kaon_job* job) { Free(job); }

kaon_status* kaon_worker_load_weights(kaon_worker* worker, const kaon_tensor* tensors,
                                      size_t num_tensors, kaon_future** loaded) {
  return Guarded([&]() -> Status {
    KAON_C_RETURN_IF_ERROR(CheckArguments({{"worker", worker}, {"loaded", loaded}}));
    KAON_C_RETURN_IF_ERROR(CheckTensors(tensors, num_tensors));
    std::vector<kaon::TensorView> views;
    views.reserve(num_tensors);
    for (size_t i = 0; i < num_tensors; ++i) {
      if (tensors[i].parameter_id != i) {
        return InvalidArgument(absl::StrCat("tensor ", i, " is of parameter ",
                                            tensors[i].parameter_id, ", expecting parameter ", i));
      }
      views.push_back(ViewOf(tensors[i]));
    }
    ReleaseFuture(worker->worker.LoadWeights(std::move(views)), loaded);
    return Status();
  });
}

kaon_status* kaon_worker_begin(kaon_worker* worker, const kaon_begin_options* options,
                               kaon_step** step) {
  return Guarded([&]() -> Status {
    KAON_C_RETURN_IF_ERROR(
        CheckArguments({{"worker", worker}, {"options", options}, {"step", step}}));
    kaon_begin_options known = KAON_BEGIN_OPTIONS_INIT;
    KAON_C_RETURN_IF_ERROR(ReadStruct("kaon_begin_options", options, known));
    kaon::BeginOptions begin;
    begin.step = known.step;
    begin.token_weight = known.token_weight;
    begin.micro_batches = known.micro_batches;
    begin.learning_rate_multiplier = known.learning_rate_multiplier;
    if (known.num_group_factors > 0) {
      KAON_C_RETURN_IF_ERROR(CheckArguments({{"group_factors", known.group_factors}}));
    }
    for (size_t i = 0; i < known.num_group_factors; ++i) {
      const kaon_group_factor& factor = known.group_factors[i];
      KAON_C_RETURN_IF_ERROR(CheckArguments({{"group_factors[].group", factor.group}}));
      begin.group_multipliers[factor.group] = factor.factor;
    }
    if (known.traceparent != nullptr) begin.traceparent = known.traceparent;
    Result<kaon::Step> begun = worker->worker.Begin(begin);
    if (!begun.ok()) return begun.status();
    Release(step, std::move(*begun));
    return Status();
  });
}

double kaon_worker_loss_scale(const kaon_worker* worker) {
  return worker == nullptr ? 1 : worker->worker.loss_scale();
}

void kaon_worker_free(kaon_worker* worker) { Free(worker); }

kaon_status* kaon_step_push(kaon_step* step, const kaon_tensor* gradient, uint32_t micro_batch,
                            kaon_future** pushed) {
  return Guarded([&]() -> Status {
    KAON_C_RETURN_IF_ERROR(CheckArguments({{"step", step}, {"gradient", gradient}}));
    KAON_C_RETURN_IF_ERROR(CheckTensors(gradient, 1));
    kaon::Future<kaon::Done> future =
        step->step.Push(gradient->parameter_id, ViewOf(*gradient), micro_batch);
    if (pushed != nullptr) {
      ReleaseFuture(std::move(future), pushed);
      return Status();
    }
    // An argument that does not fit has its error at once. Others end the step.
    return future.Ready() ? future.Get().status() : Status();
  });
}

kaon_status* kaon_step_push_all(kaon_step* step, const kaon_tensor* gradients, size_t num_gradients,
                                uint32_t micro_batch) {
  return kaon_step_push_on_device(step, gradients, num_gradients, micro_batch, -1, nullptr);
}

kaon_status* kaon_step_push_on_device(kaon_step* step, const kaon_tensor* gradients,
                                      size_t num_gradients, uint32_t micro_batch, int32_t device,
                                      void* ready_event) {
  return Guarded([&]() -> Status {
    KAON_C_RETURN_IF_ERROR(CheckArguments({{"step", step}}));
    KAON_C_RETURN_IF_ERROR(CheckTensors(gradients, num_gradients));
    for (size_t i = 0; i < num_gradients; ++i) {
      kaon::Future<kaon::Done> future = step->step.Push(
          gradients[i].parameter_id, ViewOf(gradients[i], device, ready_event), micro_batch);
      if (future.Ready()) KAON_C_RETURN_IF_ERROR(future.Get().status());
    }
    return Status();
  });
}

kaon_status* kaon_step_finish(kaon_step* step, const kaon_finish_options* options,
                              kaon_future** decided) {
  return Guarded([&]() -> Status {
    KAON_C_RETURN_IF_ERROR(CheckArguments({{"step", step}, {"decided", decided}}));
    kaon_finish_options known = {sizeof(kaon_finish_options), kAbsent, nullptr, 0};
    if (options != nullptr) {
      KAON_C_RETURN_IF_ERROR(ReadStruct("kaon_finish_options", options, known));
    }
    kaon::FinishOptions finish;
    if (!std::isnan(known.loss)) finish.loss = known.loss;
    if (known.num_missing_parameters > 0) {
      KAON_C_RETURN_IF_ERROR(CheckArguments({{"missing_parameters", known.missing_parameters}}));
      finish.missing_parameters.assign(known.missing_parameters,
                                       known.missing_parameters + known.num_missing_parameters);
    }
    ReleaseFuture(step->step.Finish(std::move(finish)), decided);
    return Status();
  });
}

void kaon_step_free(kaon_step* step) { Free(step); }

int32_t kaon_future_wait(const kaon_future* future, int64_t timeout_ms) {
  // kaon_future_result fails at once; a loop that waits for 1 must get to it.
  if (future == nullptr || future->InForkedChild()) return 1;
  return future->completion->WaitFor(timeout_ms < 0 ? absl::InfiniteDuration()
                                                    : absl::Milliseconds(timeout_ms));
}

kaon_status* kaon_future_result(const kaon_future* future, kaon_step_record* record) {
  return Guarded([&]() -> Status {
    KAON_C_RETURN_IF_ERROR(CheckArguments({{"future", future}}));
    KAON_C_RETURN_IF_ERROR(CheckNotForked(*future));
    (void)future->completion->WaitFor(absl::InfiniteDuration());
    KAON_C_RETURN_IF_ERROR(future->completion->status());
    if (record == nullptr) return Status();
    if (!future->completion->record().has_value()) {
      return InvalidArgument("record is not NULL, but the future is not one of kaon_step_finish");
    }
    return FillRecord(*future, record);
  });
}

kaon_status* kaon_future_on_ready(kaon_future* future, void (*callback)(void* argument),
                                  void* argument) {
  return Guarded([&]() -> Status {
    KAON_C_RETURN_IF_ERROR(CheckArguments(
        {{"future", future}, {"callback", reinterpret_cast<const void*>(callback)}}));
    KAON_C_RETURN_IF_ERROR(CheckNotForked(*future));
    future->completion->OnReady([callback, argument] { callback(argument); });
    return Status();
  });
}

void kaon_future_cancel(kaon_future* future) {
  if (future != nullptr && !future->InForkedChild()) Attempt([&] { future->cancel(); });
}

void kaon_future_free(kaon_future* future) { Free(future); }

}  // extern "C"
