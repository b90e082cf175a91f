#include "kernels/cuda/element_wise_updates.h"

#include <glog/logging.h>

#include <algorithm>
#include <type_traits>
#include <variant>

#include "kernels/cuda/elements/digest.h"
#include "kernels/cuda/elements/update.h"
#include "kernels/cuda/seeded_bug.h"
#include "kernels/float_bits.h"
#include "kernels/reduce/digest.h"
#include "kernels/rules/state_group.h"

namespace kaon::kernels::cuda {
namespace {

void QueueStep(Stream& stream, const Update& update, UpdateFacts* facts) {
  const UpdateBuffers& buffers = update.buffers;
  ElementWiseUpdate step = {};
  step.grad = buffers.grad.region().data();
  step.grad_dtype = buffers.grad.dtype();
  step.param = reinterpret_cast<const float*>(buffers.param.data());
  step.new_param = reinterpret_cast<float*>(buffers.new_param.data());
  for (size_t k = 0; k < buffers.state.size(); ++k) step.state[k] = buffers.state[k].data();
  step.num_elements = static_cast<int64_t>(buffers.grad.size());
  step.parameter_id = update.scalars.parameter_id;
  step.facts = facts;
  std::visit(
      [&](const auto& config) {
        using Config = std::decay_t<decltype(config)>;
        if constexpr (!std::is_same_v<Config, MuonConfig>) {
          using Rule = typename FindRule<Config, ElementWiseRules>::type;
          CHECK(buffers.part == UpdatePart::kAll) << Rule::kName << " is not stepped in parts";
          step.momentum_dtype = SlotDType(config, 0);
          step.second_moment_dtype = SlotDType(config, 1);
          step.root_seed = RootSeedOf(update.scalars.parameter_id, update.scalars.t);
          const UpdateScalars& scalars = update.scalars;
          StepElementWise<Rule>(stream,
                                Rule::Prepare(config, scalars.lr, scalars.clip_factor, scalars.t),
                                Rule::NumSlots(config), step);
        }
      },
      *update.rule);
}

bool IsInPlace(const UpdateBuffers& buffers) {
  return buffers.new_param.data() == buffers.param.data();
}

}  // namespace

ElementWiseUpdates::ElementWiseUpdates(LanePool& lanes, FoldRing& folds, size_t most_streams,
                                       absl::Span<Update* const> updates) {
  CHECK_LE(updates.size(), kMost);
  if (updates.empty()) return;
  lanes_ = lanes.BorrowSome(std::min(most_streams, updates.size()));
  counts_.resize(lanes_.size());
  for (const LanePool::Borrowed& lane : lanes_) {
    if (Has(SeededBug::kResultsNotZeroed)) break;
    lane->stream->SetZero(lane->result.data(), lane->result.size());
  }
  // Elements of each lane: an update goes where least waits.
  std::vector<uint64_t> loads(lanes_.size());
  for (Update* const update : updates) {
    const auto least = std::min_element(loads.begin(), loads.end());
    const auto at = static_cast<size_t>(least - loads.begin());
    *least += update->buffers.grad.size();
    Lane& lane = *lanes_[at];
    const size_t place = counts_[at]++;
    updates_.push_back({update, at, place});
    folds.OrderAfter(update->buffers.grad.region(), *lane.stream);
    QueueStep(*lane.stream, *update, lane.results<UpdateFacts>() + place);
  }
}

void ElementWiseUpdates::ReadFacts() {
  for (size_t i = lanes_.size(); i-- > 0;) {
    Lane& lane = *lanes_[i];
    lane.stream->CopyOut(lane.result.data(), lane.result_out.data(),
                         counts_[i] * sizeof(UpdateFacts));
    // The first stream ends after all others, and is the one to wait for.
    for (size_t other = 1; i == 0 && other < lanes_.size(); ++other) {
      if (!Has(SeededBug::kResultsReadBeforeTheWait)) lane.stream->Wait(*lanes_[other]->end);
    }
    lane.stream->Record(*lane.end);
  }
  lanes_.front()->end->Await();
}

void ElementWiseUpdates::KeepWeights(const Queued& queued) {
  const UpdateBuffers& buffers = queued.update->buffers;
  Lane& lane = *lanes_[queued.lane];
  UpdateFacts* const facts = lane.results<UpdateFacts>() + queued.place;
  lane.stream->SetZero(facts, sizeof(UpdateFacts));
  const Region kept = buffers.new_param;
  lane.stream->Copy(buffers.param.data(), kept.data(), kept.size());
  AddDigest(*lane.stream, queued.update->scalars.parameter_id, kWeightSlot, kept.data(),
            kept.size(), &facts->weights_digest);
  MaxMagnitude(*lane.stream, reinterpret_cast<const float*>(kept.data()),
               static_cast<int64_t>(kept.num_floats()), &facts->largest_weight_bits);
}

void ElementWiseUpdates::Finish() {
  if (updates_.empty()) return;
  ReadFacts();
  bool any_kept = false;
  for (const Queued& queued : updates_) {
    const UpdateFacts& facts = lanes_[queued.lane]->results_out<UpdateFacts>()[queued.place];
    UpdateResult result;
    result.weights_digest = facts.weights_digest;
    result.slots_digest = facts.slots_digest;
    result.largest_weight_bits = facts.largest_weight_bits;
    if (!IsFiniteMagnitude(facts.largest_weight_bits)) {
      result.fault = UpdateFault::kNotFinite;
      if (!IsInPlace(queued.update->buffers)) {
        KeepWeights(queued);
        any_kept = true;
      }
    }
    queued.update->result = result;
  }
  if (!any_kept) return;
  ReadFacts();
  for (const Queued& queued : updates_) {
    UpdateResult& result = queued.update->result;
    if (result.fault == UpdateFault::kNone || IsInPlace(queued.update->buffers)) continue;
    const UpdateFacts& facts = lanes_[queued.lane]->results_out<UpdateFacts>()[queued.place];
    result.weights_digest = facts.weights_digest;
    result.largest_weight_bits = facts.largest_weight_bits;
  }
}

}  // namespace kaon::kernels::cuda
