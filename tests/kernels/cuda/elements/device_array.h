// Arrays in the memory of a device on the host, for tests of single kernels. Guards on both sides
// show writes outside. One thread at a time.
#ifndef KAON_TESTS_KERNELS_CUDA_ELEMENTS_DEVICE_ARRAY_H_
#define KAON_TESTS_KERNELS_CUDA_ELEMENTS_DEVICE_ARRAY_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace kaon::kernels::cuda {

template <typename T>
class DeviceArray {
 public:
  // Holds `values`, `shift` bytes past an address that is a multiple of 256.
  explicit DeviceArray(const std::vector<T>& values, size_t shift = 0)
      : bytes_(values.size() * sizeof(T)), memory_(bytes_ + 2 * kGuard + 256 + shift, kGuardByte) {
    const auto address = reinterpret_cast<uintptr_t>(memory_.data() + kGuard);
    at_ = kGuard + (256 - address % 256) % 256 + shift;
    if (bytes_ > 0) std::memcpy(memory_.data() + at_, values.data(), bytes_);
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() { return reinterpret_cast<T*>(memory_.data() + at_); }

  std::vector<T> values() const {
    std::vector<T> values(bytes_ / sizeof(T));
    if (bytes_ > 0) std::memcpy(values.data(), memory_.data() + at_, bytes_);
    return values;
  }
  bool guards_are_whole() const {
    const auto is_guard = [](std::byte x) { return x == kGuardByte; };
    const auto begin = memory_.begin() + static_cast<std::ptrdiff_t>(at_);
    return std::all_of(memory_.begin(), begin, is_guard) &&
           std::all_of(begin + static_cast<std::ptrdiff_t>(bytes_), memory_.end(), is_guard);
  }

 private:
  static constexpr size_t kGuard = 64;
  static constexpr std::byte kGuardByte{0x5a};

  const size_t bytes_;
  std::vector<std::byte> memory_;
  size_t at_ = 0;
};

}  // namespace kaon::kernels::cuda

#endif  // KAON_TESTS_KERNELS_CUDA_ELEMENTS_DEVICE_ARRAY_H_
