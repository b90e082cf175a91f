// Input: the header of a safetensors file. It is read or rejected. A header that was read assigns
// each byte of the file to exactly one tensor, and is written again unchanged.
#include <glog/logging.h>

#include <string>

#include "server/checkpoint/safetensors/little_endian.h"
#include "server/checkpoint/safetensors/safetensors_header.h"

namespace kaon::checkpoint {
namespace {

void CheckRead(const SafetensorsHeader& header, uint64_t file_bytes) {
  uint64_t end = 0;
  for (const Tensor& tensor : header.tensors) {
    CHECK_EQ(tensor.begin, end);
    CHECK_EQ(tensor.end - tensor.begin, TensorBytes(tensor.type, tensor.shape).value());
    end = tensor.end;
  }
  CHECK_EQ(header.first_byte + end, file_bytes);
}

}  // namespace
}  // namespace kaon::checkpoint

// Input: a byte that chooses the rules, 8 bytes with the length of the data, then the header.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  namespace checkpoint = kaon::checkpoint;
  if (size < 9) return 0;
  const bool ours = bytes[0] % 2 == 1;
  const checkpoint::SafetensorsRules& rules =
      ours ? checkpoint::kOurFiles : checkpoint::kImportedFiles;
  const absl::string_view input(reinterpret_cast<const char*>(bytes), size);
  const uint64_t data_bytes = checkpoint::FromLittleEndian64(input.substr(1));
  std::string json(input.substr(9));
  // Pad here, so that small inputs pass the check of alignment.
  if (ours) json.resize((json.size() + 8 + 4095) / 4096 * 4096 - 8, ' ');
  const uint64_t file_bytes = checkpoint::kLengthBytes + json.size() + data_bytes;
  const auto length = checkpoint::ParseHeaderLength("f", checkpoint::LittleEndian64(json.size()),
                                                    file_bytes, rules);
  const auto header = checkpoint::ParseHeader("f", json, file_bytes, rules);
  if (!header.ok()) {
    CHECK_LT(header.status().message().size(), size_t{2000}) << header.status();
    return 0;
  }
  CHECK_EQ(length.value(), json.size());
  checkpoint::CheckRead(*header, file_bytes);
  if (!ours) return 0;
  const auto formatted = checkpoint::FormatHeader("f", header->metadata, header->tensors);
  CHECK(formatted.ok()) << formatted.status();
  const auto again = checkpoint::ParseHeader("f", formatted->substr(checkpoint::kLengthBytes),
                                             formatted->size() + data_bytes, checkpoint::kOurFiles);
  CHECK(again.ok() && again->tensors == header->tensors && again->metadata == header->metadata);
  return 0;
}
