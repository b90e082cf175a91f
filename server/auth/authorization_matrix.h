// Which role may call which method: one explicit list, default deny. Adding an RPC means adding its
// row; a test generated from the service descriptors fails until that is done. Constant data and
// pure functions; any thread.
#ifndef KAON_SERVER_AUTH_AUTHORIZATION_MATRIX_H_
#define KAON_SERVER_AUTH_AUTHORIZATION_MATRIX_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/identity.h"

namespace kaon::auth {

struct MethodRule {
  // As on the wire: /package.Service/Method.
  absl::string_view method;
  // At most as many as there are roles.
  absl::Span<const proto::Role> roles;
};

// Every method that a Kaon server answers.
absl::Span<const MethodRule> AuthorizationMatrix();

// PERMISSION_DENIED naming method and role, for a role that is not in the method's row and for a
// method without a row.
absl::Status AuthorizeMethod(proto::Role role, absl::string_view method);

}  // namespace kaon::auth

#endif  // KAON_SERVER_AUTH_AUTHORIZATION_MATRIX_H_
