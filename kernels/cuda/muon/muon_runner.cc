#include "kernels/cuda/muon/muon_runner.h"

#include <glog/logging.h>

#include <algorithm>
#include <set>
#include <utility>
#include <variant>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "kernels/matrix_layout.h"
#include "kernels/reduce/grad_norm.h"

namespace kaon::kernels::cuda {
namespace {

// Finds algorithms of products of every size, so that a library that chooses others is another
// device class before any job is there.
absl::Status FindSomeProducts(Products& products) {
  for (const int64_t n : {256, 1024, 4096}) {
    for (const bool transpose_b : {false, true}) {
      const BatchLayout layout = LayoutOf(NsDType::kBFloat16, n, n);
      const absl::Status status = products.Find({.dtype = NsDType::kBFloat16,
                                                 .rows = n,
                                                 .cols = n,
                                                 .inner = n,
                                                 .transpose_b = transpose_b,
                                                 .batch = TypicalBatch(n, n),
                                                 .a = layout,
                                                 .b = layout,
                                                 .d = layout});
      if (!status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

// Returns the equal matrices of an update.
std::vector<MatrixCount> CountsOf(const SizedUpdate& update) {
  const auto counts = CountMatrices(std::get<MuonConfig>(*update.rule).layout, update.shape);
  CHECK(counts.ok()) << counts.status();
  return *counts;
}

// Returns the bytes of MuonRun's places for these matrices.
uint64_t PlacesBytes(const MatrixCount& matrix) {
  const int64_t n = matrix.rows * matrix.cols;
  const int64_t squares = TileSquaresOf({matrix.rows, matrix.cols, 1});
  // Norms of the direction and of the matrix, each up to one block more.
  const uint64_t norms = (2 * NumNormBlocks(n) + 1) * sizeof(NormBlock);
  return matrix.count * (sizeof(MuonMatrix) + sizeof(MatrixFacts) + norms +
                         matrix.rows * sizeof(int64_t) + squares * sizeof(double));
}

}  // namespace

absl::StatusOr<std::unique_ptr<MuonRunner>> MuonRunner::Create(Device& device) {
  // The library's handle is that of the thread's current device: the stream's.
  const std::unique_ptr<Stream> stream = device.NewStream();
  static_cast<void>(stream->native());
  auto products = Products::Create(device);
  if (!products.ok()) return products.status();
  const absl::Status status = FindSomeProducts(**products);
  if (!status.ok()) return status;
  const std::string library =
      absl::StrCat((*products)->library(), "/",
                   absl::Hex(TextDigest((*products)->Algorithms()), absl::kZeroPad16));
  return absl::WrapUnique(new MuonRunner(device, *std::move(products), library));
}

MuonRunner::MuonRunner(Device& device, std::unique_ptr<Products> products, std::string library)
    : device_(device),
      products_(std::move(products)),
      library_(std::move(library)),
      symmetric_(device, *products_) {
  for (int i = 0; i < kNumLanes; ++i) {
    lanes_.push_back(
        std::make_unique<MuonLane>(MuonLane::Shared{device_, *products_, symmetric_, choice_}));
  }
}

void MuonRunner::RunUpdates(absl::Span<Update* const> updates) {
  if (updates.empty()) return;
  MutexLock lock(mutex_);
  MuonRun run(device_, lanes_, limits_, updates);
  const absl::Status status = run.Prepare(memory_);
  if (!status.ok()) LOG(FATAL) << device_.properties().name << ": Muon: " << status;
  run.Queue();
  run.Finish();
}

MuonRunner::Workspace MuonRunner::WorkspaceOf(absl::Span<const SizedUpdate> updates) const {
  // Every place is rounded up.
  constexpr uint64_t kSlack = 256;
  Workspace workspace;
  workspace.places = 8 * kSlack;
  uint64_t all_plans = 0;
  uint64_t largest_plan = 0;
  for (const SizedUpdate& update : updates) {
    NewtonSchulzConfig config = std::get<MuonConfig>(*update.rule).newton_schulz;
    // A group may change to it, and it needs the most.
    config.form = NsForm::kGram;
    workspace.places += sizeof(MomentumStep) + sizeof(UpdateFacts) + kSlack;
    for (const MatrixCount& matrix : CountsOf(update)) {
      if (matrix.rows == 0 || matrix.cols == 0) continue;
      const WideBatch one = {std::min(matrix.rows, matrix.cols), std::max(matrix.rows, matrix.cols),
                             1};
      const uint64_t plan = NewtonSchulzPlan::MemoryBytes(config, one);
      all_plans += matrix.count * plan;
      largest_plan = std::max(largest_plan, plan);
      workspace.places += PlacesBytes(matrix) + 3 * kSlack * matrix.count;
    }
  }
  workspace.first_lane = std::max(largest_plan, std::min(all_plans, limits_.most_plan_bytes));
  workspace.other_lane = std::min(all_plans, limits_.small_plan_bytes);
  return workspace;
}

uint64_t MuonRunner::WorkspaceBytes(absl::Span<const SizedUpdate> updates) const {
  const Workspace workspace = WorkspaceOf(updates);
  return workspace.places + kNumLanes * ProductStream::kScratchBytes + workspace.first_lane +
         (kNumLanes - 1) * workspace.other_lane;
}

absl::Status MuonRunner::Reserve(absl::Span<const SizedUpdate> updates) {
  const Workspace workspace = WorkspaceOf(updates);
  MutexLock lock(mutex_);
  absl::Status status = memory_.Reserve(device_, workspace.places, workspace.places);
  for (size_t i = 0; i < lanes_.size() && status.ok(); ++i) {
    status = lanes_[i]->Reserve(i == 0 ? workspace.first_lane : workspace.other_lane);
  }
  return status;
}

void MuonRunner::Release() {
  MutexLock lock(mutex_);
  for (const std::unique_ptr<MuonLane>& lane : lanes_) lane->Release();
  memory_ = MuonMemory();
}

absl::Status MuonRunner::TuneProducts(absl::Span<const SizedUpdate> updates,
                                      const Stopwatch& watch) {
  std::set<SymmetricBatch> kinds;
  for (const SizedUpdate& update : updates) {
    const NsDType dtype = std::get<MuonConfig>(*update.rule).newton_schulz.dtype;
    for (const MatrixCount& matrix : CountsOf(update)) {
      const int64_t r = std::min(matrix.rows, matrix.cols);
      if (r == 0) continue;
      kinds.insert(KindOf({dtype, r, std::max(matrix.rows, matrix.cols), 1}));
      kinds.insert(KindOf({dtype, r, r, 1}));
    }
  }
  MutexLock lock(mutex_);
  for (const std::unique_ptr<MuonLane>& lane : lanes_) lane->ForgetPlans();
  absl::Status status = lanes_[0]->Reserve(0);
  if (!status.ok()) return status;
  return Tune({device_, symmetric_, lanes_[0]->on()}, watch,
              std::vector<SymmetricBatch>(kinds.begin(), kinds.end()), choice_);
}

}  // namespace kaon::kernels::cuda
