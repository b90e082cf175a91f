// Identity of a certificate's holder: its role, and for a worker its job and rank. It is read from
// the URI SAN spiffe://<domain>/kaon/<role>[/<job>[/<rank>]] (operations.md, tenancy). Pure
// functions; any thread.
#ifndef KAON_PROTO_IDENTITY_H_
#define KAON_PROTO_IDENTITY_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace kaon::proto {

enum class Role { kWorker, kReader, kCheckpointer, kAdmin, kCoordinator, kShard };

// Every role.
inline constexpr Role kRoles[] = {Role::kWorker, Role::kReader,      Role::kCheckpointer,
                                  Role::kAdmin,  Role::kCoordinator, Role::kShard};

// Returns the role as it stands in a certificate, such as "worker".
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

// Parses the URI. INVALID_ARGUMENT names the fault: scheme, path, an unknown role (lists the known
// ones), a bad rank, or a rank of a role other than worker.
absl::StatusOr<Identity> ParseIdentity(absl::string_view uri);

}  // namespace kaon::proto

#endif  // KAON_PROTO_IDENTITY_H_
