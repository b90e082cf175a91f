// Early return on a failed absl::Status or absl::StatusOr. Any thread.
#ifndef KAON_PROTO_STATUS_MACROS_H_
#define KAON_PROTO_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define KAON_RETURN_IF_ERROR(expression)                              \
  do {                                                                \
    if (absl::Status kaon_status = (expression); !kaon_status.ok()) { \
      return kaon_status;                                             \
    }                                                                 \
  } while (false)

#define KAON_CONCAT_INNER(a, b) a##b
#define KAON_CONCAT(a, b) KAON_CONCAT_INNER(a, b)

// KAON_ASSIGN_OR_RETURN(auto x, Compute());
#define KAON_ASSIGN_OR_RETURN(lhs, expression) \
  KAON_ASSIGN_OR_RETURN_IMPL(KAON_CONCAT(kaon_or_, __LINE__), lhs, expression)
#define KAON_ASSIGN_OR_RETURN_IMPL(result, lhs, expression) \
  auto result = (expression);                               \
  if (!result.ok()) return result.status();                 \
  lhs = std::move(result).value()

#endif  // KAON_PROTO_STATUS_MACROS_H_
