// Checksums of a file that is written from its first byte to its last: CRC32C of each fragment of
// 1 MiB, so that a range can be checked by itself, and SHA-256 of the whole, as sha256sum(1) prints
// it. Owned by whoever writes or verifies the file; one thread at a time.
#ifndef KAON_SERVER_CHECKPOINT_SAFETENSORS_FRAGMENT_SUMS_H_
#define KAON_SERVER_CHECKPOINT_SAFETENSORS_FRAGMENT_SUMS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

struct evp_md_ctx_st;

namespace kaon::checkpoint {

inline constexpr uint64_t kFragmentBytes = uint64_t{1} << 20;
inline constexpr size_t kSha256Bytes = 32;

// Of one whole file.
struct FileSums {
  uint64_t num_bytes = 0;
  // Fragment i is the bytes from i * kFragmentBytes on; the last one may be shorter.
  std::vector<uint32_t> fragment_crc32c;
  // 32 bytes.
  std::string sha256;
};

// 32 bytes.
std::string Sha256(absl::string_view bytes);

class FragmentSums {
 public:
  FragmentSums();
  ~FragmentSums();
  FragmentSums(const FragmentSums&) = delete;
  FragmentSums& operator=(const FragmentSums&) = delete;

  // The file's next bytes.
  void Extend(absl::string_view bytes);
  uint64_t num_bytes() const { return sums_.num_bytes; }
  // Of everything; nothing can be added afterwards.
  FileSums Finish();

 private:
  struct FreeContext {
    void operator()(evp_md_ctx_st* context) const;
  };

  FileSums sums_;
  const std::unique_ptr<evp_md_ctx_st, FreeContext> sha256_;
};

}  // namespace kaon::checkpoint

#endif  // KAON_SERVER_CHECKPOINT_SAFETENSORS_FRAGMENT_SUMS_H_
