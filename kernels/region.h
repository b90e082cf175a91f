// Region: bytes that a backend computes on. On a device the host may not touch them; only the
// backend copies them in and out. A value that does not own the memory. Any thread.
#ifndef KAON_KERNELS_REGION_H_
#define KAON_KERNELS_REGION_H_

#include <glog/logging.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "absl/types/span.h"

namespace kaon::kernels {

enum class Space : uint8_t {
  kHost,
  // Memory of a device. Its addresses mean nothing to the host.
  kDevice
};

// Byte is std::byte or const std::byte, as in absl::Span.
template <typename Byte>
class BasicRegion {
 public:
  using Float = std::conditional_t<std::is_const_v<Byte>, const float, float>;
  using Floats =
      std::conditional_t<std::is_const_v<Byte>, const std::vector<float>, std::vector<float>>;

  BasicRegion() = default;
  BasicRegion(Space space, Byte* data, uint64_t size) : space_(space), data_(data), size_(size) {}
  // Implicit: host memory.
  BasicRegion(absl::Span<Byte> bytes) : BasicRegion(Space::kHost, bytes.data(), bytes.size()) {}
  BasicRegion(absl::Span<Float> floats)
      : BasicRegion(Space::kHost, reinterpret_cast<Byte*>(floats.data()),
                    floats.size() * sizeof(float)) {}
  BasicRegion(Floats& floats) : BasicRegion(absl::Span<Float>(floats.data(), floats.size())) {}
  // Implicit: read access to writable memory.
  template <typename Other, typename = std::enable_if_t<std::is_same_v<const Other, Byte> &&
                                                        !std::is_same_v<Other, Byte>>>
  BasicRegion(const BasicRegion<Other>& other)
      : BasicRegion(other.space(), other.data(), other.size()) {}

  Space space() const { return space_; }
  // Returns the first address. The host may not follow one of a device.
  Byte* data() const { return data_; }
  // Returns the size in bytes.
  uint64_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  uint64_t num_floats() const { return size_ / sizeof(float); }

  // Returns the bytes [offset, offset + size), which must lie inside (CHECK).
  BasicRegion Sub(uint64_t offset, uint64_t size) const {
    CHECK(offset <= size_ && size <= size_ - offset) << offset << " + " << size << " of " << size_;
    return BasicRegion(space_, data_ + offset, size);
  }
  BasicRegion SubFloats(uint64_t first, uint64_t count) const {
    return Sub(first * sizeof(float), count * sizeof(float));
  }

  // Host memory (CHECK): what CPU code reads and writes.
  absl::Span<Byte> host_bytes() const {
    CHECK(space_ == Space::kHost) << "the host may not touch memory of a device";
    return {data_, static_cast<size_t>(size_)};
  }
  // The memory must be aligned for float.
  absl::Span<Float> host_floats() const {
    CHECK(space_ == Space::kHost) << "the host may not touch memory of a device";
    return {reinterpret_cast<Float*>(data_), static_cast<size_t>(num_floats())};
  }

 private:
  Space space_ = Space::kHost;
  Byte* data_ = nullptr;
  uint64_t size_ = 0;
};

using Region = BasicRegion<std::byte>;
using ConstRegion = BasicRegion<const std::byte>;

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_REGION_H_
