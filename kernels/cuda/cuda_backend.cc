#include "kernels/cuda/cuda_backend.h"

#include <glog/logging.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/cuda_accumulation.h"
#include "kernels/cuda/element_wise_updates.h"
#include "kernels/cuda/elements/digest.h"
#include "kernels/cuda/elements/round.h"
#include "kernels/cuda/seeded_bug.h"
#include "kernels/cuda/staged_copy.h"
#include "kernels/update_sizes.h"

namespace kaon::kernels::cuda {
namespace {

// Version of this backend's own kernels, as far as bits depend on it.
constexpr int kKernelsVersion = 1;

// Workspace that a list of concurrent updates may take beyond its first update's.
constexpr uint64_t kMostWorkspaceBytes = uint64_t{1} << 30;

// Returns an address on the device.
const std::byte* DeviceBytes(ConstRegion region) {
  CHECK(region.empty() || region.space() == Space::kDevice)
      << "memory of the host where memory of the device is needed";
  return region.data();
}
std::byte* DeviceBytes(Region region) {
  return const_cast<std::byte*>(DeviceBytes(ConstRegion(region)));
}
const float* DeviceFloats(ConstRegion region) {
  return reinterpret_cast<const float*>(DeviceBytes(region));
}

bool IsMuon(const RuleConfig& rule) { return std::holds_alternative<MuonConfig>(rule); }

void AwaitEnd(Lane& lane) {
  lane.stream->Record(*lane.end);
  lane.end->Await();
}

// Zeroes the lane's result, queues what computes it by `queue`, and returns it.
template <typename T, typename Queue>
T ResultOf(Lane& lane, const Queue& queue) {
  lane.stream->SetZero(lane.result.data(), sizeof(T));
  queue(*lane.stream, lane.results<T>());
  lane.stream->CopyOut(lane.result.data(), lane.result_out.data(), sizeof(T));
  AwaitEnd(lane);
  return *lane.results_out<T>();
}

std::vector<SizedUpdate> MuonOf(absl::Span<const SizedUpdate> updates) {
  std::vector<SizedUpdate> muon;
  for (const SizedUpdate& update : updates) {
    if (update.rule != nullptr && IsMuon(*update.rule)) muon.push_back(update);
  }
  return muon;
}

}  // namespace

CudaBackend::CudaBackend(std::unique_ptr<Device> device, const Options& options)
    : options_(options), device_(std::move(device)), capacity_bytes_(device_->free_bytes()) {}

CudaBackend::~CudaBackend() {
  MutexLock lock(mutex_);
  CHECK(staging_.empty()) << staging_.size() << " pieces of staging memory outlive their backend";
}

absl::StatusOr<std::unique_ptr<CudaBackend>> CudaBackend::Create(std::unique_ptr<Device> device,
                                                                 const Options& options) {
  std::unique_ptr<CudaBackend> backend(new CudaBackend(std::move(device), options));
  absl::StatusOr<std::unique_ptr<LanePool>> lanes =
      LanePool::Create(*backend->device_, options.num_lanes);
  if (!lanes.ok()) return lanes.status();
  backend->lanes_ = *std::move(lanes);
  absl::StatusOr<std::unique_ptr<FoldRing>> folds =
      FoldRing::Create(*backend->device_, options.folds);
  if (!folds.ok()) return folds.status();
  backend->folds_ = *std::move(folds);
  absl::StatusOr<std::unique_ptr<MuonRunner>> muon = MuonRunner::Create(*backend->device_);
  if (!muon.ok()) return muon.status();
  backend->muon_ = *std::move(muon);
  return backend;
}

std::string CudaBackend::name() const {
  const std::string& platform = device_->properties().platform;
  return platform == "cuda" ? "cuda/cublaslt" : platform;
}

std::string CudaBackend::device_class() const {
  const DeviceProperties& device = device_->properties();
  return absl::StrCat(device.name, " sm_", device.major, device.minor, "/", device.multiprocessors,
                      "/", muon_->Library(), "/kaon-cuda ", kKernelsVersion);
}

std::string CudaBackend::memory_tier() const { return MemoryTier(options_.ordinal); }

uint64_t CudaBackend::capacity_bytes() const { return capacity_bytes_; }

absl::StatusOr<Region> CudaBackend::Allocate(uint64_t bytes) {
  CHECK_GT(bytes, 0u);
  const absl::StatusOr<void*> memory = device_->Allocate(bytes);
  if (!memory.ok()) return memory.status();
  const LanePool::Borrowed lane = lanes_->Borrow();
  lane->stream->SetZero(*memory, bytes);
  AwaitEnd(*lane);
  return Region(Space::kDevice, static_cast<std::byte*>(*memory), bytes);
}

void CudaBackend::Free(Region region) { device_->Free(DeviceBytes(region)); }

absl::StatusOr<absl::Span<std::byte>> CudaBackend::AllocateStaging(uint64_t bytes) {
  CHECK_GT(bytes, 0u);
  const absl::StatusOr<void*> memory = device_->AllocatePinned(bytes);
  if (!memory.ok()) return memory.status();
  auto* const begin = static_cast<std::byte*>(*memory);
  MutexLock lock(mutex_);
  staging_[begin] = bytes;
  return absl::MakeSpan(begin, bytes);
}

void CudaBackend::FreeStaging(absl::Span<std::byte> staging) {
  {
    MutexLock lock(mutex_);
    CHECK_EQ(staging_.erase(staging.data()), 1u) << "not staging memory of this backend";
  }
  device_->FreePinned(staging.data());
}

bool CudaBackend::IsStaging(const std::byte* begin, uint64_t bytes) const {
  MutexLock lock(mutex_);
  auto at = staging_.upper_bound(begin);
  if (at == staging_.begin()) return false;
  --at;
  const auto offset = static_cast<uint64_t>(begin - at->first);
  return offset < at->second && bytes <= at->second - offset;
}

LanePool::Borrowed CudaBackend::LaneAfter(ConstRegion memory) {
  LanePool::Borrowed lane = lanes_->Borrow();
  folds_->OrderAfter(memory, *lane->stream);
  return lane;
}

void CudaBackend::CopyIn(absl::Span<const std::byte> from, Region to) {
  CHECK_EQ(from.size(), to.size());
  const LanePool::Borrowed lane = LaneAfter(to);
  if (!IsStaging(from.data(), from.size())) {
    CopyInThrough(*lane, from.data(), from.size(), DeviceBytes(to));
    return;
  }
  lane->stream->CopyIn(from.data(), DeviceBytes(to), from.size());
  AwaitEnd(*lane);
}

void CudaBackend::CopyOut(ConstRegion from, absl::Span<std::byte> to) {
  CHECK_EQ(from.size(), to.size());
  const LanePool::Borrowed lane = LaneAfter(from);
  if (!IsStaging(to.data(), to.size())) {
    CopyOutThrough(*lane, DeviceBytes(from), from.size(), to.data());
    return;
  }
  lane->stream->CopyOut(DeviceBytes(from), to.data(), to.size());
  AwaitEnd(*lane);
}

void CudaBackend::Copy(ConstRegion from, Region to) {
  CHECK_EQ(from.size(), to.size());
  const LanePool::Borrowed lane = LaneAfter(from);
  folds_->OrderAfter(to, *lane->stream);
  lane->stream->Copy(DeviceBytes(from), DeviceBytes(to), from.size());
  AwaitEnd(*lane);
}

void CudaBackend::RoundOut(ConstRegion floats, DType dtype, std::byte* to) {
  const uint64_t bytes = floats.num_floats() * SizeOf(dtype);
  if (dtype == DType::kFloat32) {
    CopyOut(floats.SubFloats(0, floats.num_floats()), absl::MakeSpan(to, bytes));
    return;
  }
  const LanePool::Borrowed lane = LaneAfter(floats);
  const auto queue = [&](Lane::Piece& piece, uint64_t offset, uint64_t n) {
    const uint64_t first = offset / SizeOf(dtype);
    RoundElements(*lane->stream, dtype, DeviceFloats(floats) + first,
                  static_cast<int64_t>(n / SizeOf(dtype)), piece.device.data());
    lane->stream->CopyOut(piece.device.data(), piece.pinned.data(), n);
  };
  CopyOutPieces(*lane, bytes, queue, to);
}

void CudaBackend::Round(ConstRegion floats, DType dtype, Region to) {
  const uint64_t num_elements = floats.num_floats();
  CHECK_EQ(to.size(), num_elements * SizeOf(dtype));
  if (dtype == DType::kFloat32) return Copy(floats.SubFloats(0, num_elements), to);
  const LanePool::Borrowed lane = LaneAfter(floats);
  folds_->OrderAfter(to, *lane->stream);
  RoundElements(*lane->stream, dtype, DeviceFloats(floats), static_cast<int64_t>(num_elements),
                DeviceBytes(to));
  AwaitEnd(*lane);
}

uint64_t CudaBackend::Digest(uint32_t parameter_id, uint32_t slot, ConstRegion bytes) {
  const LanePool::Borrowed lane = LaneAfter(bytes);
  return ResultOf<uint64_t>(*lane, [&](Stream& stream, uint64_t* result) {
    AddDigest(stream, parameter_id, slot, DeviceBytes(bytes), bytes.size(), result);
  });
}

uint32_t CudaBackend::LargestMagnitude(ConstRegion floats) {
  const LanePool::Borrowed lane = LaneAfter(floats);
  return ResultOf<uint32_t>(*lane, [&](Stream& stream, uint32_t* result) {
    MaxMagnitude(stream, DeviceFloats(floats), static_cast<int64_t>(floats.num_floats()), result);
  });
}

std::unique_ptr<Accumulation> CudaBackend::Accumulate(Region sum) {
  return std::make_unique<CudaAccumulation>(*device_, *lanes_, *folds_, sum);
}

void CudaBackend::RunUpdates(absl::Span<Update> updates) {
  std::vector<Update*> element_wise;
  std::vector<Update*> muon;
  for (Update& update : updates) {
    CheckUpdateSizes(update);
    (IsMuon(*update.rule) ? muon : element_wise).push_back(&update);
  }
  absl::Span<Update* const> left = element_wise;
  do {
    ElementWiseUpdates running(*lanes_, *folds_, options_.num_update_streams,
                               left.first(std::min(left.size(), ElementWiseUpdates::kMost)));
    // Meanwhile, once.
    if (!muon.empty()) muon_->RunUpdates(std::exchange(muon, {}));
    running.Finish();
    left.remove_prefix(running.size());
  } while (!left.empty());
}

size_t CudaBackend::NumConcurrentUpdates(absl::Span<const SizedUpdate> updates) const {
  // WorkspaceBytes never falls as a list grows.
  size_t fits = 1;
  size_t too_many = updates.size() + 1;
  while (too_many - fits > 1) {
    const size_t count = fits + (too_many - fits) / 2;
    (WorkspaceBytes(updates.first(count)) <= kMostWorkspaceBytes ? fits : too_many) = count;
  }
  return fits;
}

uint64_t CudaBackend::WorkspaceBytes(absl::Span<const SizedUpdate> updates) const {
  const std::vector<SizedUpdate> muon = MuonOf(updates);
  return muon.empty() ? 0 : muon_->WorkspaceBytes(muon);
}

absl::Status CudaBackend::Reserve(absl::Span<const SizedUpdate> updates) {
  muon_->Release();
  while (!updates.empty()) {
    const size_t count = NumConcurrentUpdates(updates);
    const std::vector<SizedUpdate> muon = MuonOf(updates.first(count));
    if (!muon.empty()) {
      const absl::Status status = muon_->Reserve(muon);
      if (!status.ok()) return status;
    }
    updates.remove_prefix(count);
  }
  return absl::OkStatus();
}

}  // namespace kaon::kernels::cuda
