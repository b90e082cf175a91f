// One place where state can live: memory of the host or of a device, later a disk. A tier manages
// bytes and its capacity; it knows no tensors. Thread-safe, except that one thread at a time may
// use one extent. The creator of the TieredStore owns it.
#ifndef KAON_SERVER_TIER_STATE_TIER_H_
#define KAON_SERVER_TIER_STATE_TIER_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/region.h"

namespace kaon::tier {

using ExtentId = uint64_t;

class StateTier {
 public:
  virtual ~StateTier() = default;

  // Returns the name for messages, such as "host".
  virtual absl::string_view name() const = 0;

  // Allocates `bytes` > 0 zeroed bytes. INVALID_ARGUMENT for 0; RESOURCE_EXHAUSTED with the
  // arithmetic if they do not fit.
  virtual absl::StatusOr<ExtentId> Allocate(uint64_t bytes) = 0;
  // Releases an extent. NOT_FOUND if it is not allocated.
  virtual absl::Status Free(ExtentId extent) = 0;
  // Returns the extent's own memory, valid until Free. NOT_FOUND if it is not allocated.
  virtual absl::StatusOr<kernels::Region> Memory(ExtentId extent) = 0;

  // Copy out of and into [offset, offset + size) of an extent. NOT_FOUND, or OUT_OF_RANGE with both
  // sizes.
  virtual absl::Status Load(ExtentId extent, uint64_t offset, absl::Span<std::byte> to) = 0;
  virtual absl::Status Store(ExtentId extent, uint64_t offset,
                             absl::Span<const std::byte> from) = 0;

  // Counts `bytes` as used that the caller allocates elsewhere. RESOURCE_EXHAUSTED states the
  // arithmetic.
  virtual absl::Status Claim(uint64_t bytes) = 0;
  // Returns claimed `bytes` to the tier.
  virtual void Release(uint64_t bytes) = 0;

  virtual uint64_t capacity_bytes() const = 0;
  // Returns the bytes in use, including padding for alignment.
  virtual uint64_t used_bytes() const = 0;
};

}  // namespace kaon::tier

#endif  // KAON_SERVER_TIER_STATE_TIER_H_
