#include "server/checkpoint/content_digest.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "kernels/reduce/digest.h"
#include "proto/status_macros.h"
#include "server/checkpoint/checkpoint_reader.h"
#include "server/checkpoint/state_tensors.h"

namespace kaon::checkpoint {

namespace {

// Elements in memory at a time: a multiple of an int8 group and of a word.
constexpr uint64_t kPiece = uint64_t{1} << 18;

// Sorts tensors by their place in the files, so that each fragment is read once.
absl::StatusOr<std::vector<StateTensor>> TensorsInFiles(const v1::CheckpointManifest& manifest) {
  KAON_ASSIGN_OR_RETURN(std::vector<StateTensor> tensors, StateTensorsOf(manifest.registration()));
  using Place = std::pair<uint32_t, uint64_t>;
  std::map<std::pair<uint32_t, std::string>, Place> place_of;
  for (const v1::CheckpointTensor& run : manifest.tensors()) {
    // Keeps the place of the first run.
    place_of.try_emplace({run.parameter_id(), run.role()}, run.file(), run.offset());
  }
  std::sort(tensors.begin(), tensors.end(), [&](const StateTensor& a, const StateTensor& b) {
    return place_of[{a.parameter_id, a.role}] < place_of[{b.parameter_id, b.role}];
  });
  return tensors;
}

absl::StatusOr<uint64_t> DigestOf(CheckpointReader& reader, const StateTensor& tensor,
                                  std::string& bytes) {
  const kernels::TensorDigester digester(tensor.parameter_id, tensor.slot);
  uint64_t digest = 0;
  for (uint64_t first = 0; first < tensor.num_elements; first += kPiece) {
    const uint64_t count = std::min(kPiece, tensor.num_elements - first);
    const uint64_t first_byte = StateBytes(tensor.dtype, first);
    bytes.resize(StateBytes(tensor.dtype, first + count) - first_byte);
    KAON_RETURN_IF_ERROR(
        reader.Read(tensor.parameter_id, tensor.role, first, count, absl::MakeSpan(bytes)));
    digest += digester.OfBytes(
        absl::MakeConstSpan(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()),
        first_byte);
  }
  return digest;
}

}  // namespace

absl::StatusOr<ContentDigests> DigestsOf(CheckpointDirectory& directory,
                                         const v1::CheckpointManifest& manifest) {
  KAON_ASSIGN_OR_RETURN(const std::vector<StateTensor> tensors, TensorsInFiles(manifest));
  CheckpointReader reader(directory, manifest);
  ContentDigests digests;
  std::string bytes;
  for (const StateTensor& tensor : tensors) {
    KAON_ASSIGN_OR_RETURN(const uint64_t digest, DigestOf(reader, tensor, bytes));
    if (tensor.slot == kernels::kWeightSlot) digests.weights += digest;
    digests.state += digest;
  }
  for (const v1::CheckpointParameter& counted : manifest.parameters()) {
    const uint32_t id = counted.parameter_id();
    digests.state += kernels::FactDigest(id, kernels::kUpdatesSlot, counted.updates_applied()) +
                     kernels::FactDigest(id, kernels::kPositionSlot, manifest.position());
  }
  return digests;
}

absl::Status CheckDigests(CheckpointDirectory& directory, const v1::CheckpointManifest& manifest) {
  KAON_ASSIGN_OR_RETURN(const ContentDigests digests, DigestsOf(directory, manifest));
  if (digests.weights == manifest.weights_digest() && digests.state == manifest.state_digest()) {
    return absl::OkStatus();
  }
  return absl::DataLossError(absl::StrFormat(
      "checkpoint %s was frozen with weights digest %016x and state digest %016x, its files have "
      "%016x and %016x",
      manifest.id(), manifest.weights_digest(), manifest.state_digest(), digests.weights,
      digests.state));
}

}  // namespace kaon::checkpoint
