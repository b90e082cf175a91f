#include "server/admin_cli/local/verify_numerics.h"

#include <gtest/gtest.h>

#include <memory>
#include <sstream>
#include <string>

#include "kernels/backend.h"
#include "tests/kernels/forwarding_backend.h"

namespace kaon::admin_cli {
namespace {

std::unique_ptr<kernels::Backend> Cpu() {
  kernels::BackendOptions options;
  options.gemm = "reference";
  return *kernels::CreateBackend(options);
}

// The cpu backend, but the first weight of every update is off by one part in a thousand.
class BrokenBackend : public kernels::ForwardingBackend {
 public:
  BrokenBackend() : ForwardingBackend(Cpu()) {}

  std::string name() const override { return "broken"; }
  void RunUpdates(absl::Span<kernels::Update> updates) override {
    ForwardingBackend::RunUpdates(updates);
    for (const kernels::Update& update : updates) {
      const absl::Span<float> weights = update.buffers.new_param.host_floats();
      if (!weights.empty()) weights[0] *= 1.001f;
    }
  }
};

// The first `count` rows of one rule.
std::vector<conformance::NumericsCase> RowsOf(const std::string& rule, size_t count) {
  std::vector<conformance::NumericsCase> rows;
  for (const conformance::NumericsCase& row : conformance::NumericsCases()) {
    if (row.rule == rule && rows.size() < count) rows.push_back(row);
  }
  return rows;
}

TEST(VerifyNumericsTest, PassesOnTheCpuBackend) {
  std::ostringstream progress;
  const NumericsReport report = VerifyNumerics(RowsOf("adamw", 20), *Cpu(), progress);
  EXPECT_EQ(report.backend, "cpu/reference");
  EXPECT_EQ(report.rows.size(), 20);
  EXPECT_EQ(NumFailed(report), 0);
  EXPECT_EQ(progress.str(), "verify-numerics: 20 of 20 rows on cpu/reference, 0 failed\n");
  const std::string text = NumericsText(report);
  EXPECT_NE(text.find("cpu/reference: 20 passed, 0 failed, "), std::string::npos) << text;
  EXPECT_EQ(text.find("FAIL"), std::string::npos) << text;
}

TEST(VerifyNumericsTest, ReportsABackendWhoseUpdatesAreOff) {
  BrokenBackend broken;
  std::ostringstream progress;
  const NumericsReport report = VerifyNumerics(RowsOf("adamw", 20), broken, progress);
  const int failed = NumFailed(report);
  for (const conformance::NumericsResult& row : report.rows) {
    EXPECT_FALSE(row.passed && row.numerics_case.compared == "weights");
  }
  // Rows of the state pass if no l2 decay carries the weights into it.
  EXPECT_GE(failed, 10);
  EXPECT_LT(failed, 20);
  EXPECT_NE(NumericsText(report).find("FAIL"), std::string::npos);
  const Json json = NumericsJson(report);
  EXPECT_EQ(json["backend"], "broken");
  EXPECT_EQ(json["failed"], failed);
  EXPECT_EQ(json["passed"], 20 - failed);
  EXPECT_EQ(json["rows"][0]["rule"], "adamw");
  EXPECT_EQ(json["rows"][0]["passed"], false);
  EXPECT_GT(json["rows"][0]["error"], json["rows"][0]["tolerance"]);
}

}  // namespace
}  // namespace kaon::admin_cli
