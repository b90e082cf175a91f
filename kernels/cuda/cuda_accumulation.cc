#include "kernels/cuda/cuda_accumulation.h"

#include <glog/logging.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/cuda/elements/fold.h"
#include "kernels/cuda/elements/mean.h"
#include "kernels/cuda/seeded_bug.h"
#include "kernels/cuda/slice_reader.h"
#include "kernels/cuda/staged_copy.h"
#include "kernels/dtype.h"
#include "kernels/reduce/digest.h"
#include "kernels/reduce/digest_key.h"

namespace kaon::kernels::cuda {
namespace {

OwnedMemory MustAllocate(Device& device, uint64_t bytes) {
  absl::StatusOr<OwnedMemory> buffer = OwnedMemory::OnDevice(device, bytes);
  if (!buffer.ok()) LOG(FATAL) << "facts of a sum: " << buffer.status();
  return *std::move(buffer);
}

}  // namespace

CudaAccumulation::CudaAccumulation(Device& device, LanePool& lanes, FoldRing& ring, Region sum)
    : device_(device), lanes_(lanes), ring_(ring), sum_(sum), stream_(ring.Add(sum)) {
  CHECK(sum.space() == Space::kDevice) << "a sum of the device is in host memory";
}

CudaAccumulation::~CudaAccumulation() {
  Await();
  ring_.Remove(sum_);
}

void CudaAccumulation::Await() const {
  const LanePool::Borrowed lane = lanes_.Borrow();
  lane->stream->Wait(*stream_.end);
  lane->stream->Record(*lane->end);
  lane->end->Await();
}

void CudaAccumulation::Begin() {
  num_contributions_ = 0;
  known_facts_.clear();
  if (capacity_ == 0) return;
  MutexLock lock(stream_.mutex);
  stream_.stream->SetZero(facts_.data(), facts_.size());
  stream_.stream->Record(*stream_.end);
}

void CudaAccumulation::ReserveFacts(uint32_t last) {
  known_facts_.clear();
  num_contributions_ = std::max(num_contributions_, last + 1);
  if (num_contributions_ <= capacity_) return;
  const uint32_t capacity = std::max<uint32_t>(16, 2 * num_contributions_);
  OwnedMemory facts = MustAllocate(device_, capacity * sizeof(FoldSums));
  {
    MutexLock lock(stream_.mutex);
    stream_.stream->SetZero(facts.data(), facts.size());
    stream_.stream->Copy(facts_.data(), facts.data(), facts_.size());
    stream_.stream->Record(*stream_.end);
  }
  // Until the old facts are free.
  Await();
  facts_ = std::move(facts);
  capacity_ = capacity;
}

void CudaAccumulation::Fold(const GradientChunk& chunk) {
  const uint64_t element_bytes = SizeOf(chunk.dtype);
  SliceReader reader(chunk.slices);
  const bool is_there = !chunk.memory.empty();
  CHECK(!is_there || chunk.memory.space() == Space::kDevice) << "a chunk is in host memory";
  const uint64_t num_elements = (is_there ? chunk.memory.size() : reader.left()) / element_bytes;
  CHECK(chunk.offset <= sum_.num_floats() && num_elements <= sum_.num_floats() - chunk.offset)
      << "elements " << chunk.offset << " .. " << chunk.offset + num_elements << " of "
      << sum_.num_floats();
  ReserveFacts(chunk.contribution);
  auto* const facts = reinterpret_cast<FoldSums*>(facts_.data());
  for (uint64_t done = 0; done < num_elements;) {
    const uint64_t count = std::min(FoldSlot::kBytes / element_bytes, num_elements - done);
    const uint64_t bytes = count * element_bytes;
    FoldSlot& slot = ring_.Take();
    if (!is_there) reader.Read(bytes, slot.pinned.data());
    {
      MutexLock lock(stream_.mutex);
      Stream& stream = *stream_.stream;
      if (!is_there) CopyChunkIn(stream, slot, bytes);
      const std::byte* const from =
          is_there ? chunk.memory.data() + done * element_bytes : slot.device.data();
      FoldChunk(stream, {.dtype = chunk.dtype,
                         .from = from,
                         .weight = chunk.weight,
                         .first = chunk.first,
                         .sum = reinterpret_cast<float*>(sum_.data()) + chunk.offset + done,
                         .num_elements = static_cast<int64_t>(count),
                         .facts = facts + chunk.contribution,
                         .block_squares = reinterpret_cast<double*>(slot.squares.data())});
      stream.Record(*slot.done);
      stream.Record(*stream_.end);
    }
    // The memory is the caller's again once this returns.
    if (is_there) slot.done->Await();
    ring_.GiveBack(slot);
    done += count;
  }
}

void CudaAccumulation::CopyChunkIn(Stream& stream, const FoldSlot& slot, uint64_t bytes) const {
  if (Has(SeededBug::kChunkCopiedOnOtherStream)) {
    const LanePool::Borrowed lane = lanes_.Borrow();
    lane->stream->CopyIn(slot.pinned.data(), slot.device.data(), bytes);
    return;
  }
  stream.CopyIn(slot.pinned.data(), slot.device.data(), bytes);
}

void CudaAccumulation::SetZero() {
  MutexLock lock(stream_.mutex);
  stream_.stream->SetZero(sum_.data(), sum_.size());
  stream_.stream->Record(*stream_.end);
}

MeanFacts CudaAccumulation::FinishMean(const MeanScalars& scalars) {
  const auto num_elements = static_cast<int64_t>(sum_.num_floats());
  const int64_t bytes = MeanFactsBytes(num_elements);
  if (mean_facts_.size() == 0) mean_facts_ = MustAllocate(device_, bytes);
  const LanePool::Borrowed lane = lanes_.Borrow();
  {
    MutexLock lock(stream_.mutex);
    Stream& stream = Has(SeededBug::kMeanOnOtherStream) ? *lane->stream : *stream_.stream;
    kernels::cuda::FinishMean(stream, {.sum = reinterpret_cast<float*>(sum_.data()),
                                       .num_elements = num_elements,
                                       .total_weight = PrepareDivision(scalars.total_weight),
                                       .loss_scale = PrepareDivision(scalars.loss_scale),
                                       .key = TensorDigestKey(scalars.parameter_id, kGradientSlot),
                                       .takes_sum = scalars.takes_sum,
                                       .facts = mean_facts_.data()});
    stream_.stream->Record(*stream_.end);
    if (!Has(SeededBug::kFactsReadBeforeTheMean)) lane->stream->Wait(*stream_.end);
  }
  facts_of_mean_.resize(bytes);
  CopyOutThrough(*lane, mean_facts_.data(), bytes, facts_of_mean_.data());
  MeanSums sums;
  std::memcpy(&sums, facts_of_mean_.data(), sizeof(sums));
  return {NormOfFacts(facts_of_mean_.data(), num_elements), sums.digest};
}

void CudaAccumulation::ReadFacts() const {
  const uint64_t bytes = num_contributions_ * sizeof(FoldSums);
  const LanePool::Borrowed lane = lanes_.Borrow();
  lane->stream->Wait(*stream_.end);
  std::vector<FoldSums> sums(num_contributions_);
  CopyOutThrough(*lane, facts_.data(), bytes, reinterpret_cast<std::byte*>(sums.data()));
  for (const FoldSums& sum : sums) known_facts_.push_back({sum.sum_squares, sum.non_finite != 0});
}

FoldFacts CudaAccumulation::FactsOf(uint32_t contribution) const {
  if (contribution >= num_contributions_) return {};
  if (known_facts_.empty()) ReadFacts();
  return known_facts_[contribution];
}

}  // namespace kaon::kernels::cuda
