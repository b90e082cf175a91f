// Checksums of a file that is written sequentially. The CRC32C of each fragment of 1 MiB lets a
// reader check a range alone. The SHA-256 of the whole is the one that sha256sum(1) prints. Not
// thread-safe. The writer or verifier of the file owns it.
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

// Checksums of one whole file.
struct FileSums {
  uint64_t num_bytes = 0;
  // Fragment i starts at byte i * kFragmentBytes; the last one may be shorter.
  std::vector<uint32_t> fragment_crc32c;
  // 32 bytes.
  std::string sha256;
};

// Returns the 32 bytes of the digest.
std::string Sha256(absl::string_view bytes);

class FragmentSums {
 public:
  FragmentSums();
  ~FragmentSums();
  FragmentSums(const FragmentSums&) = delete;
  FragmentSums& operator=(const FragmentSums&) = delete;

  // Adds the file's next bytes.
  void Extend(absl::string_view bytes);
  uint64_t num_bytes() const { return sums_.num_bytes; }
  // Returns the sums of everything; Extend must not be called afterwards.
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
