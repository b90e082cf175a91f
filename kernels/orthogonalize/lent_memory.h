// Allocates matrices one after another in memory that the caller of an iteration no longer needs.
// Borrows the memory; one thread.
#ifndef KAON_KERNELS_ORTHOGONALIZE_LENT_MEMORY_H_
#define KAON_KERNELS_ORTHOGONALIZE_LENT_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/types/span.h"

namespace kaon::kernels {

class LentMemory {
 public:
  explicit LentMemory(absl::Span<float> memory)
      : next_(memory.data()), left_(memory.size() * sizeof(float)) {}

  // Allocates `count` values at an address that is a multiple of `alignment`; null if the rest of
  // the memory is too small.
  template <typename T>
  T* Take(int64_t count, size_t alignment) {
    const size_t bytes = count * sizeof(T);
    if (std::align(alignment, bytes, next_, left_) == nullptr) return nullptr;
    T* const taken = static_cast<T*>(next_);
    next_ = static_cast<std::byte*>(next_) + bytes;
    left_ -= bytes;
    return taken;
  }

 private:
  void* next_;
  size_t left_;
};

}  // namespace kaon::kernels

#endif  // KAON_KERNELS_ORTHOGONALIZE_LENT_MEMORY_H_
