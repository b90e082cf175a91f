// Free memory that the C library keeps for chunks while a shard updates a parameter.
#include <gtest/gtest.h>
#include <malloc.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/gemm/gemm.h"
#include "proto/chunk_memory.h"
#include "server/shard/parameters/parameter_update.h"
#include "server/tier/host_tier.h"
#include "server/tier/memory_home.h"
#include "server/tier/tiered_store.h"

namespace kaon::shard {
namespace {

// Notes what main's arena keeps free when the first product begins; computes nothing.
class WatchingGemm final : public kernels::Gemm {
 public:
  explicit WatchingGemm(size_t& kept) : kept_(kept) {}
  absl::string_view name() const override { return "reference"; }
  void Multiply(const kernels::MatrixProduct&, const float*, const float*, float*) override {
    Note();
  }
  void MultiplyBFloat16(const kernels::MatrixProduct&, const uint16_t*, const uint16_t*,
                        float*) override {
    Note();
  }

 private:
  void Note() {
    if (!noted_) kept_ = mallinfo2().keepcost;
    noted_ = true;
  }

  size_t& kept_;
  bool noted_ = false;
};

// Frees chunks of 4 MiB, which the C library keeps, and updates one side x side matrix. Returns the
// bytes that it keeps at the first product, or else at the end.
size_t KeptBytes(const kernels::RuleConfig& rule, uint64_t side, kernels::UpdatePart part) {
  tier::HostTier host(256 << 20);
  tier::TieredStore store(host);
  StoredParameter parameter;
  parameter.rule = rule;
  parameter.shape = {side, side};
  parameter.group = 0;
  parameter.state_slots = kernels::StateSlots(rule, parameter.shape);
  tier::MemoryHome home(store, "test");
  tier::MemoryHome::Unit unit = {"w", side * side * sizeof(float), {}, false};
  for (const kernels::StateSlot& slot : parameter.state_slots) {
    unit.state.emplace_back(slot.name, slot.num_bytes);
  }
  const tier::UnitId id = *home.Add(unit);
  v1::StepBody step;
  step.add_rates();
  const std::vector<float> gradient(side * side, 0.5f);
  size_t kept = 0;
  kernels::CpuBackend backend(std::make_unique<WatchingGemm>(kept));
  proto::KeepChunkMemory();
  std::vector<std::unique_ptr<char[]>> pieces;
  for (int i = 0; i < 64; ++i) pieces.push_back(std::make_unique<char[]>(64 << 10));
  pieces.clear();
  const ParameterUpdate update(parameter, step, {}, 1, kernels::ConstRegion(gradient));
  const tier::UnitUpdatePin pinned = *home.PinForUpdate(id);
  kernels::Update run = update.ForBackend(part, pinned);
  backend.RunUpdates(absl::MakeSpan(&run, 1));
  return kept > 0 ? kept : mallinfo2().keepcost;
}

TEST(ParameterUpdateMemoryTest, LargeMatricesReleaseWhatTheCLibraryKeepsFree) {
  constexpr size_t kMost = 1 << 20;
  const kernels::RuleConfig muon = kernels::MuonConfig();
  EXPECT_LT(KeptBytes(muon, 2048, kernels::UpdatePart::kAll), kMost);
  EXPECT_LT(KeptBytes(muon, 2048, kernels::UpdatePart::kWeights), kMost);
  EXPECT_GT(KeptBytes(muon, 2048, kernels::UpdatePart::kState), kMost);
  EXPECT_GT(KeptBytes(muon, 256, kernels::UpdatePart::kAll), kMost);
  EXPECT_GT(KeptBytes(kernels::AdamWConfig(), 2048, kernels::UpdatePart::kAll), kMost);
}

}  // namespace
}  // namespace kaon::shard
