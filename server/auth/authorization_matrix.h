// The roles that may call each method: one explicit list, default deny. A new RPC needs a row; a
// test over the service descriptors fails without it. Constant data and pure functions;
// thread-safe.
#ifndef KAON_SERVER_AUTH_AUTHORIZATION_MATRIX_H_
#define KAON_SERVER_AUTH_AUTHORIZATION_MATRIX_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/identity.h"

namespace kaon::auth {

struct MethodRule {
  // Name on the wire: /package.Service/Method.
  absl::string_view method;
  absl::Span<const proto::Role> roles;
};

// Returns a row for every method that a Kaon server answers.
absl::Span<const MethodRule> AuthorizationMatrix();

// Returns PERMISSION_DENIED, naming method and role, if the method has no row or the row lacks the
// role.
absl::Status AuthorizeMethod(proto::Role role, absl::string_view method);

}  // namespace kaon::auth

#endif  // KAON_SERVER_AUTH_AUTHORIZATION_MATRIX_H_
