// 64-bit numbers in the byte order of checkpoint files, on any processor. Pure functions;
// thread-safe.
#ifndef KAON_SERVER_CHECKPOINT_SAFETENSORS_LITTLE_ENDIAN_H_
#define KAON_SERVER_CHECKPOINT_SAFETENSORS_LITTLE_ENDIAN_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace kaon::checkpoint {

inline std::string LittleEndian64(uint64_t value) {
  std::string bytes(8, '\0');
  for (char& byte : bytes) {
    byte = static_cast<char>(value & 0xff);
    value >>= 8;
  }
  return bytes;
}

// Reads the first 8 bytes, which must exist.
inline uint64_t FromLittleEndian64(absl::string_view bytes) {
  uint64_t value = 0;
  for (int i = 7; i >= 0; --i) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

}  // namespace kaon::checkpoint

#endif  // KAON_SERVER_CHECKPOINT_SAFETENSORS_LITTLE_ENDIAN_H_
