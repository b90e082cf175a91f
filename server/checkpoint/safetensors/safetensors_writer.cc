#include "server/checkpoint/safetensors/safetensors_writer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/status_macros.h"

namespace kaon::checkpoint {

SafetensorsWriter::SafetensorsWriter(std::unique_ptr<disk::File> file, std::vector<Tensor> tensors,
                                     uint64_t first_byte)
    : file_(std::move(file)),
      tensors_(std::move(tensors)),
      first_byte_(first_byte),
      num_bytes_(first_byte + (tensors_.empty() ? 0 : tensors_.back().end)) {}

absl::StatusOr<std::unique_ptr<SafetensorsWriter>> SafetensorsWriter::Create(
    std::unique_ptr<disk::File> file, const std::map<std::string, std::string>& metadata,
    std::vector<Tensor> tensors, const SafetensorsRules& rules) {
  KAON_ASSIGN_OR_RETURN(tensors, LayOut(std::move(tensors)));
  KAON_ASSIGN_OR_RETURN(const std::string header,
                        FormatHeader(file->path(), metadata, tensors, rules));
  std::unique_ptr<SafetensorsWriter> writer(
      new SafetensorsWriter(std::move(file), std::move(tensors), header.size()));
  KAON_RETURN_IF_ERROR(writer->Write(header));
  return writer;
}

absl::Status SafetensorsWriter::Write(absl::string_view bytes) {
  // Sums follow the bytes, so a retry overwrites what a failed write left.
  KAON_RETURN_IF_ERROR(file_->Write(sums_.num_bytes(), {bytes}));
  sums_.Extend(bytes);
  return absl::OkStatus();
}

absl::Status SafetensorsWriter::Append(absl::string_view bytes) {
  const uint64_t left = num_bytes_ - sums_.num_bytes();
  if (bytes.size() > left) {
    return absl::InvalidArgumentError(absl::StrCat("file ", file_->path(), ": ", bytes.size(),
                                                   " bytes appended, its tensors lack ", left));
  }
  return Write(bytes);
}

absl::StatusOr<FileSums> SafetensorsWriter::Finish() {
  if (sums_.num_bytes() != num_bytes_) {
    return absl::FailedPreconditionError(absl::StrCat(
        "file ", file_->path(), " has ", sums_.num_bytes(), " of its ", num_bytes_, " bytes"));
  }
  KAON_RETURN_IF_ERROR(file_->Sync());
  return sums_.Finish();
}

}  // namespace kaon::checkpoint
