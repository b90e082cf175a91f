// Allocations of one kind of memory that find mistakes. Fresh contents are NaN patterns, and a
// guard before and after each allocation shows writes outside it. Its owner orders the calls.
#ifndef KAON_KERNELS_CUDA_ON_HOST_GUARDED_MEMORY_H_
#define KAON_KERNELS_CUDA_ON_HOST_GUARDED_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace kaon::kernels::cuda::on_host {

// A byte pattern that is a NaN in every float format.
inline constexpr int kUnwrittenByte = 0xff;

class GuardedMemory {
 public:
  // `kind` names the memory in messages.
  GuardedMemory(std::string kind, uint64_t capacity)
      : kind_(std::move(kind)), capacity_(capacity) {}
  ~GuardedMemory();

  uint64_t free_bytes() const { return capacity_ - used_; }

  // Aligned to 256 bytes. RESOURCE_EXHAUSTED with the arithmetic.
  absl::StatusOr<void*> Allocate(uint64_t bytes);
  // `memory` comes from Allocate, was not freed, and its guards are whole (CHECK). The memory
  // itself stays until Reclaim, filled with NaN patterns.
  void Free(void* memory);
  // Releases freed memory. Nothing has written it since (CHECK).
  void Reclaim();

  // CHECKs that the bytes lie inside one allocation of this kind in the process. As on a GPU, a
  // library may copy what another one has allocated. `what` names the use of the bytes.
  void CheckInside(const void* at, uint64_t bytes, const char* what) const;
  // Returns the size of an allocation that begins there (CHECK).
  uint64_t SizeOf(const void* memory) const;

 private:
  struct Releaser {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  struct Allocation {
    // With the guards.
    std::unique_ptr<std::byte, Releaser> memory;
    uint64_t bytes = 0;
  };

  void CheckGuards(const Allocation& allocation) const;

  const std::string kind_;
  const uint64_t capacity_;
  uint64_t used_ = 0;
  // Sorted by the first byte that the caller has.
  std::map<uintptr_t, Allocation> allocations_;
  std::vector<Allocation> freed_;
};

}  // namespace kaon::kernels::cuda::on_host

#endif  // KAON_KERNELS_CUDA_ON_HOST_GUARDED_MEMORY_H_
