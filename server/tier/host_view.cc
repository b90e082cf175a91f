#include "server/tier/host_view.h"

#include <algorithm>

#include "proto/status_macros.h"

namespace kaon::tier {

HostView::HostView(kernels::Backend& backend, kernels::ConstRegion region) : view_(region) {
  if (region.space() == kernels::Space::kHost) return;
  copy_.resize((region.size() + sizeof(float) - 1) / sizeof(float));
  const absl::Span<std::byte> to(reinterpret_cast<std::byte*>(copy_.data()), region.size());
  if (!to.empty()) backend.CopyOut(region, to);
  view_ = absl::Span<const std::byte>(to);
}

absl::Status FillRegion(
    kernels::Backend& backend, kernels::Region to,
    absl::FunctionRef<absl::Status(uint64_t offset, absl::Span<char> piece)> fill) {
  if (to.space() == kernels::Space::kHost) {
    return fill(0, absl::MakeSpan(reinterpret_cast<char*>(to.data()), to.size()));
  }
  std::vector<char> buffer(std::min(to.size(), kFilledBytes));
  for (uint64_t offset = 0; offset < to.size(); offset += buffer.size()) {
    const uint64_t size = std::min<uint64_t>(buffer.size(), to.size() - offset);
    KAON_RETURN_IF_ERROR(fill(offset, absl::MakeSpan(buffer.data(), size)));
    backend.CopyIn({reinterpret_cast<const std::byte*>(buffer.data()), size}, to.Sub(offset, size));
  }
  return absl::OkStatus();
}

}  // namespace kaon::tier
