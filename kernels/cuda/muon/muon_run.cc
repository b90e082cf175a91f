#include "kernels/cuda/muon/muon_run.h"

#include <glog/logging.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <variant>

#include "kernels/cuda/elements/digest.h"
#include "kernels/muon_scalars.h"
#include "kernels/orthogonalize/coefficients.h"
#include "kernels/reduce/digest.h"
#include "kernels/reduce/digest_key.h"
#include "kernels/reduce/grad_norm.h"
#include "kernels/update_fault.h"

namespace kaon::kernels::cuda {
namespace {

// Appends room for `count` values to memory of `end` bytes. Returns where it begins.
template <typename T>
uint64_t Append(uint64_t& end, int64_t count) {
  constexpr uint64_t kAlignment = 256;
  const uint64_t begin = end;
  end += (count * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
  return begin;
}

absl::Status Grow(Device& device, uint64_t bytes, bool pinned, OwnedMemory& memory) {
  if (bytes <= memory.size()) return absl::OkStatus();
  memory = OwnedMemory();
  auto grown = pinned ? OwnedMemory::Pinned(device, bytes) : OwnedMemory::OnDevice(device, bytes);
  if (!grown.ok()) return grown.status();
  memory = *std::move(grown);
  return absl::OkStatus();
}

NormalizationOptions NormalizationOptionsOf(const NewtonSchulzConfig& config) {
  const absl::optional<NewtonSchulzCoefficientSet> set = FindCoefficientSet(config);
  CHECK(set) << "coefficient set " << static_cast<int>(config.coefficients) << " has no row";
  return {config.norm_mode, config.norm_eps, set->safety_factor};
}

// Rows of a block that one offset and stride do not describe.
bool NeedsRowElements(const MatrixBlock& block) { return block.runs.size() > 1; }

}  // namespace

int64_t TileSquaresOf(const MatrixCount& matrices) {
  MuonMatrices sizes = {};
  sizes.rows = matrices.rows;
  sizes.cols = matrices.cols;
  sizes.count = matrices.count;
  return NumTileSquares(sizes);
}

absl::Status MuonMemory::Reserve(Device& owner, uint64_t device_bytes, uint64_t pinned_bytes) {
  const absl::Status status = Grow(owner, device_bytes, /*pinned=*/false, device);
  return status.ok() ? Grow(owner, pinned_bytes, /*pinned=*/true, pinned) : status;
}

const MuonConfig& MuonRun::ConfigOf(size_t update) const {
  return std::get<MuonConfig>(*updates_[update]->rule);
}

int64_t MuonRun::NumElements(size_t update) const {
  return static_cast<int64_t>(updates_[update]->buffers.param.num_floats());
}

bool MuonRun::IsInPlace(size_t update) const {
  const UpdateBuffers& buffers = updates_[update]->buffers;
  return buffers.new_param.data() == buffers.param.data();
}

// New weights are written over the direction, as on the CPU.
float* MuonRun::Direction(size_t update) const {
  if (IsInPlace(update)) return OnDevice<float>(update_places_[update].direction);
  return reinterpret_cast<float*>(updates_[update]->buffers.new_param.data());
}

// The momentum kernel describes blocks of the parameter. They are those of a matrix that begins and
// ends where they do.
bool MuonRun::SharesNorms(const BatchedMatrix& matrix) const {
  if (!matrix.is_contiguous()) return false;
  const int64_t begin = matrix.block.runs[0].offset;
  const int64_t end = begin + matrix.num_elements();
  return begin % kNormBlockElements == 0 &&
         (end % kNormBlockElements == 0 || end == NumElements(matrix.update));
}

MuonMatrices MuonRun::Matrices(const RunningBatch& running) const {
  return {.matrices = OnDevice<MuonMatrix>(places_.matrices) + running.first,
          .facts = OnDevice<MatrixFacts>(places_.matrix_facts) + running.first,
          .count = static_cast<int64_t>(running.batch.matrices.size()),
          .rows = running.batch.rows,
          .cols = running.batch.cols,
          .pitch = running.plan->layout().pitch,
          .dtype = running.batch.config->dtype};
}

absl::Status MuonRun::Prepare(MuonMemory& memory) {
  memory_ = &memory;
  const absl::Status status = PreparePlans();
  if (!status.ok()) return status;
  Place();
  return memory.Reserve(device_, places_.end, places_.facts_end);
}

absl::Status MuonRun::PreparePlans() {
  std::vector<SizedUpdate> sized;
  for (size_t i = 0; i < updates_.size(); ++i) {
    sized.push_back({HasWeights(i) ? updates_[i]->rule : nullptr, updates_[i]->shape});
  }
  std::vector<uint64_t> plan_bytes(lanes_.size());
  size_t next_small = 0;
  for (MuonBatch& batch : MuonBatches(sized, limits_.most_plan_bytes)) {
    const uint64_t bytes = NewtonSchulzPlan::MemoryBytes(*batch.config, batch.wide());
    const size_t lane =
        bytes <= limits_.small_plan_bytes ? next_small++ % lanes_.size() : size_t{0};
    plan_bytes[lane] = std::max(plan_bytes[lane], bytes);
    batches_.push_back({.batch = std::move(batch), .lane = lanes_[lane].get()});
  }
  for (size_t i = 0; i < lanes_.size(); ++i) {
    if (plan_bytes[i] == 0) continue;
    const absl::Status status = lanes_[i]->Reserve(plan_bytes[i]);
    if (!status.ok()) return status;
  }
  for (RunningBatch& running : batches_) {
    const absl::StatusOr<NewtonSchulzPlan*> plan = running.lane->PlanOf(running.batch);
    if (!plan.ok()) return plan.status();
    running.plan = *plan;
  }
  return absl::OkStatus();
}

void MuonRun::Place() {
  step_order_.resize(updates_.size());
  std::iota(step_order_.begin(), step_order_.end(), size_t{0});
  std::stable_sort(step_order_.begin(), step_order_.end(), [this](size_t a, size_t b) {
    return ConfigOf(a).momentum_dtype < ConfigOf(b).momentum_dtype;
  });
  int64_t num_row_elements = 0;
  for (RunningBatch& running : batches_) {
    std::vector<BatchedMatrix>& matrices = running.batch.matrices;
    const auto shared =
        std::stable_partition(matrices.begin(), matrices.end(),
                              [this](const BatchedMatrix& m) { return !SharesNorms(m); });
    running.num_described = shared - matrices.begin();
    running.first = num_matrices_;
    num_matrices_ += matrices.size();
    for (const BatchedMatrix& matrix : matrices) {
      if (NeedsRowElements(matrix.block)) num_row_elements += matrix.block.rows;
    }
  }
  const auto num_updates = static_cast<int64_t>(updates_.size());
  uint64_t end = 0;
  places_.steps = Append<MomentumStep>(end, num_updates);
  places_.matrices = Append<MuonMatrix>(end, num_matrices_);
  places_.row_elements = Append<int64_t>(end, num_row_elements);
  places_.update_facts = Append<UpdateFacts>(end, num_updates);
  places_.matrix_facts = Append<MatrixFacts>(end, num_matrices_);
  places_.facts_end = end;
  for (RunningBatch& running : batches_) {
    const int64_t blocks = NumNormBlocks(running.batch.rows * running.batch.cols);
    running.norms = Append<NormBlock>(end, running.num_described * blocks);
    running.tile_squares =
        Append<double>(end, TileSquaresOf({running.batch.rows, running.batch.cols,
                                           static_cast<int64_t>(running.batch.matrices.size())}));
  }
  for (size_t i = 0; i < updates_.size(); ++i) {
    UpdatePlaces places;
    if (HasWeights(i)) {
      places.norms = Append<NormBlock>(end, NumNormBlocks(NumElements(i)));
      if (IsInPlace(i)) places.direction = Append<float>(end, NumElements(i));
    }
    update_places_.push_back(places);
  }
  places_.end = end;
}

void MuonRun::FillSteps() {
  auto* step = OnHost<MomentumStep>(places_.steps);
  StateDType dtype = StateDType::kFloat32;
  int64_t first_block = 0;
  for (const size_t i : step_order_) {
    const MuonConfig& config = ConfigOf(i);
    const Update& update = *updates_[i];
    if (config.momentum_dtype != dtype) first_block = 0;
    dtype = config.momentum_dtype;
    *step++ = {.scalars = MomentumScalars(config, update.scalars),
               .grad = update.buffers.grad.region().data(),
               .grad_dtype = update.buffers.grad.dtype(),
               .param = reinterpret_cast<const float*>(update.buffers.param.data()),
               .state = update.buffers.state[0].data(),
               .writes_state = update.buffers.part != UpdatePart::kWeights,
               .state_key = TensorDigestKey(update.scalars.parameter_id, 1),
               .direction = HasWeights(i) ? Direction(i) : nullptr,
               .norms = OnDevice<NormBlock>(update_places_[i].norms),
               .facts = OnDevice<UpdateFacts>(places_.update_facts) + i,
               .num_elements = NumElements(i),
               .first_block = first_block};
    first_block += NumNormBlocks(NumElements(i));
  }
}

void MuonRun::FillMatrices() {
  auto* matrix = OnHost<MuonMatrix>(places_.matrices);
  uint64_t row_place = places_.row_elements;
  for (const RunningBatch& running : batches_) {
    const MuonBatch& batch = running.batch;
    const int64_t plan_bytes = running.plan->layout().stride * ElementBytes(batch.config->dtype);
    const int64_t blocks = NumNormBlocks(batch.rows * batch.cols);
    for (size_t i = 0; i < batch.matrices.size(); ++i) {
      const BatchedMatrix& from = batch.matrices[i];
      const Update& update = *updates_[from.update];
      const bool described = static_cast<int64_t>(i) < running.num_described;
      NormBlock* const own = OnDevice<NormBlock>(running.norms) + i * blocks;
      NormBlock* const shared = OnDevice<NormBlock>(update_places_[from.update].norms) +
                                from.block.runs[0].offset / kNormBlockElements;
      const int64_t* row_elements = nullptr;
      if (NeedsRowElements(from.block)) {
        row_elements = OnDevice<int64_t>(row_place);
        auto* element = OnHost<int64_t>(row_place);
        for (const RowRun& run : from.block.runs) {
          for (int64_t row = 0; row < run.num_rows; ++row) {
            *element++ = run.offset + row * from.block.row_stride;
          }
        }
        row_place += from.block.rows * sizeof(int64_t);
      }
      *matrix++ = {
          .direction = Direction(from.update),
          .param = reinterpret_cast<const float*>(update.buffers.param.data()),
          .new_param = Direction(from.update),
          .row_elements = row_elements,
          .offset = from.block.runs[0].offset,
          .row_stride = from.block.row_stride,
          .norms = described ? own : shared,
          .normalized = running.plan->x() + i * plan_bytes,
          .orthogonal = running.plan->result() + i * plan_bytes,
          .scalars = WeightScalars(ConfigOf(from.update), update.scalars, update.shape, from.block),
          .weights_key = TensorDigestKey(update.scalars.parameter_id, kWeightSlot)};
    }
  }
}

void MuonRun::Queue() {
  FillSteps();
  FillMatrices();
  Stream& first = lanes_[0]->stream();
  first.CopyIn(OnHost<std::byte>(0), OnDevice<std::byte>(0), places_.update_facts);
  first.SetZero(OnDevice<std::byte>(places_.update_facts),
                places_.facts_end - places_.update_facts);
  QueueMomentum();
  first.Record(lanes_[0]->done());
  for (size_t i = 1; i < lanes_.size(); ++i) lanes_[i]->stream().Wait(lanes_[0]->done());
  for (const RunningBatch& running : batches_) QueueBatch(running);
  for (size_t i = 1; i < lanes_.size(); ++i) {
    lanes_[i]->stream().Record(lanes_[i]->done());
    first.Wait(lanes_[i]->done());
  }
  first.CopyOut(OnDevice<std::byte>(places_.update_facts), OnHost<std::byte>(places_.update_facts),
                places_.facts_end - places_.update_facts);
}

void MuonRun::QueueMomentum() {
  const auto* const steps = OnDevice<MomentumStep>(places_.steps);
  for (size_t begin = 0, end = 0; begin < step_order_.size(); begin = end) {
    const StateDType dtype = ConfigOf(step_order_[begin]).momentum_dtype;
    int64_t num_blocks = 0;
    for (; end < step_order_.size() && ConfigOf(step_order_[end]).momentum_dtype == dtype; ++end) {
      num_blocks += NumNormBlocks(NumElements(step_order_[end]));
    }
    StepMomentum(lanes_[0]->stream(), {.steps = steps + begin,
                                       .count = static_cast<int64_t>(end - begin),
                                       .num_blocks = num_blocks,
                                       .state_dtype = dtype});
  }
}

void MuonRun::QueueBatch(const RunningBatch& running) {
  Stream& stream = running.lane->stream();
  const MuonMatrices matrices = Matrices(running);
  MuonMatrices described = matrices;
  described.count = running.num_described;
  if (described.count > 0) DescribeMatrices(stream, described);
  NormalizeMatrices(stream, matrices, NormalizationOptionsOf(*running.batch.config));
  running.plan->Run();
  StepMatrices(stream, matrices, OnDevice<double>(running.tile_squares));
}

// Replaces the update's new weights by its old ones, and its facts by theirs.
void MuonRun::KeepWeights(size_t update) {
  Stream& stream = lanes_[0]->stream();
  const Update& kept = *updates_[update];
  const ConstRegion param = kept.buffers.param;
  if (!IsInPlace(update)) stream.Copy(param.data(), kept.buffers.new_param.data(), param.size());
  UpdateFacts* const facts = OnDevice<UpdateFacts>(places_.update_facts) + update;
  stream.SetZero(facts, sizeof(*facts));
  AddDigest(stream, kept.scalars.parameter_id, kWeightSlot, param.data(), param.size(),
            &facts->weights_digest);
  MaxMagnitude(stream, reinterpret_cast<const float*>(param.data()), NumElements(update),
               &facts->largest_weight_bits);
  stream.CopyOut(facts, OnHost<UpdateFacts>(places_.update_facts) + update, sizeof(*facts));
}

// Adds the facts of all matrices to the results of their updates.
void MuonRun::AddFacts() {
  const auto* const update_facts = OnHost<UpdateFacts>(places_.update_facts);
  for (size_t i = 0; i < updates_.size(); ++i) {
    updates_[i]->result = {};
    updates_[i]->result.newton_schulz_calls = HasWeights(i) ? 1 : 0;
    updates_[i]->result.slots_digest = update_facts[i].slots_digest;
  }
  // The fault of an update is that of its first block with one.
  std::vector<size_t> first_fault(updates_.size(), SIZE_MAX);
  const auto* facts = OnHost<MatrixFacts>(places_.matrix_facts);
  for (const RunningBatch& running : batches_) {
    const double most_norm = MostOrthogonalNorm(*running.batch.config, 1);
    for (const BatchedMatrix& matrix : running.batch.matrices) {
      UpdateResult& result = updates_[matrix.update]->result;
      result.weights_digest += facts->weights_digest;
      result.largest_weight_bits = std::max(result.largest_weight_bits, facts->largest_weight_bits);
      const UpdateFault fault =
          FaultOf(matrix.block, {facts->sum_squares, facts->largest_weight_bits}, most_norm);
      if (fault != UpdateFault::kNone && matrix.place < first_fault[matrix.update]) {
        first_fault[matrix.update] = matrix.place;
        result.fault = fault;
      }
      ++facts;
    }
  }
}

void MuonRun::Finish() {
  Stream& stream = lanes_[0]->stream();
  stream.Synchronize();
  AddFacts();
  bool queued = false;
  for (size_t i = 0; i < updates_.size(); ++i) {
    if (!HasWeights(i)) continue;
    if (updates_[i]->result.fault != UpdateFault::kNone) {
      KeepWeights(i);
      queued = true;
    } else if (IsInPlace(i)) {
      const Region to = updates_[i]->buffers.new_param;
      stream.Copy(Direction(i), to.data(), to.size());
      queued = true;
    }
  }
  if (!queued) return;
  stream.Synchronize();
  for (size_t i = 0; i < updates_.size(); ++i) {
    UpdateResult& result = updates_[i]->result;
    if (result.fault == UpdateFault::kNone) continue;
    const UpdateFacts& facts = OnHost<UpdateFacts>(places_.update_facts)[i];
    result.weights_digest = facts.weights_digest;
    result.largest_weight_bits = facts.largest_weight_bits;
  }
}

}  // namespace kaon::kernels::cuda
