#include "server/admin_cli/local/form_times.h"

#include <gtest/gtest.h>

#include <variant>

#include "kernels/optimizer_rule.h"
#include "tests/kernels/forwarding_backend.h"

namespace kaon::admin_cli {
namespace {

using kernels::NsForm;

// Two shapes, three dtypes, both forms.
constexpr size_t kUpdatesOfARound = 12;

// Advances a clock of its own by the time that an update takes in its form.
class TimedBackend : public kernels::ForwardingBackend {
 public:
  TimedBackend() : ForwardingBackend(kernels::CreateBackend({}).value()) {}

  std::string name() const override { return "timed"; }
  void RunUpdates(absl::Span<kernels::Update> updates) override {
    ASSERT_EQ(updates.size(), 1u);
    const kernels::Update& update = updates.front();
    EXPECT_EQ(update.buffers.grad.size(), update.shape[0] * update.shape[1]);
    const kernels::NewtonSchulzConfig& config =
        std::get<kernels::MuonConfig>(*update.rule).newton_schulz;
    EXPECT_EQ(config.form == NsForm::kGram, config.gram_restarts == (std::vector<int>{2, 3}));
    forms_.push_back(config.form);
    // The first update of each matrix is slow.
    const int64_t slow = forms_.size() <= kUpdatesOfARound ? 10 : 1;
    now_ += slow * absl::Milliseconds(config.form == NsForm::kGram ? 3 : 4);
  }

  absl::Time now() const { return now_; }
  const std::vector<NsForm>& forms() const { return forms_; }

 private:
  absl::Time now_ = absl::UnixEpoch();
  std::vector<NsForm> forms_;
};

FormTimes Measure(TimedBackend& backend, absl::Duration at_least) {
  return MeasureForms(backend, at_least, [&backend] { return backend.now(); });
}

TEST(FormTimesTest, AreTheLeastOfTwoRoundsAtLeast) {
  TimedBackend backend;
  const FormTimes times = Measure(backend, absl::ZeroDuration());
  EXPECT_EQ(backend.forms().size(), 2 * kUpdatesOfARound);
  ASSERT_EQ(times.rows.size(), kUpdatesOfARound / 2);
  for (size_t i = 0; i < times.rows.size(); ++i) {
    EXPECT_EQ(times.rows[i].rows, 256u);
    EXPECT_EQ(times.rows[i].cols, i < 3 ? 512u : 1024u);
    EXPECT_EQ(times.rows[i].standard, absl::Milliseconds(4));
    EXPECT_EQ(times.rows[i].gram, absl::Milliseconds(3));
  }
}

TEST(FormTimesTest, FormsAlternateUntilTheTimeIsOver) {
  TimedBackend backend;
  // 420 ms, then 42 ms for each round.
  Measure(backend, absl::Milliseconds(500));
  ASSERT_EQ(backend.forms().size(), 3 * kUpdatesOfARound);
  for (size_t i = 0; i < backend.forms().size(); ++i) {
    EXPECT_EQ(backend.forms()[i], i % 2 == 0 ? NsForm::kStandard : NsForm::kGram) << i;
  }
}

// A gain below 5 % is none.
TEST(FormTimesTest, JsonAndTextHaveTheDocumentedColumns) {
  FormTimes times{"cpu/amx",
                  {{"bfloat16", 256, 512, absl::Microseconds(10123.6), absl::Microseconds(9800)},
                   {"float32", 256, 1024, absl::Milliseconds(8), absl::Milliseconds(4)}}};
  EXPECT_EQ(FormTimesJson(times).dump(),
            R"({"backend":"cpu/amx","form_times":[{"dtype":"bfloat16","rows":256,"cols":512,)"
            R"("standard_ms":10.124,"gram_ms":9.8,"faster":"standard"},{"dtype":"float32",)"
            R"("rows":256,"cols":1024,"standard_ms":8.0,"gram_ms":4.0,"faster":"gram"}]})");
  EXPECT_EQ(FormTimesText(times),
            "DTYPE     ROWS  COLS  STANDARD_MS  GRAM_MS  FASTER\n"
            "bfloat16   256   512       10.124    9.800  standard\n"
            "float32    256  1024        8.000    4.000  gram\n"
            "cpu/amx on this machine\n");
}

}  // namespace
}  // namespace kaon::admin_cli
