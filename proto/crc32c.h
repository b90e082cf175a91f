// CRC32C (Castagnoli, reflected, initial and final inversion: RFC 3720 appendix B.4) of byte runs.
// Pure functions; any thread.
#ifndef KAON_PROTO_CRC32C_H_
#define KAON_PROTO_CRC32C_H_

#include <cstddef>
#include <cstdint>

namespace kaon::proto {

// Returns the CRC of a concatenation: bytes whose CRC is `crc`, then `size` more. Start with crc =
// 0.
uint32_t ExtendCrc32c(uint32_t crc, const void* bytes, size_t size);

inline uint32_t Crc32c(const void* bytes, size_t size) { return ExtendCrc32c(0, bytes, size); }

}  // namespace kaon::proto

#endif  // KAON_PROTO_CRC32C_H_
