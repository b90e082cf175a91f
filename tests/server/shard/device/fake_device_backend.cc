#include "tests/server/shard/device/fake_device_backend.h"

#include <glog/logging.h>

#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace kaon::shard {

namespace {

// Moves an address out of what a processor can address, so that a host that follows it ends.
constexpr uintptr_t kAway = uintptr_t{1} << 62;
constexpr int kPoison = 0xff;

// The CPU's accumulation, whose sum is destroyed where its contents become undefined.
class FakeAccumulation final : public kernels::Accumulation {
 public:
  using Behind = std::function<kernels::ConstRegion(kernels::ConstRegion region)>;
  FakeAccumulation(std::unique_ptr<kernels::Accumulation> cpu, absl::Span<std::byte> sum,
                   Behind behind)
      : cpu_(std::move(cpu)), sum_(sum), behind_(std::move(behind)) {}

  void Begin() override {
    std::memset(sum_.data(), kPoison, sum_.size());
    cpu_->Begin();
  }
  void Fold(const kernels::GradientChunk& chunk) override {
    kernels::GradientChunk folded = chunk;
    if (!chunk.memory.empty()) folded.memory = behind_(chunk.memory);
    cpu_->Fold(folded);
  }
  void SetZero() override { cpu_->SetZero(); }
  kernels::MeanFacts FinishMean(const kernels::MeanScalars& scalars) override {
    return cpu_->FinishMean(scalars);
  }
  kernels::FoldFacts FactsOf(uint32_t contribution) const override {
    return cpu_->FactsOf(contribution);
  }

 private:
  const std::unique_ptr<kernels::Accumulation> cpu_;
  const absl::Span<std::byte> sum_;
  const Behind behind_;
};

}  // namespace

FakeDeviceBackend::~FakeDeviceBackend() {
  MutexLock lock(mu_);
  CHECK(allocated_.empty()) << allocated_.size() << " regions of the device are not freed";
  CHECK_EQ(staging_bytes_, 0u) << "staging is not freed";
}

template <typename Byte>
kernels::BasicRegion<Byte> FakeDeviceBackend::Behind(kernels::BasicRegion<Byte> region) const {
  CHECK(region.space() == kernels::Space::kDevice) << "host memory is given to the device";
  const auto address = reinterpret_cast<uintptr_t>(region.data());
  MutexLock lock(mu_);
  auto found = allocated_.upper_bound(address);
  CHECK(found != allocated_.begin()) << "not allocated";
  --found;
  CHECK_LE(address - found->first + region.size(), found->second) << "beyond an allocation";
  return {kernels::Space::kHost, reinterpret_cast<Byte*>(address - kAway), region.size()};
}

absl::StatusOr<kernels::Region> FakeDeviceBackend::Allocate(uint64_t bytes) {
  MutexLock lock(mu_);
  if (full_) return absl::ResourceExhaustedError(absl::StrCat(bytes, " bytes needed, 0 free"));
  const absl::StatusOr<kernels::Region> memory = ForwardingBackend::Allocate(bytes);
  if (!memory.ok()) return memory.status();
  const uintptr_t address = reinterpret_cast<uintptr_t>(memory->data()) + kAway;
  allocated_.emplace(address, bytes);
  return kernels::Region(kernels::Space::kDevice, reinterpret_cast<std::byte*>(address), bytes);
}

void FakeDeviceBackend::Free(kernels::Region region) {
  ForwardingBackend::Free(Behind(region));
  MutexLock lock(mu_);
  const auto found = allocated_.find(reinterpret_cast<uintptr_t>(region.data()));
  CHECK(found != allocated_.end() && found->second == region.size()) << "frees another region";
  allocated_.erase(found);
}

absl::StatusOr<absl::Span<std::byte>> FakeDeviceBackend::AllocateStaging(uint64_t bytes) {
  const auto staging = ForwardingBackend::AllocateStaging(bytes);
  if (!staging.ok()) return staging;
  std::memset(staging->data(), kPoison, staging->size());
  MutexLock lock(mu_);
  staging_bytes_ += bytes;
  return staging;
}

void FakeDeviceBackend::FreeStaging(absl::Span<std::byte> staging) {
  {
    MutexLock lock(mu_);
    staging_bytes_ -= staging.size();
  }
  ForwardingBackend::FreeStaging(staging);
}

void FakeDeviceBackend::CopyIn(absl::Span<const std::byte> from, kernels::Region to) {
  ForwardingBackend::CopyIn(from, Behind(to));
}

void FakeDeviceBackend::CopyOut(kernels::ConstRegion from, absl::Span<std::byte> to) {
  ForwardingBackend::CopyOut(Behind(from), to);
  MutexLock lock(mu_);
  ++copies_out_;
}

void FakeDeviceBackend::Copy(kernels::ConstRegion from, kernels::Region to) {
  ForwardingBackend::Copy(Behind(from), Behind(to));
}

void FakeDeviceBackend::RoundOut(kernels::ConstRegion floats, kernels::DType dtype, std::byte* to) {
  ForwardingBackend::RoundOut(Behind(floats), dtype, to);
}

void FakeDeviceBackend::Round(kernels::ConstRegion floats, kernels::DType dtype,
                              kernels::Region to) {
  ForwardingBackend::Round(Behind(floats), dtype, Behind(to));
}

uint64_t FakeDeviceBackend::Digest(uint32_t parameter_id, uint32_t slot,
                                   kernels::ConstRegion bytes) {
  return ForwardingBackend::Digest(parameter_id, slot, Behind(bytes));
}

uint32_t FakeDeviceBackend::LargestMagnitude(kernels::ConstRegion floats) {
  return ForwardingBackend::LargestMagnitude(Behind(floats));
}

std::unique_ptr<kernels::Accumulation> FakeDeviceBackend::Accumulate(kernels::Region sum) {
  const kernels::Region host = Behind(sum);
  return std::make_unique<FakeAccumulation>(
      ForwardingBackend::Accumulate(host), host.host_bytes(),
      [this](kernels::ConstRegion region) { return Behind(region); });
}

void FakeDeviceBackend::RunUpdates(absl::Span<kernels::Update> updates) {
  std::vector<kernels::Update> run(updates.begin(), updates.end());
  std::vector<std::vector<kernels::Region>> states(run.size());
  for (size_t i = 0; i < run.size(); ++i) {
    kernels::UpdateBuffers& buffers = run[i].buffers;
    for (const kernels::Region& slot : buffers.state) states[i].push_back(Behind(slot));
    buffers.state = states[i];
    buffers.grad = kernels::GradView(buffers.grad.dtype(), Behind(buffers.grad.region()));
    buffers.param = Behind(buffers.param);
    buffers.new_param = Behind(buffers.new_param);
  }
  ForwardingBackend::RunUpdates(absl::MakeSpan(run));
  for (size_t i = 0; i < run.size(); ++i) updates[i].result = run[i].result;
}

void FakeDeviceBackend::SetFull(bool full) {
  MutexLock lock(mu_);
  full_ = full;
}

uint64_t FakeDeviceBackend::staging_bytes() const {
  MutexLock lock(mu_);
  return staging_bytes_;
}

uint64_t FakeDeviceBackend::copies_out() const {
  MutexLock lock(mu_);
  return copies_out_;
}

}  // namespace kaon::shard
