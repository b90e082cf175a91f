#include "kernels/cuda/staged_copy.h"

#include <algorithm>
#include <cstring>

#include "kernels/cuda/seeded_bug.h"

namespace kaon::kernels::cuda {

void CopyInThrough(Lane& lane, const std::byte* from, uint64_t bytes, std::byte* device) {
  size_t turn = 0;
  for (uint64_t offset = 0; offset < bytes; offset += Lane::kPieceBytes) {
    const uint64_t n = std::min(Lane::kPieceBytes, bytes - offset);
    Lane::Piece& piece = lane.pieces[turn++ % lane.pieces.size()];
    if (!Has(SeededBug::kPieceReusedBeforeItsEvent)) piece.done->Await();
    std::memcpy(piece.pinned.data(), from + offset, n);
    lane.stream->CopyIn(piece.pinned.data(), device + offset, n);
    lane.stream->Record(*piece.done);
  }
  lane.stream->Record(*lane.end);
  lane.end->Await();
}

void CopyOutThrough(Lane& lane, const std::byte* device, uint64_t bytes, std::byte* to) {
  const auto queue = [&](Lane::Piece& piece, uint64_t offset, uint64_t n) {
    lane.stream->CopyOut(device + offset, piece.pinned.data(), n);
  };
  CopyOutPieces(lane, bytes, queue, to);
}

void CopyOutPieces(Lane& lane, uint64_t bytes,
                   absl::FunctionRef<void(Lane::Piece& piece, uint64_t offset, uint64_t n)> queue,
                   std::byte* to) {
  const uint64_t num_pieces = (bytes + Lane::kPieceBytes - 1) / Lane::kPieceBytes;
  const auto size_of = [&](uint64_t k) {
    return std::min(Lane::kPieceBytes, bytes - k * Lane::kPieceBytes);
  };
  for (uint64_t k = 0; k < num_pieces + 1; ++k) {
    if (k < num_pieces) {
      Lane::Piece& piece = lane.pieces[k % lane.pieces.size()];
      queue(piece, k * Lane::kPieceBytes, size_of(k));
      lane.stream->Record(*piece.done);
    }
    if (k == 0) continue;
    // The piece before, while the device is at this one.
    const Lane::Piece& piece = lane.pieces[(k - 1) % lane.pieces.size()];
    piece.done->Await();
    std::memcpy(to + (k - 1) * Lane::kPieceBytes, piece.pinned.data(), size_of(k - 1));
  }
}

}  // namespace kaon::kernels::cuda
