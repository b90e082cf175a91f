#include "kernels/offload/offload_backend.h"

#include <glog/logging.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/cpu/update_workspace.h"
#include "kernels/update_sizes.h"

namespace kaon::kernels {
namespace {

// Alignment of a copy, that of a device's allocations.
constexpr uint64_t kStagedAlignment = 256;

uint64_t RoundedUp(uint64_t bytes) {
  return (bytes + kStagedAlignment - 1) / kStagedAlignment * kStagedAlignment;
}

uint64_t ElementsOf(absl::Span<const uint64_t> shape) {
  uint64_t elements = 1;
  for (const uint64_t extent : shape) elements *= extent;
  return elements;
}

// Returns true for a rule and shape with matrices to orthogonalize.
bool IsOrthogonalized(const SizedUpdate& update) {
  return update.rule != nullptr && std::holds_alternative<MuonConfig>(*update.rule) &&
         ElementsOf(update.shape) > 0;
}

SizedUpdate SizedOf(const Update& update) { return {update.rule, update.shape}; }

// Returns the bytes of gradient, old and new weights and state on the device. A gradient in a
// narrower dtype than fp32 needs less.
uint64_t StagedBytes(const SizedUpdate& update) {
  if (update.rule == nullptr) return 0;
  uint64_t bytes = 3 * RoundedUp(ElementsOf(update.shape) * sizeof(float));
  for (const StateSlot& slot : StateSlots(*update.rule, update.shape)) {
    bytes += RoundedUp(static_cast<uint64_t>(slot.num_bytes));
  }
  return bytes;
}

// Cuts a region into copies.
class StagingCutter {
 public:
  explicit StagingCutter(Region staging) : staging_(staging) {}
  Region Take(uint64_t bytes) {
    const Region taken = staging_.Sub(0, bytes);
    staging_ = staging_.Sub(RoundedUp(bytes), staging_.size() - RoundedUp(bytes));
    return taken;
  }

 private:
  Region staging_;
};

}  // namespace

OffloadBackend::OffloadBackend(std::unique_ptr<Backend> cpu, std::unique_ptr<Backend> device,
                               const Options& options)
    : cpu_(std::move(cpu)), device_(std::move(device)), options_(options) {}

OffloadBackend::~OffloadBackend() {
  MutexLock lock(mutex_);
  if (!staging_.empty()) device_->Free(staging_);
}

absl::StatusOr<std::unique_ptr<OffloadBackend>> OffloadBackend::Create(
    std::unique_ptr<Backend> cpu, std::unique_ptr<Backend> device, const Options& options) {
  CHECK(cpu->space() == Space::kHost && device->space() == Space::kDevice);
  Options complete = options;
  const uint64_t capacity = device->capacity_bytes();
  if (capacity > 0 && options.device_memory_bytes > capacity) {
    return absl::ResourceExhaustedError(
        absl::StrCat("device_memory_bytes is ", options.device_memory_bytes, ", must be at most ",
                     capacity, ", which ", device->memory_tier(), " has free"));
  }
  // The rest is for contexts and libraries.
  if (options.device_memory_bytes == 0) {
    complete.device_memory_bytes = capacity > 0 ? capacity / 10 * 9 : UINT64_MAX;
  }
  return absl::WrapUnique(new OffloadBackend(std::move(cpu), std::move(device), complete));
}

std::string OffloadBackend::name() const {
  return absl::StrCat(device_->name(), "+", cpu_->name());
}

std::string OffloadBackend::device_class() const {
  return absl::StrCat(device_->device_class(), " + ", cpu_->device_class());
}

absl::StatusOr<Region> OffloadBackend::Allocate(uint64_t bytes) {
  const absl::StatusOr<absl::Span<std::byte>> memory = device_->AllocateStaging(bytes);
  if (!memory.ok()) return memory.status();
  std::memset(memory->data(), 0, memory->size());
  return Region(*memory);
}

void OffloadBackend::Free(Region region) { device_->FreeStaging(region.host_bytes()); }

void OffloadBackend::RunUpdates(absl::Span<Update> updates) {
  std::vector<Update*> on_cpu;
  std::vector<Update*> on_device;
  for (Update& update : updates) {
    CheckUpdateSizes(update);
    // Without weights an update is element-wise, and its bits are the same on both.
    const bool offloads =
        IsOrthogonalized(SizedOf(update)) && update.buffers.part != UpdatePart::kState;
    (offloads ? on_device : on_cpu).push_back(&update);
  }
  if (on_device.empty()) return RunOnCpu(on_cpu);
  if (on_cpu.empty()) return RunOnDevice(on_device);
  std::thread cpu([&] { RunOnCpu(on_cpu); });
  RunOnDevice(on_device);
  cpu.join();
}

void OffloadBackend::RunOnCpu(absl::Span<Update* const> updates) {
  std::vector<Update> run;
  std::vector<SizedUpdate> sized;
  for (const Update* update : updates) {
    run.push_back(*update);
    sized.push_back(SizedOf(*update));
  }
  for (size_t first = 0; first < run.size();) {
    const size_t count = cpu_->NumConcurrentUpdates(absl::MakeConstSpan(sized).subspan(first));
    cpu_->RunUpdates(absl::MakeSpan(run).subspan(first, count));
    first += count;
  }
  for (size_t i = 0; i < run.size(); ++i) updates[i]->result = run[i].result;
}

void OffloadBackend::RunOnDevice(absl::Span<Update* const> updates) {
  // Equal shapes are a batch of the device, so they go there together.
  std::vector<Update*> order(updates.begin(), updates.end());
  std::stable_sort(order.begin(), order.end(), [](const Update* a, const Update* b) {
    return std::lexicographical_compare(a->shape.begin(), a->shape.end(), b->shape.begin(),
                                        b->shape.end());
  });
  std::vector<SizedUpdate> sized;
  uint64_t largest = 0;
  for (const Update* update : order) {
    sized.push_back(SizedOf(*update));
    largest = std::max(largest, StagedBytes(sized.back()));
  }
  MutexLock lock(mutex_);
  if (largest > staging_.size()) {
    const absl::Status status = ReserveLocked(sized);
    if (!status.ok()) LOG(FATAL) << status;
  }
  for (size_t first = 0; first < order.size();) {
    const size_t count = NumThatFitLocked(absl::MakeConstSpan(sized).subspan(first));
    RunStagedLocked(absl::MakeConstSpan(order).subspan(first, count));
    first += count;
  }
}

size_t OffloadBackend::NumThatFitLocked(absl::Span<const SizedUpdate> updates) const {
  size_t staged = 0;
  uint64_t bytes = 0;
  while (staged < updates.size() && (bytes += StagedBytes(updates[staged])) <= staging_.size()) {
    ++staged;
  }
  // WorkspaceBytes never falls as a list grows.
  const uint64_t rest = options_.device_memory_bytes - staging_.size();
  size_t fits = 1;
  size_t too_many = staged + 1;
  while (too_many - fits > 1) {
    const size_t count = fits + (too_many - fits) / 2;
    (device_->WorkspaceBytes(updates.first(count)) <= rest ? fits : too_many) = count;
  }
  return fits;
}

void OffloadBackend::RunStagedLocked(absl::Span<Update* const> updates) {
  StagingCutter staging(staging_);
  const auto copy_in = [&](ConstRegion host) {
    const Region copy = staging.Take(host.size());
    device_->CopyIn(host.host_bytes(), copy);
    return copy;
  };
  std::vector<Update> run;
  std::vector<std::vector<Region>> states(updates.size());
  for (size_t i = 0; i < updates.size(); ++i) {
    Update& copied = run.emplace_back(*updates[i]);
    const UpdateBuffers& from = updates[i]->buffers;
    copied.buffers.grad = GradView(from.grad.dtype(), copy_in(from.grad.region()));
    copied.buffers.param = copy_in(from.param);
    copied.buffers.new_param = staging.Take(from.new_param.size());
    for (const Region& slot : from.state) states[i].push_back(copy_in(slot));
    copied.buffers.state = states[i];
  }
  device_->RunUpdates(absl::MakeSpan(run));
  for (size_t i = 0; i < updates.size(); ++i) {
    const UpdateBuffers& to = updates[i]->buffers;
    device_->CopyOut(run[i].buffers.new_param, to.new_param.host_bytes());
    if (to.part == UpdatePart::kAll) {
      for (size_t k = 0; k < to.state.size(); ++k) {
        device_->CopyOut(states[i][k], to.state[k].host_bytes());
      }
    }
    updates[i]->result = run[i].result;
  }
}

size_t OffloadBackend::NumConcurrentUpdates(absl::Span<const SizedUpdate> updates) const {
  size_t count = 0;
  uint64_t bytes = 0;
  while (count < updates.size() &&
         (bytes += StagedBytes(updates[count])) <= options_.most_staged_bytes) {
    ++count;
  }
  return std::max<size_t>(count, 1);
}

uint64_t OffloadBackend::WorkspaceBytes(absl::Span<const SizedUpdate> updates) const {
  uint64_t most = 0;
  for (const SizedUpdate& update : updates) {
    if (update.rule == nullptr) continue;
    most = std::max(most, OrthogonalityWorkspaceBytes(*update.rule, update.shape));
  }
  return most;
}

absl::Status OffloadBackend::Reserve(absl::Span<const SizedUpdate> updates) {
  MutexLock lock(mutex_);
  return ReserveLocked(updates);
}

absl::Status OffloadBackend::ReserveLocked(absl::Span<const SizedUpdate> updates) {
  uint64_t all = 0;
  SizedUpdate largest;
  uint64_t largest_bytes = 0;
  uint64_t workspace = 0;
  for (const SizedUpdate& update : updates) {
    if (!IsOrthogonalized(update)) continue;
    const uint64_t bytes = StagedBytes(update);
    all += bytes;
    workspace = std::max(workspace, device_->WorkspaceBytes(absl::MakeConstSpan(&update, 1)));
    if (bytes <= largest_bytes) continue;
    largest = update;
    largest_bytes = bytes;
  }
  const uint64_t limit = options_.device_memory_bytes;
  const std::string what = absl::StrCat(device_->memory_tier(), ": Newton-Schulz of ",
                                        absl::StrJoin(largest.shape, "x"), " needs ", largest_bytes,
                                        " bytes for gradient, old and new weights and state, and ",
                                        workspace, " of workspace");
  if (largest_bytes > limit || workspace > limit - largest_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat(what, ", ", largest_bytes + workspace, " in all; the limit is ", limit,
                     " bytes: raise --device-memory-bytes or add shards"));
  }
  const uint64_t bytes =
      std::max(largest_bytes, std::min({all, options_.most_staged_bytes, limit - workspace}));
  if (bytes == staging_.size()) return absl::OkStatus();
  if (!staging_.empty()) device_->Free(std::exchange(staging_, Region()));
  if (bytes == 0) return absl::OkStatus();
  const absl::StatusOr<Region> staging = device_->Allocate(bytes);
  if (!staging.ok()) {
    return absl::Status(staging.status().code(),
                        absl::StrCat(what, ": ", staging.status().message()));
  }
  staging_ = *staging;
  return absl::OkStatus();
}

}  // namespace kaon::kernels
