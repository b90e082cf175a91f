#include "server/shard/parameters/state_scrub.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/backend.h"
#include "kernels/reduce/digest.h"
#include "proto/status_macros.h"

namespace kaon::shard {

namespace {

absl::Status Compare(const StoredParameter& parameter, absl::string_view what, uint64_t is,
                     uint64_t written) {
  if (is == written) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      "parameter ", parameter.name, ": its ", what, " in memory have digest ",
      absl::Hex(is, absl::kZeroPad16), ", written were ", absl::Hex(written, absl::kZeroPad16)));
}

int64_t BytesOf(const StoredParameter& parameter) {
  auto bytes = static_cast<int64_t>(parameter.weights[0].region().size());
  for (const kernels::StateSlot& slot : parameter.state_slots) bytes += slot.num_bytes;
  return bytes;
}

absl::Status CheckParameter(kernels::Backend& backend, const StoredParameter& parameter,
                            kernels::ConstRegion weights) {
  KAON_RETURN_IF_ERROR(Compare(parameter, "weights",
                               backend.Digest(parameter.id, kernels::kWeightSlot, weights),
                               parameter.weights_digest));
  uint64_t slots = 0;
  for (size_t i = 0; i < parameter.state.size(); ++i) {
    slots += backend.Digest(parameter.id, static_cast<uint32_t>(i + 1), parameter.slot(i));
  }
  return Compare(parameter, "moments", slots, parameter.slots_digest);
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
    KAON_RETURN_IF_ERROR(
        CheckParameter(parameters.backend(), parameter, publisher.current(parameter.id)));
    due_bytes_ -= BytesOf(parameter);
  }
  return absl::OkStatus();
}

}  // namespace kaon::shard
