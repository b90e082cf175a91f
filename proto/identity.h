// Who a certificate says its holder is: role, and for workers the job and rank they are bound to,
// from the URI SAN spiffe://<domain>/kaon/<role>[/<job>[/<rank>]] (operations.md, tenancy). Pure
// functions; any thread.
#ifndef KAON_PROTO_IDENTITY_H_
#define KAON_PROTO_IDENTITY_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace kaon::proto {

enum class Role { kWorker, kReader, kAdmin, kCoordinator, kShard };

// "worker", "reader", "admin", "coordinator", "shard".
absl::string_view NameOf(Role role);

struct Identity {
  std::string domain;
  Role role = Role::kReader;
  // Absent = any job.
  std::optional<std::string> job;
  // Workers only; absent = any rank.
  std::optional<uint32_t> rank;

  std::string ToUri() const;
};

// INVALID_ARGUMENT naming what is wrong: scheme, path, unknown role (with the roles there are),
// rank not a number, a rank for a role other than worker.
absl::StatusOr<Identity> ParseIdentity(absl::string_view uri);

}  // namespace kaon::proto

#endif  // KAON_PROTO_IDENTITY_H_
