#include "proto/identity.h"

#include <limits>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "proto/text.h"

namespace kaon::proto {

namespace {

absl::Status Malformed(absl::string_view uri, absl::string_view why) {
  const auto append = [](std::string* out, Role role) { absl::StrAppend(out, NameOf(role)); };
  return absl::InvalidArgumentError(absl::StrCat(
      "identity URI '", Excerpt(uri), "': ", why, "; expected spiffe://<domain>/kaon/<",
      absl::StrJoin(kRoles, "|", append), ">[/<job>[/<rank>]]"));
}

}  // namespace

absl::string_view NameOf(Role role) {
  switch (role) {
    case Role::kWorker:
      return "worker";
    case Role::kReader:
      return "reader";
    case Role::kCheckpointer:
      return "checkpointer";
    case Role::kAdmin:
      return "admin";
    case Role::kCoordinator:
      return "coordinator";
    case Role::kShard:
      return "shard";
  }
  return "unknown";
}

std::string Identity::ToUri() const {
  std::string uri = absl::StrCat("spiffe://", domain, "/kaon/", NameOf(role));
  if (job.has_value()) absl::StrAppend(&uri, "/", *job);
  if (rank.has_value()) absl::StrAppend(&uri, "/", *rank);
  return uri;
}

absl::StatusOr<Identity> ParseIdentity(absl::string_view uri) {
  absl::string_view rest = uri;
  if (!absl::ConsumePrefix(&rest, "spiffe://")) return Malformed(uri, "scheme is not spiffe");
  const std::vector<absl::string_view> parts = absl::StrSplit(rest, '/');
  if (parts.size() < 3 || parts.size() > 5 || parts[0].empty() || parts[1] != "kaon") {
    return Malformed(uri, "path does not fit");
  }
  Identity identity;
  identity.domain = std::string(parts[0]);
  bool known = false;
  for (Role role : kRoles) {
    if (parts[2] == NameOf(role)) {
      identity.role = role;
      known = true;
    }
  }
  if (!known) return Malformed(uri, absl::StrCat("unknown role '", Excerpt(parts[2]), "'"));
  if (parts.size() > 3) {
    if (parts[3].empty()) return Malformed(uri, "empty job");
    identity.job = std::string(parts[3]);
  }
  if (parts.size() > 4) {
    uint64_t rank = 0;
    if (identity.role != Role::kWorker) return Malformed(uri, "only workers have a rank");
    // Each rank has one name: no certificate is for " 0" or "00".
    const bool is_padded = parts[4].size() > 1 && parts[4].front() == '0';
    if (is_padded || !ParseDecimal(parts[4], &rank, std::numeric_limits<uint32_t>::max())) {
      return Malformed(uri, absl::StrCat("rank '", Excerpt(parts[4]), "' is not a number"));
    }
    identity.rank = static_cast<uint32_t>(rank);
  }
  return identity;
}

}  // namespace kaon::proto
