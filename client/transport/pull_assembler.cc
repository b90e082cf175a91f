#include "client/transport/pull_assembler.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/cpu/streaming_store.h"
#include "kernels/dtype.h"
#include "proto/status_macros.h"

namespace kaon::client {

namespace {

// The border of two runs may cut an element.
uint64_t CountInfinite(DType dtype, proto::Slices payload) {
  const auto kernels_dtype = static_cast<kernels::DType>(dtype);
  uint64_t count = 0;
  std::byte cut[2];
  bool is_cut = false;
  for (absl::Span<const std::byte> run : payload) {
    if (run.empty()) continue;
    if (is_cut) {
      cut[1] = run.front();
      count += kernels::CountInfinite(kernels_dtype, cut, 1);
      run.remove_prefix(1);
    }
    is_cut = run.size() % sizeof(cut) != 0;
    if (is_cut) cut[0] = run.back();
    count += kernels::CountInfinite(kernels_dtype, run.data(), run.size() / sizeof(cut));
  }
  return count;
}

}  // namespace

PullAssembler::PullAssembler(const v1::PullRequest& request, std::vector<MutableTensorView> targets,
                             OnInfinite on_infinite)
    : parameter_ids_(request.parameter_ids().begin(), request.parameter_ids().end()),
      dtype_(request.dtype()),
      targets_(std::move(targets)),
      on_infinite_(std::move(on_infinite)) {}

absl::Status PullAssembler::Accept(absl::Span<const proto::ChunkView> chunks) {
  if (chunks.empty()) return absl::InternalError("pulled a message without chunks");
  for (const proto::ChunkView& view : chunks) {
    KAON_RETURN_IF_ERROR(AcceptOne(*view.chunk, view.payload));
  }
  return absl::OkStatus();
}

absl::StatusOr<PullAssembler::Place> PullAssembler::Check(const v1::TensorChunk& chunk,
                                                          size_t bytes) const {
  if (target_ == targets_.size()) {
    return absl::InternalError(absl::StrCat("pulled parameter ", chunk.parameter_id(), ", offset ",
                                            chunk.offset(), " after all that was asked for"));
  }
  const MutableTensorView& target = targets_[target_];
  if (chunk.parameter_id() != parameter_ids_[target_] || chunk.offset() != num_elements_) {
    return absl::InternalError(absl::StrCat("pulled parameter ", chunk.parameter_id(), ", offset ",
                                            chunk.offset(), ", expecting parameter ",
                                            parameter_ids_[target_], ", offset ", num_elements_));
  }
  if (chunk.dtype() != dtype_) {
    return absl::InternalError(absl::StrCat("pulled parameter ", chunk.parameter_id(), " as dtype ",
                                            static_cast<int>(chunk.dtype()), ", expecting ",
                                            static_cast<int>(dtype_)));
  }
  const size_t size = SizeOf(target.dtype);
  if (chunk.num_elements() == 0 || chunk.num_elements() > target.num_elements - num_elements_ ||
      bytes != chunk.num_elements() * size) {
    return absl::InternalError(absl::StrCat(
        "pulled parameter ", chunk.parameter_id(), ", offset ", chunk.offset(), ": ",
        chunk.num_elements(), " elements in ", bytes, " bytes, of ", target.num_elements));
  }
  return Place{target, static_cast<std::byte*>(target.elements) + num_elements_ * size};
}

void PullAssembler::Count(const v1::TensorChunk& chunk) {
  num_elements_ += chunk.num_elements();
  if (num_elements_ == targets_[target_].num_elements) {
    ++target_;
    num_elements_ = 0;
  }
}

absl::StatusOr<PullAssembler::Place> PullAssembler::Take(const v1::TensorChunk& chunk,
                                                         size_t bytes) {
  KAON_ASSIGN_OR_RETURN(const Place place, Check(chunk, bytes));
  Count(chunk);
  return place;
}

absl::Status PullAssembler::AcceptOne(const v1::TensorChunk& chunk, proto::Slices payload) {
  size_t bytes = 0;
  for (const absl::Span<const std::byte>& run : payload) bytes += run.size();
  KAON_ASSIGN_OR_RETURN(const Place place, Check(chunk, bytes));
  const MutableTensorView& target = place.target;
  KAON_RETURN_IF_ERROR(proto::VerifyChecksum(chunk, payload));
  // Masters are fp32: some have no other value in a 16-bit type.
  if (on_infinite_ && target.dtype != DType::kFloat32) {
    const uint64_t infinite = CountInfinite(target.dtype, payload);
    if (infinite > 0) on_infinite_(chunk.parameter_id(), infinite);
  }
  std::byte* to = place.to;
  const bool streams = target.num_bytes() >= kernels::kLeastStreamedBytes;
  for (const absl::Span<const std::byte>& run : payload) {
    if (streams) {
      kernels::StreamTo(run.data(), run.size(), to);
    } else {
      std::memcpy(to, run.data(), run.size());
    }
    to += run.size();
  }
  if (streams) kernels::EndStreaming();
  Count(chunk);
  return absl::OkStatus();
}

absl::Status PullAssembler::CheckComplete() const {
  if (target_ == targets_.size()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("the pull ended with ", num_elements_, " of ",
                                          targets_[target_].num_elements, " elements of parameter ",
                                          parameter_ids_[target_]));
}

}  // namespace kaon::client
