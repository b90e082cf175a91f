#include "server/checkpoint/checkpoint_reader.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/state_codec.h"
#include "proto/status_macros.h"
#include "server/checkpoint/state_place.h"
#include "server/checkpoint/state_tensors.h"

namespace kaon::checkpoint {

namespace {

// Identifies a tensor that may consist of several runs.
struct Key {
  uint32_t parameter_id;
  absl::string_view role;
};

// Order of tensors in the manifest.
struct BeforeInManifest {
  static std::pair<uint32_t, absl::string_view> Of(const Key& key) {
    return {key.parameter_id, key.role};
  }
  static std::pair<uint32_t, absl::string_view> Of(const v1::CheckpointTensor& tensor) {
    return {tensor.parameter_id(), tensor.role()};
  }
  template <typename A, typename B>
  bool operator()(const A& a, const B& b) const {
    return Of(a) < Of(b);
  }
};

}  // namespace

CheckpointReader::CheckpointReader(CheckpointDirectory& directory, v1::CheckpointManifest manifest)
    : directory_(directory), manifest_(std::move(manifest)) {}

absl::Status CheckpointReader::Read(uint32_t parameter_id, absl::string_view role, uint64_t first,
                                    uint64_t num_elements, absl::Span<char> to) {
  const std::string name = absl::StrCat(
      "checkpoint ", manifest_.id(), ": ",
      Describe(manifest_.registration().definition(), parameter_id, std::string(role)));
  // CheckManifest has checked that the runs of one tensor are adjacent and without holes.
  const auto [begin, end] = std::equal_range(manifest_.tensors().begin(), manifest_.tensors().end(),
                                             Key{parameter_id, role}, BeforeInManifest());
  if (begin == end) return absl::NotFoundError(absl::StrCat(name, " is not in it"));
  const v1::CheckpointTensor& last = *std::prev(end);
  const uint64_t total = last.first_element() + last.num_elements();
  if (first > total || num_elements > total - first) {
    return absl::InvalidArgumentError(absl::StrCat(
        name, ": ", num_elements, " elements from element ", first, " on, of ", total));
  }
  const uint64_t stop = first + num_elements;
  const auto is_boundary = [&](uint64_t element) {
    return !IsInGroups(last.dtype()) || element % kernels::kStateGroup == 0 || element == total;
  };
  if (!is_boundary(first) || !is_boundary(stop)) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": elements ", first, " to ", stop,
                     " of a tensor in groups, expecting multiples of ", kernels::kStateGroup));
  }
  const uint64_t first_byte = StateBytes(last.dtype(), first);
  if (to.size() != StateBytes(last.dtype(), stop) - first_byte) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": ", to.size(), " bytes for elements ",
                                                   first, " to ", stop, ", expecting ",
                                                   StateBytes(last.dtype(), stop) - first_byte));
  }
  for (auto run = begin; run != end; ++run) {
    const uint64_t from = std::max(first, run->first_element());
    const uint64_t until = std::min(stop, run->first_element() + run->num_elements());
    if (from >= until) continue;
    const uint64_t at = StateBytes(last.dtype(), from);
    const uint64_t size = StateBytes(last.dtype(), until) - at;
    const uint64_t offset = run->offset() + at - StateBytes(last.dtype(), run->first_element());
    KAON_RETURN_IF_ERROR(ReadFile(run->file(), offset, to.subspan(at - first_byte, size)));
  }
  return absl::OkStatus();
}

absl::Status CheckpointReader::ReadFile(uint32_t file, uint64_t offset, absl::Span<char> to) {
  const auto placed = [this](const absl::Status& status) {
    return OfState(status, manifest_.step(), manifest_.position());
  };
  if (file_ == nullptr || file_index_ != file) {
    file_.reset();
    auto opened = directory_.Open(manifest_.files(static_cast<int>(file)));
    if (!opened.ok()) return placed(opened.status());
    file_ = *std::move(opened);
    file_index_ = file;
  }
  // The length of the file was checked, so it has every byte of its tensors.
  return placed(file_->Read(offset, to.size(), to.data()).status());
}

}  // namespace kaon::checkpoint
