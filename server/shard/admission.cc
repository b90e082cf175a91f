#include "server/shard/admission.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "proto/status_macros.h"
#include "server/disk/block_file.h"
#include "server/shard/gradients/gradient_accumulator.h"
#include "server/shard/parameters/parameter_store.h"
#include "server/tier/device_tier.h"
#include "server/tier/host_tier.h"
#include "server/tier/nvme_tier.h"

namespace kaon::shard {

namespace {

constexpr uint64_t kLeastJournalBytes = uint64_t{256} << 20;

class NoAccumulation final : public kernels::Accumulation {
 public:
  void Begin() override {}
  void Fold(const kernels::GradientChunk&) override {}
  void SetZero() override {}
  kernels::MeanFacts FinishMean(const kernels::MeanScalars&) override { return {}; }
  kernels::FoldFacts FactsOf(uint32_t) const override { return {}; }
};

// Sizes of another backend, on memory that does not exist: touching it ends the process.
class SizesOnly final : public kernels::Backend {
 public:
  explicit SizesOnly(kernels::Backend& of) : of_(of) {}

  std::string name() const override { return of_.name(); }
  std::string device_class() const override { return of_.device_class(); }
  kernels::Space space() const override { return of_.space(); }
  std::string memory_tier() const override { return of_.memory_tier(); }
  uint64_t capacity_bytes() const override { return of_.capacity_bytes(); }

  absl::StatusOr<kernels::Region> Allocate(uint64_t bytes) override {
    return kernels::Region(space(), Nowhere(), bytes);
  }
  void Free(kernels::Region) override {}
  absl::StatusOr<absl::Span<std::byte>> AllocateStaging(uint64_t bytes) override {
    return absl::Span<std::byte>(Nowhere(), bytes);
  }
  void FreeStaging(absl::Span<std::byte>) override {}
  void CopyIn(absl::Span<const std::byte>, kernels::Region) override {}
  void CopyOut(kernels::ConstRegion, absl::Span<std::byte>) override {}
  void Copy(kernels::ConstRegion, kernels::Region) override {}
  void RoundOut(kernels::ConstRegion, kernels::DType, std::byte*) override {}
  uint64_t Digest(uint32_t, uint32_t, kernels::ConstRegion) override { return 0; }
  uint32_t LargestMagnitude(kernels::ConstRegion) override { return 0; }
  std::unique_ptr<kernels::Accumulation> Accumulate(kernels::Region) override {
    return std::make_unique<NoAccumulation>();
  }
  void RunUpdates(absl::Span<kernels::Update>) override {}

  size_t NumConcurrentUpdates(absl::Span<const kernels::SizedUpdate> updates) const override {
    return of_.NumConcurrentUpdates(updates);
  }
  uint64_t WorkspaceBytes(absl::Span<const kernels::SizedUpdate> updates) const override {
    return of_.WorkspaceBytes(updates);
  }
  // A device would allocate.
  absl::Status Reserve(absl::Span<const kernels::SizedUpdate>) override { return absl::OkStatus(); }

 private:
  // An aligned address in the first page, which no process has.
  static std::byte* Nowhere() { return reinterpret_cast<std::byte*>(tier::kHostAlignmentBytes); }

  kernels::Backend& of_;
};

// A file that does not exist.
class NoFile final : public disk::BlockFile {
 public:
  explicit NoFile(uint64_t size_bytes) : size_bytes_(size_bytes) {}

  void Read(uint64_t, absl::Span<std::byte>, Done done) override { done(Missing()); }
  void Write(uint64_t, absl::Span<const std::byte>, Done done) override { done(Missing()); }
  absl::Status Sync() override { return Missing(); }
  uint64_t size_bytes() const override { return size_bytes_; }
  const std::string& path() const override { return path_; }

 private:
  static absl::Status Missing() { return absl::UnimplementedError("no file"); }

  const uint64_t size_bytes_;
  const std::string path_ = "the disk";
};

}  // namespace

absl::StatusOr<ShardNeeds> Admit(const v1::RegisterBody& registration, uint32_t shard,
                                 kernels::Backend& backend, const ShardMemory& memory) {
  SizesOnly sizes(backend);
  std::unique_ptr<tier::StateTier> tier;
  if (sizes.space() == kernels::Space::kHost) {
    tier = std::make_unique<tier::HostTier>(sizes, memory.capacity_bytes, memory.reserved_bytes);
  } else {
    tier = std::make_unique<tier::DeviceTier>(sizes, memory.capacity_bytes);
  }
  tier::TieredStore store(*tier);
  std::vector<std::unique_ptr<NoFile>> no_files;
  std::vector<disk::BlockFile*> files;
  std::optional<tier::NvmeTier> nvme;
  if (memory.nvme_bytes > 0) {
    if (sizes.space() != kernels::Space::kHost) {
      return absl::InvalidArgumentError(
          "nvme_bytes is set, must be 0: parameters on a disk are stepped in host memory");
    }
    for (uint64_t i = 0; i < memory.nvme_files; ++i) {
      no_files.push_back(std::make_unique<NoFile>(memory.nvme_bytes / memory.nvme_files));
      files.push_back(no_files.back().get());
    }
    nvme.emplace(files, sizes, memory.nvme_staging_bytes);
  }
  ShardNeeds needs;
  needs.reserved_bytes = tier->used_bytes();
  KAON_ASSIGN_OR_RETURN(
      const std::unique_ptr<ParameterStore> parameters,
      ParameterStore::Create({store, nvme.has_value() ? &*nvme : nullptr}, sizes, registration,
                             shard, registration.placement().num_shards()));
  needs.tensor_bytes = tier->used_bytes() - needs.used_bytes();
  KAON_RETURN_IF_ERROR(parameters->ReserveWorkspace());
  needs.workspace_bytes = tier->used_bytes() - needs.used_bytes();
  GradientAccumulatorOptions options;
  options.store = &store;
  options.backend = &sizes;
  options.staging_bytes = memory.staging_bytes;
  if (nvme.has_value()) options.swapped = &nvme->sums();
  GradientAccumulator accumulator(std::move(options));
  KAON_RETURN_IF_ERROR(accumulator.Reserve(registration, shard, parameters->OnDisk()));
  if (nvme.has_value()) needs.nvme_bytes = nvme->used_bytes();
  needs.sum_bytes = tier->used_bytes() - needs.used_bytes();
  needs.parameters = parameters->Describe();
  return needs;
}

uint64_t SnapshotJournalBytes(uint64_t memory_bytes) {
  return std::max(kLeastJournalBytes, 2 * memory_bytes);
}

}  // namespace kaon::shard
