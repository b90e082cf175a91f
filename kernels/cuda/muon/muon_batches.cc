#include "kernels/cuda/muon/muon_batches.h"

#include <glog/logging.h>

#include <algorithm>
#include <map>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "kernels/float_bits.h"

namespace kaon::kernels::cuda {
namespace {

// Matrices of one kind, of all updates.
using Kind = MuonBatch;

std::vector<Kind> KindsOf(absl::Span<const SizedUpdate> updates) {
  std::vector<Kind> kinds;
  std::map<std::string, size_t> places;
  for (size_t i = 0; i < updates.size(); ++i) {
    if (updates[i].rule == nullptr) continue;
    const auto& config = std::get<MuonConfig>(*updates[i].rule);
    auto blocks = MatrixBlocks(config.layout, updates[i].shape);
    CHECK(blocks.ok()) << blocks.status();
    const std::string key = KeyOf(config.newton_schulz);
    for (size_t place = 0; place < blocks->size(); ++place) {
      MatrixBlock& block = (*blocks)[place];
      if (block.rows == 0 || block.cols == 0) continue;
      const std::string kind = absl::StrCat(block.rows, " ", block.cols, " ", key);
      const auto [found, is_first] = places.emplace(kind, kinds.size());
      if (is_first) kinds.push_back({&config.newton_schulz, block.rows, block.cols, {}});
      kinds[found->second].matrices.push_back({i, place, std::move(block)});
    }
  }
  return kinds;
}

// Returns the number of matrices of each batch: as equal as possible, so that few plans serve.
size_t BatchSize(const Kind& kind, uint64_t most_bytes) {
  // The library counts batches in 16 bits.
  constexpr uint64_t kMostMatrices = 4096;
  WideBatch one = kind.wide();
  one.batch = 1;
  const uint64_t bytes = NewtonSchulzPlan::MemoryBytes(*kind.config, one);
  const size_t most = std::clamp<uint64_t>(most_bytes / bytes, 1, kMostMatrices);
  const size_t batches = (kind.matrices.size() + most - 1) / most;
  return (kind.matrices.size() + batches - 1) / batches;
}

}  // namespace

std::string KeyOf(const NewtonSchulzConfig& config) {
  std::string key = absl::StrCat(
      static_cast<int>(config.coefficients), " ", static_cast<int>(config.custom_repeat), " ",
      config.steps, " ", static_cast<int>(config.dtype), " ", static_cast<int>(config.norm_mode),
      " ", BitsOf(static_cast<float>(config.norm_eps)), " ", static_cast<int>(config.form));
  for (const NewtonSchulzTriple& t : config.custom) {
    absl::StrAppend(&key, " ", BitsOf(t.a), " ", BitsOf(t.b), " ", BitsOf(t.c2));
  }
  for (const int restart : config.gram_restarts) absl::StrAppend(&key, " r", restart);
  return key;
}

std::vector<MuonBatch> MuonBatches(absl::Span<const SizedUpdate> updates, uint64_t most_bytes) {
  std::vector<MuonBatch> batches;
  for (Kind& kind : KindsOf(updates)) {
    const size_t size = BatchSize(kind, most_bytes);
    for (size_t begin = 0; begin < kind.matrices.size(); begin += size) {
      const size_t end = std::min(begin + size, kind.matrices.size());
      MuonBatch batch = {kind.config, kind.rows, kind.cols, {}};
      batch.matrices.assign(std::make_move_iterator(kind.matrices.begin() + begin),
                            std::make_move_iterator(kind.matrices.begin() + end));
      batches.push_back(std::move(batch));
    }
  }
  return batches;
}

}  // namespace kaon::kernels::cuda
