#include "server/admin_cli/local/verify_numerics.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/admin_cli/table.h"

namespace kaon::admin_cli {
namespace {

using conformance::NumericsCase;
using conformance::NumericsResult;

constexpr size_t kRowsPerProgressLine = 100;

double TotalSeconds(const NumericsReport& report) {
  double seconds = 0;
  for (const NumericsResult& row : report.rows) seconds += row.seconds;
  return seconds;
}

}  // namespace

NumericsReport VerifyNumerics(const std::vector<NumericsCase>& cases, kernels::Backend& backend,
                              std::ostream& progress) {
  NumericsReport report{backend.name(), {}};
  for (const NumericsCase& row : cases) {
    report.rows.push_back(conformance::Run(row, backend));
    const size_t done = report.rows.size();
    if (done % kRowsPerProgressLine == 0 || done == cases.size()) {
      progress << "verify-numerics: " << done << " of " << cases.size() << " rows on "
               << report.backend << ", " << NumFailed(report) << " failed" << std::endl;
    }
  }
  return report;
}

int NumFailed(const NumericsReport& report) {
  return static_cast<int>(std::count_if(report.rows.begin(), report.rows.end(),
                                        [](const NumericsResult& row) { return !row.passed; }));
}

Json NumericsJson(const NumericsReport& report) {
  Json rows = Json::array();
  for (const NumericsResult& row : report.rows) {
    rows.push_back({{"rule", row.numerics_case.rule},
                    {"case", row.numerics_case.name},
                    {"rule_ids", row.numerics_case.rule_ids},
                    {"compared", row.numerics_case.compared},
                    {"error", row.error},
                    {"tolerance", row.numerics_case.tolerance},
                    {"passed", row.passed},
                    {"seconds", row.seconds}});
  }
  const int failed = NumFailed(report);
  return {{"backend", report.backend},
          {"passed", static_cast<int>(report.rows.size()) - failed},
          {"failed", failed},
          {"seconds", TotalSeconds(report)},
          {"rows", std::move(rows)}};
}

std::string NumericsText(const NumericsReport& report) {
  Table table({{"RULE"},
               {"CASE"},
               {"COMPARED"},
               {"ERROR", Align::kRight},
               {"TOLERANCE", Align::kRight},
               {"RESULT"}});
  for (const NumericsResult& row : report.rows) {
    table.AddRow({row.numerics_case.rule, row.numerics_case.name, row.numerics_case.compared,
                  absl::StrFormat("%.1e", row.error),
                  absl::StrFormat("%.1e", row.numerics_case.tolerance),
                  row.passed ? "pass" : "FAIL"});
  }
  const int failed = NumFailed(report);
  return absl::StrCat(table.ToString(), report.backend, ": ", report.rows.size() - failed,
                      " passed, ", failed, " failed, ",
                      absl::StrFormat("%.1f", TotalSeconds(report)), " s\n");
}

}  // namespace kaon::admin_cli
