#include "server/shard/gradients/gradient_replay.h"

#include <glog/logging.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/reduce/digest.h"
#include "proto/status_macros.h"
#include "server/mutation/mutation.h"

namespace kaon::shard {

absl::Status GradientReplay::Add(const journal::GradientSlice& slice, bool keep_sums) {
  if (slice.generation != generation_) {
    if (slice.generation < generation_) {
      return absl::DataLossError(absl::StrCat("slice of generation ", slice.generation,
                                              " after one of generation ", generation_));
    }
    // Slices of an older generation without a vote were withdrawn.
    added_.clear();
    generation_ = slice.generation;
  }
  const std::optional<uint64_t> num_elements = accumulator_.num_elements(slice.parameter_id);
  if (!num_elements.has_value()) {
    return absl::DataLossError(
        absl::StrCat("slice of parameter_id ", slice.parameter_id, ", which is not on this shard"));
  }
  Added& added = added_[slice.parameter_id];
  if (slice.offset != added.num_elements || slice.values.size() > *num_elements - slice.offset) {
    return absl::DataLossError(
        absl::StrCat("slice of parameter_id ", slice.parameter_id, " has elements ", slice.offset,
                     " .. ", slice.offset + slice.values.size(), ", expecting from ",
                     added.num_elements, " and no more than ", *num_elements));
  }
  if (keep_sums) {
    Keep(slice, added);
  } else {
    accumulator_.RestoreValues(slice.parameter_id, slice.offset, slice.values);
  }
  added.num_elements += slice.values.size();
  return absl::OkStatus();
}

void GradientReplay::Keep(const journal::GradientSlice& slice, Added& added) {
  if (slice.offset == 0 && accumulator_.IsOnDisk(slice.parameter_id)) {
    absl::StatusOr<std::unique_ptr<SumMemory>> sum =
        accumulator_.ReserveSum(slice.parameter_id, true);
    // Without room in the file it takes memory, as a sum in memory does.
    if (sum.ok()) added.waiting_sum = *std::move(sum);
  }
  if (added.waiting_sum == nullptr) {
    added.waiting.insert(added.waiting.end(), slice.values.begin(), slice.values.end());
    return;
  }
  const absl::StatusOr<tier::PageHold> hold = added.waiting_sum->PinForWrite();
  CHECK(hold.ok()) << hold.status();
  accumulator_.backend().CopyIn(
      kernels::ConstRegion(slice.values).host_bytes(),
      added.waiting_sum->region().SubFloats(slice.offset, slice.values.size()));
}

absl::Status GradientReplay::CheckAdded(const v1::Prepared& facts) const {
  size_t expected = 0;
  for (const v1::ParameterSums& sums : facts.sums()) {
    if (sums.missing()) continue;
    ++expected;
    const auto found = added_.find(sums.parameter_id());
    const uint64_t num_elements = found == added_.end() ? 0 : found->second.num_elements;
    if (num_elements == sums.num_elements()) continue;
    return absl::DataLossError(absl::StrCat("PREPARE of parameter_id ", sums.parameter_id(),
                                            " with ", sums.num_elements(),
                                            " elements, its gradient has ", num_elements));
  }
  if (expected == added_.size()) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("PREPARE of ", expected, " gradients, there are slices of ", added_.size()));
}

absl::Status GradientReplay::Complete(const v1::StepPlan& plan, uint64_t generation,
                                      const v1::Prepared& facts) {
  if (generation != generation_) added_.clear();
  generation_ = generation;
  KAON_RETURN_IF_ERROR(CheckAdded(facts));
  for (auto& [id, added] : added_) {
    if (!added.waiting.empty()) accumulator_.RestoreValues(id, 0, added.waiting);
    if (added.waiting_sum != nullptr) accumulator_.ReplaceSum(id, std::move(added.waiting_sum));
  }
  added_.clear();
  KAON_RETURN_IF_ERROR(accumulator_.RestoreFolded(plan, generation, facts));
  uint64_t digest = 0;
  for (const v1::ParameterSums& sums : facts.sums()) {
    if (sums.missing()) continue;
    KAON_ASSIGN_OR_RETURN(const PinnedGradient gradient,
                          accumulator_.Gradient(sums.parameter_id()));
    digest +=
        accumulator_.backend().Digest(sums.parameter_id(), kernels::kGradientSlot, gradient.values);
  }
  if (digest == facts.gradient_digest() || Mutated(Mutation::kReplayDigestIgnored)) {
    return absl::OkStatus();
  }
  return absl::DataLossError(absl::StrCat("gradient digest ", absl::Hex(digest, absl::kZeroPad16),
                                          ", PREPARE says ",
                                          absl::Hex(facts.gradient_digest(), absl::kZeroPad16)));
}

}  // namespace kaon::shard
