#include "client/job_context.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "job/definition.h"
#include "proto/text.h"

namespace kaon::client {

absl::StatusOr<std::shared_ptr<const JobContext>> JobContext::Create(
    std::shared_ptr<Runtime> runtime, const v1::JobDescription& description) {
  auto context = std::make_shared<const JobContext>(std::move(runtime), description);
  if (description.placement().parameters_size() != description.definition().parameters_size()) {
    return absl::InternalError(absl::StrCat(
        "job ", context->name(), " has ", description.definition().parameters_size(),
        " parameters, but ", description.placement().parameters_size(), " are placed"));
  }
  for (uint32_t id = 0; id < context->num_parameters(); ++id) {
    if (context->shard_of(id) < context->num_shards()) continue;
    return absl::InternalError(absl::StrCat("job ", context->name(), ": parameter ",
                                            context->parameter(id).name, " is on shard ",
                                            context->shard_of(id), " of ", context->num_shards()));
  }
  return context;
}

void JobContext::NoteTimeline(uint64_t timeline, uint64_t step) const {
  MutexLock lock(rewind_mu_);
  if (timeline <= timeline_) return;
  timeline_ = timeline;
  const auto& on_rewind = runtime_->options().on_rewind;
  if (on_rewind) on_rewind(timeline, step);
}

absl::StatusOr<uint32_t> JobContext::IdOf(const std::string& parameter) const {
  const auto found = id_of_.find(parameter);
  if (found != id_of_.end()) return found->second;
  return absl::InvalidArgumentError(absl::StrCat("parameter is '", proto::Excerpt(parameter),
                                                 "', which job ", name(), " does not have"));
}

JobContext::JobContext(std::shared_ptr<Runtime> runtime, const v1::JobDescription& description)
    : runtime_(std::move(runtime)),
      description_(FromProto(description)),
      attached_timeline_(description.timeline()),
      timeline_(description.timeline()) {
  for (const v1::ParameterSpec& parameter : description.definition().parameters()) {
    id_of_[parameter.name()] = static_cast<uint32_t>(num_elements_.size());
    num_elements_.push_back(job::NumElements(parameter));
  }
}

}  // namespace kaon::client
