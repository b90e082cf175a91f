#include "server/shard/snapshot/frozen_part_writer.h"

#include <algorithm>
#include <utility>

#include "proto/status_macros.h"
#include "server/checkpoint/finite_state.h"
#include "server/checkpoint/state_tensors.h"

namespace kaon::shard {

FrozenPartWriter::FrozenPartWriter(StateFreeze& freeze,
                                   std::unique_ptr<checkpoint::PartWriter> writer)
    : freeze_(freeze), writer_(std::move(writer)) {}

absl::StatusOr<std::unique_ptr<FrozenPartWriter>> FrozenPartWriter::Create(
    checkpoint::CheckpointDirectory& directory, StateFreeze& freeze, const std::string& id,
    std::optional<uint64_t> attempt, const v1::CheckpointFile& written_by) {
  checkpoint::PartWriter::Options options;
  options.id = id;
  options.attempt = attempt;
  options.part = freeze.part();
  options.written_by = written_by;
  KAON_ASSIGN_OR_RETURN(
      std::unique_ptr<checkpoint::PartWriter> writer,
      checkpoint::PartWriter::Create(directory, freeze.facts().state.registration().definition(),
                                     std::move(options), freeze.tensors()));
  return std::unique_ptr<FrozenPartWriter>(new FrozenPartWriter(freeze, std::move(writer)));
}

absl::StatusOr<bool> FrozenPartWriter::WriteSome() {
  const v1::CheckpointTensor* tensor = writer_->tensor();
  if (tensor == nullptr) return false;
  const uint64_t size = checkpoint::StateBytes(tensor->dtype(), tensor->num_elements());
  piece_.resize(std::min<uint64_t>(checkpoint::kFinitePiece, size - offset_));
  KAON_RETURN_IF_ERROR(freeze_.Read(tensor->parameter_id(), tensor->role(), offset_,
                                    absl::MakeSpan(&piece_[0], piece_.size())));
  if (finite_.ok() && !checkpoint::AllFinite(tensor->dtype(), piece_)) {
    finite_ =
        checkpoint::NotFiniteError(freeze_.facts().state.registration().definition(), *tensor);
  }
  offset_ = offset_ + piece_.size() == size ? 0 : offset_ + piece_.size();
  KAON_RETURN_IF_ERROR(writer_->Append(piece_));
  written_bytes_ += piece_.size();
  return writer_->tensor() != nullptr;
}

}  // namespace kaon::shard
