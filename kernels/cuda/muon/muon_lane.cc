#include "kernels/cuda/muon/muon_lane.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/seeded_bug.h"

namespace kaon::kernels::cuda {

absl::Status MuonLane::Reserve(uint64_t plan_bytes) {
  if (scratch_.size() == 0) {
    auto scratch = OwnedMemory::OnDevice(shared_.device, ProductStream::kScratchBytes);
    if (!scratch.ok()) return scratch.status();
    scratch_ = *std::move(scratch);
  }
  if (plans_.size() > kMostPlans) ForgetPlans();
  if (plan_bytes <= plan_memory_.size()) return absl::OkStatus();
  // Graphs contain addresses in the old memory.
  if (!Has(SeededBug::kStaleGraphMemory)) ForgetPlans();
  plan_memory_ = OwnedMemory();
  auto memory = OwnedMemory::OnDevice(shared_.device, plan_bytes);
  if (!memory.ok()) return memory.status();
  plan_memory_ = *std::move(memory);
  return absl::OkStatus();
}

void MuonLane::Release() {
  ForgetPlans();
  plan_memory_ = OwnedMemory();
  scratch_ = OwnedMemory();
}

absl::StatusOr<NewtonSchulzPlan*> MuonLane::PlanOf(const MuonBatch& batch) {
  const WideBatch wide = batch.wide();
  const std::string key =
      absl::StrCat(wide.r, " ", wide.c, " ", wide.batch, " ",
                   Has(SeededBug::kStaleGraphConfig) ? "" : KeyOf(*batch.config));
  const auto found = plans_.find(key);
  if (found != plans_.end()) return found->second.get();
  auto plan = NewtonSchulzPlan::Create(
      {shared_.device, shared_.products, shared_.symmetric, shared_.choice, on()}, *batch.config,
      wide, plan_memory_.data());
  if (!plan.ok()) return plan.status();
  return plans_.emplace(key, *std::move(plan)).first->second.get();
}

void MuonLane::ForgetPlans() {
  stream_->Synchronize();
  plans_.clear();
}

}  // namespace kaon::kernels::cuda
