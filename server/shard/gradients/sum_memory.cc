#include "server/shard/gradients/sum_memory.h"

#include <glog/logging.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/status_macros.h"

namespace kaon::shard {

absl::StatusOr<std::unique_ptr<SumMemory>> SumMemory::Reserve(
    const GradientAccumulatorOptions& options, uint32_t parameter_id, const std::string& name,
    uint64_t num_elements, bool is_swapped) {
  std::unique_ptr<SumMemory> sum(new SumMemory(options));
  if (is_swapped) {
    const uint64_t bytes = num_elements * sizeof(float);
    KAON_ASSIGN_OR_RETURN(sum->swapped_, options.swapped->Add(name, bytes));
    sum->region_ = options.swapped->region(*sum->swapped_).Sub(0, bytes);
    return sum;
  }
  const std::string tensor = absl::StrCat("gradient/", parameter_id);
  KAON_RETURN_IF_ERROR(options.store->Allocate(tensor, num_elements));
  sum->tensor_ = tensor;
  KAON_ASSIGN_OR_RETURN(sum->pin_, options.store->Pin(tensor));
  sum->region_ = sum->pin_.region();
  KAON_RETURN_IF_ERROR(sum->AllocateStaging());
  return sum;
}

absl::Status SumMemory::AllocateStaging() {
  if (region_.space() == kernels::Space::kHost || options_.staging == nullptr) {
    return absl::OkStatus();
  }
  KAON_RETURN_IF_ERROR(options_.staging->Claim(region_.size()));
  absl::StatusOr<tier::BackendMemory> staging =
      tier::BackendMemory::AllocateStaging(*options_.backend, region_.size());
  if (!staging.ok()) {
    options_.staging->Release(region_.size());
    return staging.status();
  }
  staging_ = *std::move(staging);
  return absl::OkStatus();
}

SumMemory::~SumMemory() {
  if (swapped_.has_value()) options_.swapped->Remove(*swapped_);
  if (!staging_.region().empty()) options_.staging->Release(staging_.region().size());
  if (tensor_.empty()) return;
  pin_ = tier::Pin();
  const absl::Status status = options_.store->Free(tensor_);
  CHECK(status.ok()) << status;
}

absl::StatusOr<tier::PageHold> SumMemory::Pin() {
  return swapped_.has_value() ? options_.swapped->Pin(*swapped_) : tier::PageHold();
}

absl::StatusOr<tier::PageHold> SumMemory::PinForWrite() {
  return swapped_.has_value() ? options_.swapped->PinForWrite(*swapped_) : tier::PageHold();
}

void SumMemory::Discard() {
  if (swapped_.has_value()) options_.swapped->Discard(*swapped_);
}

kernels::ConstRegion SumMemory::CopyToStaging() {
  const kernels::Region staging = staging_.region();
  if (!staging.empty()) options_.backend->CopyOut(region_, staging.host_bytes());
  return staging;
}

}  // namespace kaon::shard
