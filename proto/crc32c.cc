#include "proto/crc32c.h"

#include <isa-l/crc.h>

#include <algorithm>

namespace kaon::proto {

uint32_t ExtendCrc32c(uint32_t crc, const void* bytes, size_t size) {
  // isa-l takes an int length and a non-const pointer, and neither inverts before nor after.
  constexpr size_t kMaxRun = size_t{1} << 30;
  auto* next = static_cast<unsigned char*>(const_cast<void*>(bytes));
  uint32_t state = ~crc;
  while (size > 0) {
    const size_t run = std::min(size, kMaxRun);
    state = crc32_iscsi(next, static_cast<int>(run), state);
    next += run;
    size -= run;
  }
  return ~state;
}

}  // namespace kaon::proto
