#include "server/shard/checkpoint_part.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/status_macros.h"
#include "server/checkpoint/checkpoint_directory.h"
#include "server/checkpoint/part_writer.h"
#include "server/checkpoint/state_tensors.h"
#include "server/checkpoint/written_by.h"

namespace kaon::shard {

namespace {

// What is taken out of the frozen memory at once.
constexpr uint64_t kPieceBytes = uint64_t{1} << 20;

}  // namespace

absl::StatusOr<v1::CheckpointPart> WriteCheckpointPart(StateFreeze& freeze, disk::Directory& files,
                                                       const PartOptions& options) {
  checkpoint::CheckpointDirectory directory(files);
  checkpoint::PartWriter::Options part;
  part.id = options.id;
  part.part = freeze.part();
  part.written_by = checkpoint::WrittenBy(options.backend);
  KAON_ASSIGN_OR_RETURN(
      const std::unique_ptr<checkpoint::PartWriter> writer,
      checkpoint::PartWriter::Create(directory, freeze.facts().state.registration().definition(),
                                     std::move(part), freeze.tensors()));
  std::string piece;
  uint64_t written = 0;
  while (const v1::CheckpointTensor* next = writer->tensor()) {
    const v1::CheckpointTensor tensor = *next;
    const uint64_t size = checkpoint::StateBytes(tensor.dtype(), tensor.num_elements());
    for (uint64_t offset = 0; offset < size; offset += piece.size()) {
      piece.resize(std::min(kPieceBytes, size - offset));
      KAON_RETURN_IF_ERROR(
          freeze.Read(tensor.parameter_id(), tensor.role(), offset, absl::MakeSpan(piece)));
      KAON_RETURN_IF_ERROR(writer->Append(piece));
      written += piece.size();
      if (options.progress != nullptr) KAON_RETURN_IF_ERROR(options.progress(written));
    }
  }
  return writer->Finish();
}

}  // namespace kaon::shard
