#include "server/shard/parameters/state_scrub.h"

#include <algorithm>
#include <vector>

#include "proto/status_macros.h"

namespace kaon::shard {

namespace {

int64_t BytesOf(const StoredParameter& parameter) {
  auto bytes = static_cast<int64_t>(parameter.weight_bytes());
  for (const kernels::StateSlot& slot : parameter.state_slots) bytes += slot.num_bytes;
  return bytes;
}

}  // namespace

absl::Status StateScrub::Check(const ParameterStore& parameters,
                               const ParameterPublisher& publisher) {
  const std::vector<StoredParameter>& all = parameters.parameters();
  int64_t total = 0;
  for (const StoredParameter& parameter : all) total += BytesOf(parameter);
  const auto steps = static_cast<int64_t>(steps_);
  due_bytes_ += (total + steps - 1) / steps;
  // Never read more than one pass at once: the job may have shrunk.
  due_bytes_ = std::min(due_bytes_, total);
  while (due_bytes_ > 0 && !all.empty()) {
    if (next_ >= all.size()) next_ = 0;
    const StoredParameter& parameter = all[next_++];
    KAON_ASSIGN_OR_RETURN(const tier::UnitReadPin pinned, publisher.PinNewest(parameter.id));
    KAON_RETURN_IF_ERROR(
        CheckDigests(parameters.backend(), parameter, pinned.tensor(0), pinned.states()));
    due_bytes_ -= BytesOf(parameter);
  }
  return absl::OkStatus();
}

}  // namespace kaon::shard
