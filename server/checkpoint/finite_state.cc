#include "server/checkpoint/finite_state.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "proto/status_macros.h"
#include "server/checkpoint/state_tensors.h"

namespace kaon::checkpoint {
namespace {

constexpr uint32_t kFloat32Exponent = 0x7f800000;
constexpr uint16_t kBFloat16Exponent = 0x7f80;

// Returns whether no word has all bits of the exponent set; there is one word in each `stride`
// bytes.
template <typename Word>
bool NoneHas(Word exponent, size_t stride, absl::string_view bytes) {
  // The compiler vectorizes this loop, because it has no branch.
  bool found = false;
  for (size_t at = 0; at + sizeof(Word) <= bytes.size(); at += stride) {
    Word word;
    std::memcpy(&word, bytes.data() + at, sizeof(word));
    found |= (word & exponent) == exponent;
  }
  return !found;
}

}  // namespace

bool AllFinite(v1::StateDType dtype, absl::string_view bytes) {
  switch (dtype) {
    case v1::STATE_DTYPE_INT8:
    case v1::STATE_DTYPE_SQRT_UINT8:
      // A group begins with its scale.
      return NoneHas(kBFloat16Exponent, StateBytes(dtype, 32), bytes);
    case v1::STATE_DTYPE_BFLOAT16:
      return NoneHas(kBFloat16Exponent, sizeof(uint16_t), bytes);
    default:
      return NoneHas(kFloat32Exponent, sizeof(uint32_t), bytes);
  }
}

absl::Status CheckFinite(const v1::CheckpointManifest& manifest, int index, disk::File& file) {
  std::string piece;
  for (const v1::CheckpointTensor& tensor : manifest.tensors()) {
    if (tensor.file() != static_cast<uint32_t>(index)) continue;
    const uint64_t size = StateBytes(tensor.dtype(), tensor.num_elements());
    for (uint64_t at = 0; at < size; at += piece.size()) {
      piece.resize(std::min<uint64_t>(kFinitePiece, size - at));
      KAON_RETURN_IF_ERROR(file.Read(tensor.offset() + at, piece.size(), &piece[0]).status());
      if (AllFinite(tensor.dtype(), piece)) continue;
      return NotFiniteError(manifest.registration().definition(), tensor);
    }
  }
  return absl::OkStatus();
}

absl::Status NotFiniteError(const v1::JobDefinition& job, const v1::CheckpointTensor& tensor) {
  return absl::DataLossError(absl::StrCat(
      Describe(job, tensor.parameter_id(), tensor.role()),
      " has values that are not finite, must be finite: go back to an earlier checkpoint"));
}

}  // namespace kaon::checkpoint
