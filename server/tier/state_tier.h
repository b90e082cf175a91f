// One place where state can live: host memory, later a disk or a device. A tier knows bytes and its
// capacity, no tensor. Owned by whoever builds the TieredStore over it. Any thread may call it; one
// extent is used by one thread at a time.
#ifndef KAON_SERVER_TIER_STATE_TIER_H_
#define KAON_SERVER_TIER_STATE_TIER_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace kaon::tier {

using ExtentId = uint64_t;

class StateTier {
 public:
  virtual ~StateTier() = default;

  // "host", for messages.
  virtual absl::string_view name() const = 0;

  // `bytes` > 0 zeroed bytes. INVALID_ARGUMENT for 0, RESOURCE_EXHAUSTED with the arithmetic when
  // they do not fit.
  virtual absl::StatusOr<ExtentId> Allocate(uint64_t bytes) = 0;
  // NOT_FOUND for an extent that is not allocated.
  virtual absl::Status Free(ExtentId extent) = 0;

  // Copies from and to [offset, offset + size) of an extent. NOT_FOUND, or OUT_OF_RANGE naming both
  // sizes.
  virtual absl::Status Load(ExtentId extent, uint64_t offset, absl::Span<std::byte> to) = 0;
  virtual absl::Status Store(ExtentId extent, uint64_t offset,
                             absl::Span<const std::byte> from) = 0;

  virtual uint64_t capacity_bytes() const = 0;
  // Including what alignment adds.
  virtual uint64_t used_bytes() const = 0;
};

}  // namespace kaon::tier

#endif  // KAON_SERVER_TIER_STATE_TIER_H_
