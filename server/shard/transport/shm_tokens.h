// Tokens that workers present at the shard's local socket. Each has 256 random bits and is valid
// for one caller that gRPC authenticated, for one connection, for a short time. Owned by
// ShmEndpoint, which serializes the calls.
#ifndef KAON_SERVER_SHARD_TRANSPORT_SHM_TOKENS_H_
#define KAON_SERVER_SHARD_TRANSPORT_SHM_TOKENS_H_

#include <cstddef>
#include <map>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "proto/identity.h"

namespace kaon::shard {

class ShmTokens {
 public:
  explicit ShmTokens(absl::Duration lifetime) : lifetime_(lifetime) {}

  // Returns a new token for `peer`.
  std::string Issue(const proto::Identity& peer, absl::Time now);
  // Returns the owner of a valid token and invalidates the token.
  std::optional<proto::Identity> Redeem(absl::string_view token, absl::Time now);
  // Number of redeemable tokens: of all callers, and of one.
  size_t Count(absl::Time now);
  size_t CountOf(const proto::Identity& peer, absl::Time now);

 private:
  struct Issued {
    proto::Identity peer;
    absl::Time expires;
  };
  void Expire(absl::Time now);

  const absl::Duration lifetime_;
  std::map<std::string, Issued> issued_;
};

}  // namespace kaon::shard

#endif  // KAON_SERVER_SHARD_TRANSPORT_SHM_TOKENS_H_
