// What of chunks is resident while a shard updates a parameter.
#include <gtest/gtest.h>
#include <malloc.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "proto/chunk_memory.h"
#include "server/shard/parameters/parameter_publisher.h"
#include "server/shard/parameters/parameter_update.h"

namespace kaon::shard {
namespace {

// What main's arena kept free as each update began; computes nothing.
class WatchingBackend final : public kernels::Backend {
 public:
  std::string name() const override { return "cpu/reference"; }
  int64_t Fold(kernels::DType, const std::byte*, float, bool, absl::Span<float>, double*) override {
    return -1;
  }
  kernels::MeanFacts FinishMean(const kernels::MeanScalars&, absl::Span<float>) override {
    return {};
  }
  kernels::UpdateResult ApplyUpdate(const kernels::RuleConfig&, const kernels::UpdateScalars&,
                                    absl::Span<const uint64_t>,
                                    const kernels::UpdateBuffers&) override {
    kept = mallinfo2().keepcost;
    return {};
  }

  size_t kept = 0;
};

// Chunks of 4 MiB that came and went, and then a part of an update of one side x side matrix.
size_t KeptBeside(const kernels::RuleConfig& rule, uint64_t side, kernels::UpdatePart part) {
  proto::KeepChunkMemory();
  std::vector<std::unique_ptr<char[]>> pieces;
  for (int i = 0; i < 64; ++i) pieces.push_back(std::make_unique<char[]>(64 << 10));
  pieces.clear();
  StoredParameter parameter;
  parameter.rule = rule;
  parameter.shape = {side, side};
  v1::StepBody step;
  step.add_rates();
  parameter.group = 0;
  std::vector<float> weights(1);
  ParameterPublisher publisher;
  publisher.Serve("job", 1, {{0, "w", absl::MakeSpan(weights), {}}});
  WatchingBackend backend;
  ParameterUpdate(parameter, step, {}, 1, {}).Run(part, backend, publisher, {});
  return backend.kept;
}

TEST(ParameterUpdateMemoryTest, GivesBackChunksBeforeLargeMatricesOfNewtonSchulzAlone) {
  constexpr size_t kMost = 1 << 20;
  const kernels::RuleConfig muon = kernels::MuonConfig();
  EXPECT_LT(KeptBeside(muon, 4096, kernels::UpdatePart::kAll), kMost);
  EXPECT_LT(KeptBeside(muon, 4096, kernels::UpdatePart::kWeights), kMost);
  EXPECT_GT(KeptBeside(muon, 4096, kernels::UpdatePart::kState), kMost);
  EXPECT_GT(KeptBeside(muon, 256, kernels::UpdatePart::kAll), kMost);
  EXPECT_GT(KeptBeside(kernels::AdamWConfig(), 4096, kernels::UpdatePart::kAll), kMost);
}

}  // namespace
}  // namespace kaon::shard
