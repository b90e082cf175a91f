// Defines which role may call which method: one explicit list, default deny. A new RPC needs a row;
// a test generated from the service descriptors fails without it. Constant data and pure functions;
// any thread.
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
  // Has at most one entry per role.
  absl::Span<const proto::Role> roles;
};

// Returns a row for every method that a Kaon server answers.
absl::Span<const MethodRule> AuthorizationMatrix();

// PERMISSION_DENIED if the method has no row, or its row lacks the role; names the method and the
// role.
absl::Status AuthorizeMethod(proto::Role role, absl::string_view method);

}  // namespace kaon::auth

#endif  // KAON_SERVER_AUTH_AUTHORIZATION_MATRIX_H_
