// The fast decoder of pushed chunks and the generated parser accept, refuse and read alike,
// whatever the bytes and however the transport cut them (protocol.md section 4).
#include <glog/logging.h>

#include <algorithm>
#include <string>
#include <vector>

#include "proto/tensor_stream.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  if (size < 1) return 0;
  // The first byte says how the rest is cut.
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
  CHECK_EQ(decoded.ok(), accepted) << decoded.status();
  if (!accepted) return 0;
  kaon::v1::PushRequest actual = decoded->message;
  for (const auto& slice : decoded->payload) {
    actual.mutable_payload()->append(reinterpret_cast<const char*>(slice.data()), slice.size());
  }
  CHECK_EQ(actual.SerializeAsString(), expected.SerializeAsString());
  return 0;
}
