#include "server/shard/transport/shm_tokens.h"

#include <glog/logging.h>
#include <sys/random.h>

#include <algorithm>

#include "proto/shm_link.h"

namespace kaon::shard {

std::string ShmTokens::Issue(const proto::Identity& peer, absl::Time now) {
  std::string token(proto::kShmTokenBytes, '\0');
  const ssize_t filled = getrandom(token.data(), token.size(), 0);
  PCHECK(filled == static_cast<ssize_t>(token.size())) << "getrandom";
  issued_[token] = {peer, now + lifetime_};
  return token;
}

std::optional<proto::Identity> ShmTokens::Redeem(absl::string_view token, absl::Time now) {
  Expire(now);
  const auto found = issued_.find(std::string(token));
  if (found == issued_.end()) return std::nullopt;
  proto::Identity peer = std::move(found->second.peer);
  issued_.erase(found);
  return peer;
}

size_t ShmTokens::Count(absl::Time now) {
  Expire(now);
  return issued_.size();
}

size_t ShmTokens::CountOf(const proto::Identity& peer, absl::Time now) {
  Expire(now);
  const std::string uri = peer.ToUri();
  return std::count_if(issued_.begin(), issued_.end(),
                       [&uri](const auto& token) { return token.second.peer.ToUri() == uri; });
}

void ShmTokens::Expire(absl::Time now) {
  for (auto token = issued_.begin(); token != issued_.end();) {
    token = token->second.expires <= now ? issued_.erase(token) : std::next(token);
  }
}

}  // namespace kaon::shard
