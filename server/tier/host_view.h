// Access of host code to regions of any space: host memory as it is, other memory through a copy.
// Values and pure functions; any thread.
#ifndef KAON_SERVER_TIER_HOST_VIEW_H_
#define KAON_SERVER_TIER_HOST_VIEW_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/region.h"

namespace kaon::tier {

// The contents of a region, for reading: borrowed host memory, or a copy. Does not move.
class HostView {
 public:
  // `backend` must compute on the region's space.
  HostView(kernels::Backend& backend, kernels::ConstRegion region);
  HostView(const HostView&) = delete;
  HostView& operator=(const HostView&) = delete;

  absl::Span<const std::byte> bytes() const { return view_.host_bytes(); }
  absl::Span<const float> floats() const { return view_.host_floats(); }

 private:
  // Empty for host memory. Floats, for their alignment.
  std::vector<float> copy_;
  kernels::ConstRegion view_;
};

// Largest piece of another space that FillRegion writes, in bytes.
inline constexpr uint64_t kFilledBytes = uint64_t{1} << 20;

// Fills `to` with the bytes that `fill` writes. Host memory is filled in one call, in place. Other
// memory is filled in ascending pieces of kFilledBytes, through a buffer. Returns the first error
// of `fill`.
absl::Status FillRegion(
    kernels::Backend& backend, kernels::Region to,
    absl::FunctionRef<absl::Status(uint64_t offset, absl::Span<char> piece)> fill);

}  // namespace kaon::tier

#endif  // KAON_SERVER_TIER_HOST_VIEW_H_
