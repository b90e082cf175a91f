// Input: the name in a certificate. It is rejected, or it is an identity that prints and parses to
// itself.
#include <glog/logging.h>

#include <string>

#include "proto/identity.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  const std::string uri(reinterpret_cast<const char*>(bytes), size);
  const auto identity = kaon::proto::ParseIdentity(uri);
  if (!identity.ok()) {
    CHECK(identity.status().code() == absl::StatusCode::kInvalidArgument);
    return 0;
  }
  const auto again = kaon::proto::ParseIdentity(identity->ToUri());
  CHECK(again.ok()) << identity->ToUri();
  CHECK_EQ(again->ToUri(), identity->ToUri());
  return 0;
}
