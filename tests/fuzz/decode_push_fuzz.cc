// Input: a message of pushed chunks, cut in pieces as by a transport. The fast decoder and the
// generated parser must accept, reject and read the same (protocol.md section 4).
#include <glog/logging.h>

#include <algorithm>
#include <string>
#include <vector>

#include "proto/tensor_stream.h"

namespace {

// Checks that the pieces in order are the payload.
void CheckSplit(const kaon::proto::DecodedPush& decoded) {
  const auto views = kaon::proto::SplitPayload(decoded);
  CHECK(views.ok() || absl::IsInvalidArgument(views.status())) << views.status();
  if (!views.ok() || decoded.message.pieces_size() == 0) return;
  CHECK_EQ(views->chunks.size(), static_cast<size_t>(decoded.message.pieces_size()));
  std::string whole;
  std::string pieces;
  for (const auto& slice : decoded.payload) {
    whole.append(reinterpret_cast<const char*>(slice.data()), slice.size());
  }
  for (const kaon::proto::ChunkView& view : views->chunks) {
    const size_t begin = pieces.size();
    for (const auto& slice : view.payload) {
      pieces.append(reinterpret_cast<const char*>(slice.data()), slice.size());
    }
    CHECK_EQ(pieces.size() - begin,
             view.chunk->num_elements() * kaon::proto::WireSizeOf(view.chunk->dtype()));
  }
  CHECK(pieces == whole);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  if (size < 1) return 0;
  // The first byte says how to cut the rest.
  const size_t cut = 1 + bytes[0] % 64;
  const std::string wire(reinterpret_cast<const char*>(bytes) + 1, size - 1);
  std::vector<absl::Span<const std::byte>> slices;
  for (size_t at = 0; at < wire.size(); at += cut) {
    slices.emplace_back(reinterpret_cast<const std::byte*>(wire.data()) + at,
                        std::min(cut, wire.size() - at));
  }
  kaon::v1::PushRequest expected;
  const bool accepted = expected.ParseFromString(wire);
  const auto decoded = kaon::proto::DecodePush(slices);
  if (!decoded.ok() && expected.pieces_size() > static_cast<int>(kaon::proto::kMaxPieces)) return 0;
  CHECK_EQ(decoded.ok(), accepted) << decoded.status();
  if (!accepted) return 0;
  kaon::v1::PushRequest actual = decoded->message;
  for (const auto& slice : decoded->payload) {
    actual.mutable_payload()->append(reinterpret_cast<const char*>(slice.data()), slice.size());
  }
  CHECK_EQ(actual.SerializeAsString(), expected.SerializeAsString());
  CheckSplit(*decoded);
  return 0;
}
