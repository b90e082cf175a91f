#include "server/checkpoint/safetensors/fragment_sums.h"

#include <glog/logging.h>
#include <openssl/evp.h>

#include <algorithm>
#include <utility>

#include "proto/crc32c.h"

namespace kaon::checkpoint {

std::string Sha256(absl::string_view bytes) {
  FragmentSums sums;
  sums.Extend(bytes);
  return sums.Finish().sha256;
}

void FragmentSums::FreeContext::operator()(evp_md_ctx_st* context) const {
  EVP_MD_CTX_free(context);
}

FragmentSums::FragmentSums() : sha256_(EVP_MD_CTX_new()) {
  CHECK(sha256_ != nullptr);
  CHECK_EQ(EVP_DigestInit_ex(sha256_.get(), EVP_sha256(), nullptr), 1);
}

FragmentSums::~FragmentSums() = default;

void FragmentSums::Extend(absl::string_view bytes) {
  CHECK_EQ(EVP_DigestUpdate(sha256_.get(), bytes.data(), bytes.size()), 1);
  while (!bytes.empty()) {
    const uint64_t filled = sums_.num_bytes % kFragmentBytes;
    if (filled == 0) sums_.fragment_crc32c.push_back(0);
    const absl::string_view part = bytes.substr(0, kFragmentBytes - filled);
    uint32_t& crc = sums_.fragment_crc32c.back();
    crc = proto::ExtendCrc32c(crc, part.data(), part.size());
    sums_.num_bytes += part.size();
    bytes.remove_prefix(part.size());
  }
}

FileSums FragmentSums::Finish() {
  unsigned char digest[kSha256Bytes];
  CHECK_EQ(EVP_DigestFinal_ex(sha256_.get(), digest, nullptr), 1);
  sums_.sha256.assign(reinterpret_cast<const char*>(digest), sizeof(digest));
  return std::move(sums_);
}

}  // namespace kaon::checkpoint
