// Memory of the sums: allocates and replaces it, and pins gradients for updates.
#include <utility>

#include "absl/strings/str_cat.h"
#include "job/definition.h"
#include "proto/status_macros.h"
#include "server/shard/gradients/gradient_accumulator.h"

namespace kaon::shard {

void GradientAccumulator::FreeSums() {
  for (auto& [id, parameter] : parameters_) {
    // It ends before the memory that it sums into.
    parameter->fold.reset();
    parameter->sum.reset();
  }
  // Not SwappedMemory::Clear: a replay may have sums of its own there.
  parameters_.clear();
}

absl::Status GradientAccumulator::Reserve(const v1::RegisterBody& registration, uint32_t shard,
                                          const std::set<uint32_t>& on_disk) {
  FreeSums();
  KAON_RETURN_IF_ERROR(CheckWorkers(registration.definition().world_size()));
  for (const v1::ParameterPlacement& placement : registration.placement().parameters()) {
    if (placement.shard() != shard) continue;
    const uint32_t id = placement.parameter_id();
    absl::StatusOr<std::unique_ptr<SumMemory>> sum =
        ReserveSum(registration.definition(), id, on_disk.count(id) > 0);
    if (!sum.ok()) {
      FreeSums();
      return sum.status();
    }
    const v1::ParameterSpec& spec = registration.definition().parameters(static_cast<int>(id));
    Parameter& parameter = *parameters_.emplace(id, std::make_shared<Parameter>()).first->second;
    parameter.frozen = spec.frozen();
    UseSum(parameter, id, spec.name(), *std::move(sum));
  }
  registration_ = std::make_shared<v1::RegisterBody>(registration);
  Adopt(registration);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<SumMemory>> GradientAccumulator::ReserveSum(
    const v1::JobDefinition& job, uint32_t id, bool on_disk) const {
  const v1::ParameterSpec& spec = job.parameters(static_cast<int>(id));
  absl::StatusOr<std::unique_ptr<SumMemory>> sum =
      SumMemory::Reserve(options_, id, spec.name(), job::NumElements(spec), on_disk);
  if (sum.ok()) return sum;
  return absl::Status(sum.status().code(),
                      absl::StrCat("parameter ", spec.name(), ": ", sum.status().message()));
}

absl::StatusOr<std::unique_ptr<SumMemory>> GradientAccumulator::ReserveSum(uint32_t parameter_id,
                                                                           bool on_disk) const {
  return ReserveSum(registration_->definition(), parameter_id, on_disk);
}

bool GradientAccumulator::IsOnDisk(uint32_t parameter_id) const {
  return parameters_.at(parameter_id)->sum->swapped().has_value();
}

void GradientAccumulator::UseSum(Parameter& parameter, uint32_t id, const std::string& name,
                                 std::unique_ptr<SumMemory> sum) {
  parameter.fold = std::make_unique<ParameterFold>(id, name, sum->region(), *options_.backend);
  parameter.sum = std::move(sum);
}

void GradientAccumulator::ReplaceSum(uint32_t parameter_id, std::unique_ptr<SumMemory> sum) {
  Parameter& parameter = *parameters_.at(parameter_id);
  MutexLock parameter_lock(parameter.mu);
  parameter.generation = 0;
  UseSum(parameter, parameter_id, parameter.fold->name(), std::move(sum));
}

absl::StatusOr<PinnedGradient> GradientAccumulator::Gradient(uint32_t parameter_id) const {
  Parameter& parameter = *parameters_.at(parameter_id);
  MutexLock parameter_lock(parameter.mu);
  PinnedGradient gradient;
  if (parameter.fold->missing()) return gradient;
  KAON_ASSIGN_OR_RETURN(gradient.hold, parameter.sum->Pin());
  gradient.values = parameter.fold->sum();
  return gradient;
}

size_t GradientAccumulator::NumPinnable(absl::Span<const uint32_t> parameter_ids) const {
  if (options_.swapped == nullptr) return parameter_ids.size();
  std::vector<tier::SwappedMemory::ExtentId> extents;
  std::vector<size_t> ends;
  for (size_t i = 0; i < parameter_ids.size(); ++i) {
    const auto extent = parameters_.at(parameter_ids[i])->sum->swapped();
    if (!extent.has_value()) continue;
    extents.push_back(*extent);
    ends.push_back(i);
  }
  const size_t count = options_.swapped->NumPinnable(extents);
  return count == extents.size() ? parameter_ids.size() : ends[count];
}

void GradientAccumulator::Prefetch(absl::Span<const uint32_t> parameter_ids) {
  if (options_.swapped == nullptr) return;
  std::vector<tier::SwappedMemory::ExtentId> extents;
  for (const uint32_t id : parameter_ids) {
    const auto extent = parameters_.at(id)->sum->swapped();
    if (extent.has_value()) extents.push_back(*extent);
  }
  options_.swapped->Prefetch(extents);
}

void GradientAccumulator::Discard(uint32_t parameter_id) {
  Parameter& parameter = *parameters_.at(parameter_id);
  MutexLock parameter_lock(parameter.mu);
  parameter.sum->Discard();
}

}  // namespace kaon::shard
