// Reads the bytes of a list of slices in order, in pieces of any size. A value; one thread.
#ifndef KAON_KERNELS_CUDA_SLICE_READER_H_
#define KAON_KERNELS_CUDA_SLICE_READER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "absl/types/span.h"

namespace kaon::kernels::cuda {

class SliceReader {
 public:
  // The slices outlive this object.
  explicit SliceReader(absl::Span<const absl::Span<const std::byte>> slices) : slices_(slices) {
    for (const absl::Span<const std::byte> slice : slices_) left_ += slice.size();
  }

  // Returns the number of bytes that are not read yet.
  uint64_t left() const { return left_; }

  // Copies the next `bytes` <= left() to `to`.
  void Read(uint64_t bytes, std::byte* to) {
    left_ -= bytes;
    while (bytes > 0) {
      const absl::Span<const std::byte> rest = slices_.front().subspan(offset_);
      const uint64_t taken = std::min<uint64_t>(rest.size(), bytes);
      if (taken > 0) std::memcpy(to, rest.data(), taken);
      to += taken;
      bytes -= taken;
      offset_ += taken;
      if (offset_ < slices_.front().size()) continue;
      slices_.remove_prefix(1);
      offset_ = 0;
    }
  }

 private:
  absl::Span<const absl::Span<const std::byte>> slices_;
  // Bytes of the first slice that are read.
  uint64_t offset_ = 0;
  uint64_t left_ = 0;
};

}  // namespace kaon::kernels::cuda

#endif  // KAON_KERNELS_CUDA_SLICE_READER_H_
