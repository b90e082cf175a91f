#include "server/shard/gradients/parameter_fold.h"

#include <glog/logging.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/dtype.h"
#include "kernels/nccl/device_link.h"
#include "kernels/reduce/digest.h"
#include "proto/crc32c.h"
#include "proto/status_macros.h"
#include "server/mutation/mutation.h"

namespace kaon::shard {

namespace {

// The two enumerations have equal values (kernels/dtype.h).
kernels::DType ToKernels(v1::DType dtype) { return static_cast<kernels::DType>(dtype); }

std::vector<std::byte> Flatten(proto::Slices slices) {
  std::vector<std::byte> bytes;
  size_t size = 0;
  for (const auto& slice : slices) size += slice.size();
  bytes.reserve(size);
  for (const auto& slice : slices) bytes.insert(bytes.end(), slice.begin(), slice.end());
  return bytes;
}

}  // namespace

ParameterFold::ParameterFold(uint32_t parameter_id, std::string name, kernels::Region sum,
                             kernels::Backend& backend)
    : parameter_id_(parameter_id),
      name_(std::move(name)),
      sum_(sum),
      num_elements_(sum.num_floats()),
      accumulation_(backend.Accumulate(sum)) {}

void ParameterFold::Expect(absl::Span<const v1::Member> members, bool loading_weights) {
  Clear();
  accumulation_->Begin();
  AppendContributions(members, loading_weights);
}

void ParameterFold::Clear() {
  contributions_.clear();
  restored_ = false;
  non_finite_rank_.reset();
  sum_is_finite_ = true;
  is_zero_ = false;
  finished_.reset();
  gradient_digest_ = 0;
}

void ParameterFold::AppendContributions(absl::Span<const v1::Member> members,
                                        bool loading_weights) {
  loading_weights_ = loading_weights;
  for (const v1::Member& member : members) {
    for (uint32_t micro = 0; micro < member.micro_batches(); ++micro) {
      Contribution contribution;
      contribution.rank = member.rank();
      contribution.micro_batch = micro;
      contribution.weight = loading_weights ? 1.0f : static_cast<float>(member.token_weight());
      contributions_.push_back(std::move(contribution));
    }
  }
}

bool ParameterFold::HasFoldedBeyond(size_t num_members) const {
  size_t member = 0;
  for (size_t i = 0; i < contributions_.size(); ++i) {
    if (i > 0 && contributions_[i].rank != contributions_[i - 1].rank) ++member;
    if (member >= num_members && contributions_[i].folded > 0) return true;
  }
  return false;
}

void ParameterFold::ReplaceMembersFrom(size_t num_members, absl::Span<const v1::Member> members) {
  // Do not search for the next member's rank: the member after the kept ones may have left the
  // plan.
  contributions_.resize(num_members == 0 ? 0 : LowerBound(members[num_members - 1].rank() + 1, 0));
  AppendContributions(members.subspan(num_members), loading_weights_);
}

void ParameterFold::Restore(absl::Span<const v1::Member> members, bool loading_weights,
                            const v1::ParameterSums& sums) {
  // The sum holds the gradient, so the accumulation must not begin.
  Clear();
  AppendContributions(members, loading_weights);
  restored_ = true;
  finished_ = sums;
  for (Contribution& contribution : contributions_) {
    contribution.missing = sums.missing();
    if (!sums.missing()) contribution.received = contribution.folded = num_elements_;
  }
}

size_t ParameterFold::LowerBound(uint32_t rank, uint32_t micro_batch) const {
  const auto found = std::lower_bound(
      contributions_.begin(), contributions_.end(), std::make_pair(rank, micro_batch),
      [](const Contribution& contribution, const std::pair<uint32_t, uint32_t>& key) {
        return std::make_pair(contribution.rank, contribution.micro_batch) < key;
      });
  return static_cast<size_t>(found - contributions_.begin());
}

absl::Status ParameterFold::Invalid(const Contribution& contribution,
                                    const std::string& why) const {
  return absl::InvalidArgumentError(absl::StrCat("parameter ", name_, " of rank ",
                                                 contribution.rank, " micro-batch ",
                                                 contribution.micro_batch, ": ", why));
}

absl::StatusOr<bool> ParameterFold::CheckOrder(const Contribution& contribution,
                                               const v1::TensorChunk& chunk,
                                               proto::Slices payload) const {
  if (chunk.offset() == contribution.received) return false;
  if (chunk.offset() > contribution.received) {
    return Invalid(contribution, absl::StrCat("gap: elements from ", chunk.offset(),
                                              " pushed, expecting from ", contribution.received));
  }
  // After Restore, chunks are known only as accepted; their bytes are unknown.
  if (contribution.taken.empty()) return true;
  const uint64_t end = chunk.offset() + chunk.num_elements();
  const auto taken =
      std::upper_bound(contribution.taken.begin(), contribution.taken.end(), chunk.offset(),
                       [](uint64_t offset, const Taken& other) { return offset < other.end; });
  const uint64_t start = taken == contribution.taken.begin() ? 0 : std::prev(taken)->end;
  if (start != chunk.offset() || taken->end != end) {
    return Invalid(contribution, absl::StrCat("overlap: elements ", chunk.offset(), " .. ", end,
                                              " pushed, elements ", start, " .. ", taken->end,
                                              " were taken as one chunk"));
  }
  const uint64_t checksum = taken->is_digest
                                ? kernels::TensorDigester(parameter_id_, kernels::kTransferSlot)
                                      .OfBytes(Flatten(payload), 0)
                                : chunk.crc32c();
  if (taken->checksum == checksum && taken->dtype == chunk.dtype()) return true;
  return absl::AlreadyExistsError(absl::StrCat(
      "parameter ", name_, " of rank ", contribution.rank, " micro-batch ",
      contribution.micro_batch, ": elements from ", chunk.offset(),
      " were taken with other bytes, ", taken->is_digest ? "digest " : "CRC32C ",
      absl::Hex(taken->checksum, absl::kZeroPad8), ", now ", absl::Hex(checksum, absl::kZeroPad8)));
}

absl::Status ParameterFold::Add(uint32_t rank, const v1::TensorChunk& chunk, proto::Slices payload,
                                uint64_t staging_room, std::vector<ReleasedBytes>* released,
                                const DeviceBytes& on_device) {
  const size_t index = LowerBound(rank, chunk.micro_batch());
  if (index == contributions_.size() || contributions_[index].rank != rank ||
      contributions_[index].micro_batch != chunk.micro_batch()) {
    return absl::InvalidArgumentError(absl::StrCat("parameter ", name_, ": micro-batch ",
                                                   chunk.micro_batch(), " of rank ", rank,
                                                   " pushed, the plan has no such one"));
  }
  Contribution& contribution = contributions_[index];
  const uint64_t bytes = chunk.num_elements() * proto::WireSizeOf(chunk.dtype());
  if (contribution.missing) {
    return Invalid(contribution, "pushed, it was finished as missing");
  }
  KAON_ASSIGN_OR_RETURN(const bool repeated, CheckOrder(contribution, chunk, payload));
  if (repeated && !Mutated(Mutation::kRepetitionFolded)) {
    released->push_back({rank, bytes});
    return absl::OkStatus();
  }
  const uint64_t end = chunk.offset() + chunk.num_elements();
  const bool in_turn = IsInTurn(index, end);
  if (!in_turn && bytes > staging_room) {
    return absl::ResourceExhaustedError(
        absl::StrCat("parameter ", name_, " of rank ", rank, ": ", bytes,
                     " bytes must wait for an earlier rank, credit is left for ", staging_room));
  }
  contribution.received = end;
  const bool is_digest = !on_device.memory.empty();
  contribution.taken.push_back(
      {end, is_digest ? on_device.digest : chunk.crc32c(), chunk.dtype(), is_digest});
  if (!in_turn) {
    CHECK(!is_digest) << "a chunk that must wait is on the device";
    contribution.staged.push_back({chunk.offset(), chunk.num_elements(), ToKernels(chunk.dtype()),
                                   Flatten(payload), chunk.crc32c()});
    return absl::OkStatus();
  }
  kernels::GradientChunk folded{ToKernels(chunk.dtype()), payload, chunk.offset()};
  folded.memory = on_device.memory;
  Fold(index, end, folded);
  released->push_back({rank, bytes});
  Drain(index + 1, released);
  return absl::OkStatus();
}

bool ParameterFold::AddFolds(uint32_t rank, const v1::TensorChunk& chunk) const {
  const size_t index = LowerBound(rank, chunk.micro_batch());
  if (index == contributions_.size() || contributions_[index].rank != rank) return false;
  const Contribution& contribution = contributions_[index];
  return chunk.offset() == contribution.received &&
         IsInTurn(index, chunk.offset() + chunk.num_elements());
}

bool ParameterFold::MarkMissingFolds() const {
  return std::any_of(contributions_.begin(), contributions_.end(),
                     [](const Contribution& one) { return !one.staged.empty(); });
}

bool ParameterFold::FinishWrites(const Reduction& reduction) const {
  return !finished() && (!missing() || reduction.zero_if_missing);
}

bool ParameterFold::IsInTurn(size_t index, uint64_t end) const {
  const Contribution* const previous = Previous(index);
  return (contributions_[index].staged.empty() &&
          (previous == nullptr || previous->folded >= end)) ||
         Mutated(Mutation::kFoldedAsTheyArrive);
}

const ParameterFold::Contribution* ParameterFold::Previous(size_t index) const {
  while (index > 0) {
    if (!contributions_[--index].missing) return &contributions_[index];
  }
  return nullptr;
}

void ParameterFold::Fold(size_t index, uint64_t end, kernels::GradientChunk chunk) {
  Contribution& contribution = contributions_[index];
  const auto folded_before = [&chunk](const Contribution& other) {
    return other.folded > chunk.offset;
  };
  chunk.contribution = static_cast<uint32_t>(index);
  chunk.weight = contribution.weight;
  chunk.first = Mutated(Mutation::kFoldedAsTheyArrive)
                    ? std::none_of(contributions_.begin(), contributions_.end(), folded_before)
                    : Previous(index) == nullptr;
  accumulation_->Fold(chunk);
  contribution.folded = end;
}

void ParameterFold::CheckStaged(const Contribution& contribution, const Staged& chunk) const {
  const uint32_t crc = proto::Crc32c(chunk.bytes.data(), chunk.bytes.size());
  if (crc == chunk.crc32c) return;
  LOG(FATAL) << "DATA_LOSS: parameter " << name_ << " of rank " << contribution.rank
             << " micro-batch " << contribution.micro_batch << ": elements from " << chunk.offset
             << " have CRC32C " << absl::StrCat(absl::Hex(crc, absl::kZeroPad8))
             << " in memory, taken with " << absl::StrCat(absl::Hex(chunk.crc32c, absl::kZeroPad8));
}

void ParameterFold::Drain(size_t index, std::vector<ReleasedBytes>* released) {
  for (; index < contributions_.size(); ++index) {
    Contribution& contribution = contributions_[index];
    if (contribution.missing) continue;
    const Contribution* previous = Previous(index);
    const uint64_t folded_before = contribution.folded;
    while (!contribution.staged.empty()) {
      const Staged& chunk = contribution.staged.front();
      if (previous != nullptr && previous->folded < chunk.offset + chunk.num_elements) break;
      CheckStaged(contribution, chunk);
      const auto payload = absl::MakeConstSpan(chunk.bytes);
      Fold(index, chunk.offset + chunk.num_elements,
           {chunk.dtype, absl::MakeConstSpan(&payload, 1), chunk.offset});
      released->push_back({contribution.rank, chunk.bytes.size()});
      contribution.staged.pop_front();
    }
    // Later contributions wait for this one.
    if (contribution.folded == folded_before && contribution.folded < num_elements_) return;
  }
}

absl::Status ParameterFold::CheckFinished(uint32_t rank, bool missing) const {
  for (size_t i = LowerBound(rank, 0); i < contributions_.size() && contributions_[i].rank == rank;
       ++i) {
    const Contribution& contribution = contributions_[i];
    const uint64_t expected = missing ? 0 : num_elements_;
    if (contribution.missing ? !missing : contribution.received != expected) {
      return Invalid(contribution,
                     absl::StrCat("finished with ", contribution.received, " elements, expecting ",
                                  expected, missing ? " as it is finished as missing" : ""));
    }
  }
  return absl::OkStatus();
}

void ParameterFold::MarkMissing(uint32_t rank, std::vector<ReleasedBytes>* released) {
  const size_t begin = LowerBound(rank, 0);
  for (size_t i = begin; i < contributions_.size() && contributions_[i].rank == rank; ++i) {
    contributions_[i].missing = true;
  }
  Drain(begin, released);
}

bool ParameterFold::IsComplete() const {
  // No contribution is folded ahead of an earlier one, so the last one decides.
  const Contribution* last = Previous(contributions_.size());
  return last == nullptr || last->folded == num_elements_;
}

bool ParameterFold::IsSettled() const {
  return std::all_of(contributions_.begin(), contributions_.end(), [this](const auto& one) {
    return one.missing || one.folded == num_elements_;
  });
}

uint64_t ParameterFold::StagedBytes(uint32_t rank) const {
  uint64_t bytes = 0;
  for (size_t i = LowerBound(rank, 0); i < contributions_.size() && contributions_[i].rank == rank;
       ++i) {
    for (const Staged& chunk : contributions_[i].staged) bytes += chunk.bytes.size();
  }
  return bytes;
}

v1::DType ParameterFold::first_dtype() const {
  for (const Contribution& contribution : contributions_) {
    if (!contribution.taken.empty()) return contribution.taken.front().dtype;
  }
  return v1::DTYPE_UNSPECIFIED;
}

void ParameterFold::NoteFacts() {
  for (size_t i = 0; i < contributions_.size(); ++i) {
    const kernels::FoldFacts facts = accumulation_->FactsOf(static_cast<uint32_t>(i));
    contributions_[i].sum_squares = facts.sum_squares;
    // Contributions are in the order of ranks.
    if (facts.non_finite && !non_finite_rank_.has_value()) {
      non_finite_rank_ = contributions_[i].rank;
    }
  }
}

const v1::ParameterSums& ParameterFold::Finish(const Divisors& divisors,
                                               const Reduction& reduction) {
  if (finished_.has_value()) return *finished_;
  CHECK(IsComplete()) << "parameter " << name_ << ": its sum is not complete";
  v1::ParameterSums& sums = finished_.emplace();
  sums.set_parameter_id(parameter_id_);
  sums.set_num_elements(num_elements_);
  if (missing() && !reduction.zero_if_missing) {
    sums.set_missing(true);
    return sums;
  }
  kernels::MeanScalars scalars;
  scalars.parameter_id = parameter_id_;
  scalars.takes_sum = reduction.takes_sum;
  if (missing()) {
    accumulation_->SetZero();
    is_zero_ = true;
  } else {
    scalars.total_weight = divisors.total_weight;
    scalars.loss_scale = divisors.loss_scale;
  }
  const kernels::MeanFacts facts = accumulation_->FinishMean(scalars);
  if (!is_zero_) NoteFacts();
  const kernels::GradNorm& norm = facts.norm;
  sums.set_sum_squares(norm.sum_squares);
  sums.set_absolute_max(norm.absolute_max);
  sums.set_num_zeros(static_cast<uint64_t>(norm.num_zeros));
  sums.set_num_non_finite(static_cast<uint64_t>(norm.num_non_finite));
  sum_is_finite_ = norm.num_non_finite == 0;
  gradient_digest_ = facts.digest;
  return sums;
}

void ParameterFold::AddSumSquares(std::map<uint32_t, double>* of_rank) const {
  if (restored_ || loading_weights_) return;
  for (const Contribution& contribution : contributions_) {
    (*of_rank)[contribution.rank] += contribution.sum_squares;
  }
}

std::optional<int32_t> ParameterFold::first_non_finite_rank() const {
  if (non_finite_rank_.has_value()) return static_cast<int32_t>(*non_finite_rank_);
  if (!sum_is_finite_) return -1;
  return std::nullopt;
}

void ParameterFold::AppendReceived(
    uint32_t rank, google::protobuf::RepeatedPtrField<v1::ReceivedChunks>* received) const {
  for (size_t i = LowerBound(rank, 0); i < contributions_.size() && contributions_[i].rank == rank;
       ++i) {
    if (contributions_[i].received == 0) continue;
    v1::ReceivedChunks* chunks = received->Add();
    chunks->set_parameter_id(parameter_id_);
    chunks->set_micro_batch(contributions_[i].micro_batch);
    chunks->set_num_elements(contributions_[i].received);
  }
}

}  // namespace kaon::shard
