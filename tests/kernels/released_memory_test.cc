// Free memory that the C library keeps while the cpu backend multiplies matrices.
#include <gtest/gtest.h>
#include <malloc.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/cpu_backend.h"

namespace kaon::kernels {
namespace {

// Notes what main's arena keeps free when the first product begins; computes nothing.
class WatchingGemm final : public Gemm {
 public:
  explicit WatchingGemm(size_t& kept) : kept_(kept) {}
  absl::string_view name() const override { return "reference"; }
  void Multiply(const MatrixProduct&, const float*, const float*, float*) override { Note(); }
  void MultiplyBFloat16(const MatrixProduct&, const uint16_t*, const uint16_t*, float*) override {
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

// Frees pieces of 4 MiB, which the C library keeps, and updates a matrix of side x side. Returns
// the bytes that it keeps at the first product, or else at the end.
size_t KeptBytes(const RuleConfig& rule, uint64_t side, UpdatePart part) {
  mallopt(M_TRIM_THRESHOLD, 8 << 20);
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
  const uint64_t shape[] = {side, side};
  std::vector<float> weights(side * side, 0.5f);
  std::vector<std::vector<std::byte>> slots;
  for (const StateSlot& slot : StateSlots(rule, shape)) {
    slots.emplace_back(static_cast<size_t>(slot.num_bytes));
  }
  std::vector<absl::Span<std::byte>> state;
  for (std::vector<std::byte>& slot : slots) state.push_back(absl::MakeSpan(slot));
  std::vector<float> new_weights(side * side);
  UpdateBuffers buffers;
  buffers.grad = weights;
  buffers.param = weights;
  buffers.new_param = absl::MakeSpan(new_weights);
  buffers.state = state;
  buffers.part = part;
  size_t kept = 0;
  CpuBackend backend(std::make_unique<WatchingGemm>(kept));
  std::vector<std::unique_ptr<char[]>> pieces;
  for (int i = 0; i < 64; ++i) pieces.push_back(std::make_unique<char[]>(64 << 10));
  pieces.clear();
  backend.ApplyUpdate(rule, UpdateScalars(), shape, buffers);
  return kept > 0 ? kept : mallinfo2().keepcost;
}

TEST(ReleasedMemoryTest, LargeMatricesReleaseWhatTheCLibraryKeepsFree) {
  constexpr size_t kMost = 1 << 20;
  const RuleConfig muon = MuonConfig();
  EXPECT_LT(KeptBytes(muon, 2048, UpdatePart::kAll), kMost);
  EXPECT_LT(KeptBytes(muon, 2048, UpdatePart::kWeights), kMost);
  EXPECT_GT(KeptBytes(muon, 2048, UpdatePart::kState), kMost);
  EXPECT_GT(KeptBytes(muon, 256, UpdatePart::kAll), kMost);
  EXPECT_GT(KeptBytes(AdamWConfig(), 2048, UpdatePart::kAll), kMost);
}

}  // namespace
}  // namespace kaon::kernels
