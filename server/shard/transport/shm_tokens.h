// The tokens with which workers present themselves at the shard's local socket: each of 256 random
// bits, for one caller whom gRPC has authenticated, for one connection, for a short time. Owned by
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

  // A new token of `peer`.
  std::string Issue(const proto::Identity& peer, absl::Time now);
  // Whose token that is. It is no token any more then.
  std::optional<proto::Identity> Redeem(absl::string_view token, absl::Time now);
  // That may still be redeemed: of everybody, and of one.
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
