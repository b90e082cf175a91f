// kaonctl verify-numerics: runs the numerics table (tests/conformance/numerics_table.h) on this
// machine, and prints the result. Needs no cluster. Functions of their arguments; one thread.
#ifndef KAON_SERVER_ADMIN_CLI_LOCAL_VERIFY_NUMERICS_H_
#define KAON_SERVER_ADMIN_CLI_LOCAL_VERIFY_NUMERICS_H_

#include <ostream>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "server/admin_cli/report.h"
#include "tests/conformance/numerics_table.h"

namespace kaon::admin_cli {

struct NumericsReport {
  // The backend's own name, such as "cpu/amx".
  std::string backend;
  std::vector<conformance::NumericsResult> rows;
};

// Runs `cases`. Writes an occasional line to `progress`.
NumericsReport VerifyNumerics(const std::vector<conformance::NumericsCase>& cases,
                              kernels::Backend& backend, std::ostream& progress);

// Counts the rows that did not pass.
int NumFailed(const NumericsReport& report);

Json NumericsJson(const NumericsReport& report);
// Returns a table and a last line that sums it up.
std::string NumericsText(const NumericsReport& report);

}  // namespace kaon::admin_cli

#endif  // KAON_SERVER_ADMIN_CLI_LOCAL_VERIFY_NUMERICS_H_
