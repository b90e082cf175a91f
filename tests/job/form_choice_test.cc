#include "job/form_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/optional.h"
#include "job/group_validation.h"
#include "job/resolve.h"
#include "tests/job/form_times.h"
#include "tests/job/small_job.h"

namespace kaon::job {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr v1::NewtonSchulzDType kFloat32 = v1::NEWTON_SCHULZ_DTYPE_FLOAT32;
constexpr v1::NewtonSchulzDType kBFloat16 = v1::NEWTON_SCHULZ_DTYPE_BFLOAT16;

// Whichever side is the longer; 2 and 4 are 2.83 apart.
TEST(FormChoiceTest, TheGainIsThatOfTheShapeWithTheMostAlikeSides) {
  const FormTimes times = {FormTime(2, 1, 2), FormTime(4, 3, 2)};
  EXPECT_DOUBLE_EQ(*GramGains(times, kBFloat16).Of(1000, 1001), 0.5);
  EXPECT_DOUBLE_EQ(*GramGains(times, kBFloat16).Of(1000, 2820), 0.5);
  EXPECT_DOUBLE_EQ(*GramGains(times, kBFloat16).Of(1000, 2840), 1.5);
  EXPECT_DOUBLE_EQ(*GramGains(times, kBFloat16).Of(2840, 1000), 1.5);
  EXPECT_DOUBLE_EQ(*GramGains(times, kBFloat16).Of(10, 10000), 1.5);
}

TEST(FormChoiceTest, NothingIsGainedByASquareOrKnownOfAnotherDType) {
  const FormTimes times = {FormTime(2, 3, 2)};
  EXPECT_EQ(GramGains(times, kBFloat16).Of(64, 64), absl::nullopt);
  EXPECT_EQ(GramGains(times, kFloat32).Of(64, 128), absl::nullopt);
  EXPECT_EQ(GramGains({}, kBFloat16).Of(64, 128), absl::nullopt);
}

// What a shard sends is not trusted to be a time.
TEST(FormChoiceTest, WhatIsNoMeasurementIsNone) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  FormTimes times = {FormTime(2, 0, 1),         FormTime(2, 1, 0),   FormTime(2, -1, -1),
                     FormTime(2, 1, kInfinity), FormTime(2, NAN, 1), FormTime(2, 1, 1),
                     FormTime(2, 1e308, 1),     FormTime(0, 3, 1)};
  times[5].set_rows(0);
  EXPECT_EQ(GramGains(times, kBFloat16).Of(64, 128), absl::nullopt);
  times.push_back(FormTime(2, 3, 2));
  EXPECT_DOUBLE_EQ(*GramGains(times, kBFloat16).Of(64, 128), 1.5);
}

// A step waits for the slower shard.
TEST(FormChoiceTest, TimesOfAllShardsAreAddedUp) {
  const FormTimes times = {FormTime(2, 10, 5), FormTime(4, 1, 1), FormTime(2, 1, 2)};
  EXPECT_DOUBLE_EQ(*GramGains(times, kBFloat16).Of(64, 128), 11.0 / 7);
}

v1::JobDefinition FastestJob() { return WithFastestForm(SmallJob()); }

// The form and the restarts of the only Muon group, or the refusal.
std::string Chosen(const v1::JobDefinition& job, const FormTimes& times) {
  const auto body = Resolve(job, times);
  if (!body.ok()) return std::string(body.status().message());
  const v1::NewtonSchulzOptions& options = body->definition().groups(0).muon().newton_schulz();
  return absl::StrCat(options.form() == v1::NEWTON_SCHULZ_FORM_GRAM       ? "gram"
                      : options.form() == v1::NEWTON_SCHULZ_FORM_STANDARD ? "standard"
                                                                          : "?",
                      " ", absl::StrJoin(options.gram_restarts(), ","));
}

// Of the only matrix, 4 x 6.
TEST(FormChoiceTest, GramIsChosenFromItsLeastGainOn) {
  EXPECT_EQ(Chosen(FastestJob(), {FormTime(2, 1.06, 1)}), "gram 2,3");
  EXPECT_EQ(Chosen(FastestJob(), {FormTime(2, 1.04, 1)}), "standard ");
}

TEST(FormChoiceTest, LargeMatricesWeighMore) {
  v1::JobDefinition job = FastestJob();
  v1::ParameterSpec& wide = *job.add_parameters();
  wide.set_name("w.weight");
  wide.set_dtype(v1::DTYPE_FLOAT32);
  wide.add_shape(4);
  wide.add_shape(24);
  // Gram form costs twice as much for 4 x 6, a third less for the other.
  const FormTimes times = {FormTime(2, 1, 2), FormTime(4, 3, 2)};
  EXPECT_EQ(Chosen(FastestJob(), times), "standard ");
  EXPECT_EQ(Chosen(job, times), "standard ");
  wide.set_shape(0, 40);
  wide.set_shape(1, 240);
  EXPECT_EQ(Chosen(job, times), "gram 2,3");
}

// A parameter that is cut counts by its matrices: 4 x 8 in two squares has nothing to choose, as
// 4 x 2 and 4 x 6 it has.
TEST(FormChoiceTest, TheMatricesOfALayoutCount) {
  v1::JobDefinition job = FastestJob();
  job.mutable_parameters(0)->set_shape(1, 8);
  v1::MatrixLayout& layout = *job.mutable_parameters(0)->mutable_layout();
  layout.set_kind(v1::MATRIX_LAYOUT_KIND_SPLIT_COLS);
  layout.add_sizes(4);
  layout.add_sizes(4);
  EXPECT_EQ(Chosen(job, {FormTime(2, 3, 1)}), "standard ");
  EXPECT_EQ(Chosen(job, {}), "standard ");
  layout.set_sizes(0, 2);
  layout.set_sizes(1, 6);
  EXPECT_EQ(Chosen(job, {FormTime(2, 3, 1)}), "gram 2,3");
}

TEST(FormChoiceTest, NothingMeasuredInTheGroupsDTypeIsRefused) {
  v1::JobDefinition job = FastestJob();
  job.mutable_groups(0)->mutable_muon()->set_ns_dtype(kFloat32);
  const auto body = Resolve(job, FormTimes{FormTime(2, 1, 2)});
  EXPECT_EQ(body.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(body.status().message(),
              HasSubstr("group matrices: muon.newton_schulz.form is fastest, and no shard measured "
                        "both forms in float32"));
  EXPECT_EQ(Chosen(job, {FormTime(2, 2, 1, kFloat32)}), "gram 2,3");
}

TEST(FormChoiceTest, OtherFormsAreLeftAlone) {
  const FormTimes times = TimesWithGain(2);
  EXPECT_EQ(Chosen(SmallJob(), times), "standard ");
  v1::JobDefinition job = SmallJob();
  job.mutable_groups(0)->mutable_muon()->mutable_newton_schulz()->set_form(
      v1::NEWTON_SCHULZ_FORM_GRAM);
  EXPECT_EQ(Chosen(job, {FormTime(2, 1, 2)}), "gram 2");
}

TEST(FormChoiceTest, RestartsComeWithTheChoice) {
  EXPECT_THAT(ChosenRestarts(5), ElementsAre(2, 3));
  EXPECT_THAT(ChosenRestarts(8), ElementsAre(2, 4, 6));
  v1::JobDefinition job = FastestJob();
  job.mutable_groups(0)->mutable_muon()->mutable_newton_schulz()->add_gram_restarts(2);
  EXPECT_THAT(Chosen(job, TimesWithGain(2)), HasSubstr("gram_restarts: has 1 entries"));
}

// Whatever is valid in standard form may be chosen to be Gram ([N7]).
TEST(FormChoiceTest, EveryChoiceIsValid) {
  for (const v1::NewtonSchulzDType dtype : {kFloat32, kBFloat16, v1::NEWTON_SCHULZ_DTYPE_FLOAT16}) {
    for (uint32_t steps = 1; steps < 100; ++steps) {
      v1::JobDefinition job = FastestJob();
      v1::MuonOptions& muon = *job.mutable_groups(0)->mutable_muon();
      muon.set_ns_dtype(dtype);
      muon.set_ns_steps(steps);
      const auto body = Resolve(job, FormTimes{FormTime(2, 2, 1, dtype)});
      ASSERT_TRUE(body.ok()) << steps << ": " << body.status();
      ASSERT_EQ(body->definition().groups(0).muon().newton_schulz().form(),
                v1::NEWTON_SCHULZ_FORM_GRAM);
      EXPECT_TRUE(ValidateGroup(body->definition().groups(0)).ok()) << steps;
    }
  }
}

}  // namespace
}  // namespace kaon::job
