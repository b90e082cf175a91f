#include "server/checkpoint/safetensors/safetensors_reader.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/status_macros.h"

namespace kaon::checkpoint {

namespace {

absl::Status ReadExactly(disk::File& file, uint64_t offset, absl::Span<char> to) {
  KAON_ASSIGN_OR_RETURN(const size_t read, file.Read(offset, to.size(), to.data()));
  if (read == to.size()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("file ", file.path(), " ends at byte ", offset + read,
                                          ", expecting ", to.size(), " bytes from byte ", offset,
                                          " on"));
}

}  // namespace

SafetensorsReader::SafetensorsReader(disk::File& file, SafetensorsHeader header)
    : file_(file), header_(std::move(header)) {
  by_name_.reserve(header_.tensors.size());
  for (size_t i = 0; i < header_.tensors.size(); ++i) by_name_[header_.tensors[i].name] = i;
}

absl::StatusOr<std::unique_ptr<SafetensorsReader>> SafetensorsReader::Open(
    disk::File& file, const SafetensorsRules& rules) {
  KAON_ASSIGN_OR_RETURN(const uint64_t size, file.Size());
  std::string prefix(kLengthBytes, '\0');
  KAON_ASSIGN_OR_RETURN(const size_t read, file.Read(0, prefix.size(), prefix.data()));
  prefix.resize(read);
  KAON_ASSIGN_OR_RETURN(const uint64_t length, ParseHeaderLength(file.path(), prefix, size, rules));
  std::string json(length, '\0');
  KAON_RETURN_IF_ERROR(ReadExactly(file, kLengthBytes, absl::MakeSpan(json)));
  KAON_ASSIGN_OR_RETURN(SafetensorsHeader header, ParseHeader(file.path(), json, size, rules));
  return std::unique_ptr<SafetensorsReader>(new SafetensorsReader(file, std::move(header)));
}

absl::StatusOr<const Tensor*> SafetensorsReader::Find(absl::string_view name) const {
  const auto found = by_name_.find(name);
  if (found != by_name_.end()) return &header_.tensors[found->second];
  return absl::NotFoundError(absl::StrCat("file ", file_.path(), " has no tensor ", Quoted(name)));
}

absl::Status SafetensorsReader::Read(const Tensor& tensor, uint64_t offset,
                                     absl::Span<char> to) const {
  const uint64_t size = tensor.end - tensor.begin;
  if (offset > size || to.size() > size - offset) {
    return absl::OutOfRangeError(absl::StrCat("file ", file_.path(), ": tensor ",
                                              Quoted(tensor.name), ": ", to.size(),
                                              " bytes from byte ", offset, " on, it has ", size));
  }
  return ReadExactly(file_, header_.first_byte + tensor.begin + offset, to);
}

}  // namespace kaon::checkpoint
