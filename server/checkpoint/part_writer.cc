#include "server/checkpoint/part_writer.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/status_macros.h"
#include "server/checkpoint/manifest.h"
#include "server/checkpoint/state_tensors.h"

namespace kaon::checkpoint {

PartWriter::PartWriter(CheckpointDirectory& directory, const v1::JobDefinition& job,
                       Options options)
    : directory_(directory), job_(job), options_(std::move(options)), part_(options_.part) {}

absl::StatusOr<std::unique_ptr<PartWriter>> PartWriter::Create(
    CheckpointDirectory& directory, const v1::JobDefinition& job, Options options,
    std::vector<v1::CheckpointTensor> tensors) {
  for (const v1::CheckpointTensor& tensor : tensors) {
    if (tensor.parameter_id() < static_cast<uint32_t>(job.parameters_size())) continue;
    return absl::InvalidArgumentError(absl::StrCat("tensor of parameter_id ", tensor.parameter_id(),
                                                   ", the job has ", job.parameters_size(),
                                                   " parameters"));
  }
  std::unique_ptr<PartWriter> writer(new PartWriter(directory, job, std::move(options)));
  writer->waiting_.assign(tensors.begin(), tensors.end());
  const absl::Status opened = writer->OpenFile();
  if (opened.ok()) return writer;
  writer->Discard();
  return opened;
}

std::string PartWriter::NextName() const {
  return CheckpointDirectory::FileName(CheckpointDirectory::Stem(options_.id, options_.attempt),
                                       part_.shard(), part_.num_shards(),
                                       static_cast<uint32_t>(part_.files_size()));
}

absl::Status PartWriter::OpenFile() {
  tensors_.clear();
  next_ = 0;
  if (waiting_.empty()) return absl::OkStatus();
  // Names have at most 512 bytes, and escapes at most double them. So 1 MiB of header has room for
  // hundreds of the longest. Create checks the actual header.
  constexpr size_t kHeaderBytes = size_t{900} << 10;
  constexpr size_t kBytesBesideName = 400;
  std::vector<Tensor> in_file;
  std::map<std::string, v1::CheckpointTensor> by_name;
  size_t header_bytes = 0;
  while (!waiting_.empty() && in_file.size() < options_.max_tensors_per_file) {
    const v1::CheckpointTensor& tensor = waiting_.front();
    Tensor next = TensorInFile(job_.parameters(static_cast<int>(tensor.parameter_id())), tensor);
    header_bytes += 2 * next.name.size() + kBytesBesideName;
    if (header_bytes > kHeaderBytes && !in_file.empty()) break;
    by_name[next.name] = tensor;
    in_file.push_back(std::move(next));
    waiting_.pop_front();
  }
  const auto index = static_cast<uint32_t>(part_.files_size());
  KAON_ASSIGN_OR_RETURN(
      std::unique_ptr<disk::File> created,
      directory_.CreateFile(options_.id, options_.attempt, part_.shard(), part_.num_shards(),
                            index));
  made_.push_back(NextName());
  const std::map<std::string, std::string> metadata = {
      {"checkpoint", options_.id},
      {"job", part_.job()},
      {"timeline", absl::StrCat(part_.timeline())},
      {"position", absl::StrCat(part_.position())}};
  KAON_ASSIGN_OR_RETURN(
      file_, SafetensorsWriter::Create(std::move(created), metadata, std::move(in_file)));
  for (const Tensor& placed : file_->tensors()) {
    v1::CheckpointTensor& tensor = tensors_.emplace_back(by_name.at(placed.name));
    tensor.set_file(index);
    tensor.set_offset(file_->first_byte() + placed.begin);
  }
  return absl::OkStatus();
}

absl::Status PartWriter::CloseFile() {
  KAON_ASSIGN_OR_RETURN(const FileSums sums, file_->Finish());
  v1::CheckpointFile file = options_.written_by;
  file.set_name(NextName());
  file.set_shard(part_.shard());
  SetSums(sums, &file);
  *part_.add_files() = std::move(file);
  for (const v1::CheckpointTensor& tensor : tensors_) *part_.add_tensors() = tensor;
  file_.reset();
  return OpenFile();
}

const v1::CheckpointTensor* PartWriter::tensor() const {
  return next_ < tensors_.size() ? &tensors_[next_] : nullptr;
}

absl::Status PartWriter::Append(absl::string_view bytes) {
  if (bytes.empty()) return absl::OkStatus();
  if (tensor() == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("part of shard ", part_.shard(), ": ",
                                                   bytes.size(),
                                                   " bytes appended, every tensor has its bytes"));
  }
  const uint64_t size = StateBytes(tensor()->dtype(), tensor()->num_elements());
  if (bytes.size() > size - written_bytes_) {
    return absl::InvalidArgumentError(
        absl::StrCat(Describe(job_, tensor()->parameter_id(), tensor()->role()), ": ", bytes.size(),
                     " bytes appended, it lacks ", size - written_bytes_));
  }
  KAON_RETURN_IF_ERROR(file_->Append(bytes));
  written_bytes_ += bytes.size();
  if (written_bytes_ < size) return absl::OkStatus();
  written_bytes_ = 0;
  return ++next_ < tensors_.size() ? absl::OkStatus() : CloseFile();
}

absl::StatusOr<v1::CheckpointPart> PartWriter::Finish() {
  if (tensor() != nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        Describe(job_, tensor()->parameter_id(), tensor()->role()), ": has ", written_bytes_,
        " of its ", StateBytes(tensor()->dtype(), tensor()->num_elements()), " bytes"));
  }
  KAON_RETURN_IF_ERROR(directory_.SyncNames());
  return part_;
}

void PartWriter::Discard() {
  // Report the first error, and ignore errors of the cleanup.
  for (const std::string& name : made_) directory_.RemoveFile(name).IgnoreError();
  made_.clear();
}

}  // namespace kaon::checkpoint
