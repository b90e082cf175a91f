#include "job/group_validation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "job/effective_job.h"
#include "tests/job/small_job.h"

namespace kaon::job {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// The message for SmallJob's first (Muon) or second (AdamW) group, changed and completed; or "OK".
std::string Refusal(int index, const std::function<void(v1::ParameterGroup&)>& change) {
  v1::JobDefinition job = SmallJob();
  change(*job.mutable_groups(index));
  const absl::Status status = ValidateGroup(Effective(job)->groups(index));
  if (status.ok()) return "OK";
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(index == 0 ? "matrices" : "scalars"));
  return std::string(status.message());
}

std::string MuonRefusal(const std::function<void(v1::MuonOptions&)>& change) {
  return Refusal(0, [&](v1::ParameterGroup& group) { change(*group.mutable_muon()); });
}

std::string ScheduleRefusal(v1::ScheduleKind kind, uint64_t warmup, uint64_t total, uint64_t decay,
                            double final_factor) {
  return Refusal(1, [&](v1::ParameterGroup& group) {
    v1::Schedule& schedule = *group.mutable_schedule();
    schedule.set_kind(kind);
    schedule.set_warmup_steps(warmup);
    schedule.set_total_steps(total);
    schedule.set_decay_steps(decay);
    schedule.set_final_factor(final_factor);
  });
}

TEST(GroupValidationTest, RefusesRatesAndDecaysOutOfRange) {
  EXPECT_THAT(Refusal(0, [](auto& g) { g.clear_lr(); }), HasSubstr("lr is unset"));
  EXPECT_THAT(Refusal(0, [](auto& g) { g.set_lr(-1); }), HasSubstr("lr is -1, must be 0 .. "));
  EXPECT_THAT(Refusal(0, [](auto& g) { g.set_lr(kNan); }), HasSubstr("lr is nan"));
  EXPECT_THAT(Refusal(1, [](auto& g) { g.set_weight_decay(1e39); }),
              HasSubstr("weight_decay is 1e+39"));
  EXPECT_EQ(Refusal(1, [](auto& g) { g.set_weight_decay(0); }), "OK");
}

TEST(GroupValidationTest, RefusesEnumeratorsThatAreNotKnown) {
  EXPECT_THAT(Refusal(0, [](auto& g) { g.set_rule(v1::RULE_UNSPECIFIED); }),
              HasSubstr("rule is unset, must be one of muon"));
  EXPECT_THAT(Refusal(0, [](auto& g) { g.set_clip_policy(static_cast<v1::ClipPolicy>(7)); }),
              HasSubstr("clip_policy is 7, must be one of clip, exempt"));
  EXPECT_THAT(Refusal(1, [](auto& g) { g.set_decay_mode(static_cast<v1::DecayMode>(7)); }),
              HasSubstr("decay_mode is 7"));
  EXPECT_THAT(MuonRefusal([](auto& m) { m.set_scale(static_cast<v1::UpdateScale>(7)); }),
              HasSubstr("muon.scale is 7, must be one of original"));
}

// Edge 51: an option that maps to nothing is an error.
TEST(GroupValidationTest, RefusesOptionsOfAnotherRule) {
  EXPECT_THAT(Refusal(1, [](auto& g) { g.mutable_muon(); }),
              HasSubstr("muon is set, but the rule is adamw"));
  EXPECT_THAT(Refusal(0, [](auto& g) { g.mutable_adamw(); }),
              HasSubstr("adamw is set, but the rule is muon"));
  EXPECT_THAT(Refusal(0, [](auto& g) { g.mutable_sgd(); }), HasSubstr("sgd is set"));
  EXPECT_THAT(Refusal(0, [](auto& g) { g.mutable_lion(); }), HasSubstr("lion is set"));
}

TEST(GroupValidationTest, RefusesScheduleFieldsThatItsKindHasNot) {
  const auto constant = v1::SCHEDULE_KIND_CONSTANT;
  const auto cosine = v1::SCHEDULE_KIND_COSINE;
  const auto stable = v1::SCHEDULE_KIND_WARMUP_STABLE_DECAY;
  EXPECT_EQ(ScheduleRefusal(constant, 10, 0, 0, 0), "OK");
  EXPECT_EQ(ScheduleRefusal(cosine, 10, 11, 0, 1), "OK");
  EXPECT_EQ(ScheduleRefusal(stable, 10, 20, 10, 0), "OK");
  EXPECT_THAT(ScheduleRefusal(constant, 0, 5, 0, 0),
              HasSubstr("schedule.total_steps is 5, must be 0 .. 0"));
  EXPECT_THAT(ScheduleRefusal(constant, 0, 0, 0, 0.5), HasSubstr("schedule.final_factor is 0.5"));
  EXPECT_THAT(ScheduleRefusal(cosine, 10, 10, 0, 0),
              HasSubstr("schedule.total_steps is 10, must be 11 .. 1099511627776"));
  EXPECT_THAT(ScheduleRefusal(cosine, 0, 10, 1, 0), HasSubstr("schedule.decay_steps is 1"));
  EXPECT_THAT(ScheduleRefusal(cosine, 0, 10, 0, 1.5), HasSubstr("schedule.final_factor is 1.5"));
  EXPECT_THAT(ScheduleRefusal(stable, 10, 20, 11, 0),
              HasSubstr("schedule.decay_steps is 11, must be 1 .. 10"));
  EXPECT_THAT(ScheduleRefusal(stable, 10, 20, 0, 0), HasSubstr("schedule.decay_steps is 0"));
  EXPECT_THAT(ScheduleRefusal(cosine, ~uint64_t{0}, 0, 0, 0), HasSubstr("schedule.warmup_steps"));
}

TEST(GroupValidationTest, RefusesMuonOptionsOutOfRange) {
  EXPECT_THAT(MuonRefusal([](auto& m) { m.set_momentum(1); }), HasSubstr("momentum"));
  EXPECT_THAT(MuonRefusal([](auto& m) { m.set_ns_steps(0); }),
              HasSubstr("muon.ns_steps is 0, must be 1 .. 99"));
  EXPECT_THAT(MuonRefusal([](auto& m) { m.set_ns_steps(4000000000u); }), HasSubstr("ns_steps"));
  EXPECT_THAT(MuonRefusal([](auto& m) { m.set_scale_extra(0); }), HasSubstr("scale_extra is 0"));
}

// Edge 50: custom coefficients need triples ([N2]) and a rule to repeat them ([N3]).
TEST(GroupValidationTest, CustomCoefficientsNeedTriplesAndOthersTakeNone) {
  const auto custom = [](v1::MuonOptions& muon, double a) -> v1::NewtonSchulzOptions& {
    muon.set_ns_coefficients(v1::NEWTON_SCHULZ_COEFFICIENTS_CUSTOM);
    v1::NewtonSchulzOptions& options = *muon.mutable_newton_schulz();
    options.add_custom()->set_a(a);
    return options;
  };
  EXPECT_EQ(MuonRefusal([&](auto& m) { custom(m, 1.5); }), "OK");
  EXPECT_THAT(MuonRefusal([&](auto& m) { custom(m, 1.5).clear_custom(); }),
              HasSubstr("muon.newton_schulz.custom: has 0 triples, must be 1 .. 99"));
  EXPECT_THAT(MuonRefusal([&](auto& m) { custom(m, 0); }),
              HasSubstr("custom[0].a: is 0, must be finite and > 0"));
  EXPECT_THAT(MuonRefusal([&](auto& m) { custom(m, 1).mutable_custom(0)->set_b(kNan); }),
              HasSubstr("custom[0]: b is nan"));
  EXPECT_THAT(MuonRefusal([&](auto& m) {
                custom(m, 1).set_custom_repeat(v1::NEWTON_SCHULZ_REPEAT_FIXED);
                m.set_ns_steps(2);
              }),
              HasSubstr("muon.ns_steps: is 2, must be 1 with the coefficients custom"));
  EXPECT_THAT(MuonRefusal([&](auto& m) {
                custom(m, 1);
                m.set_ns_coefficients(v1::NEWTON_SCHULZ_COEFFICIENTS_YOU);
              }),
              HasSubstr("newton_schulz.custom: has 1 triples, must be empty"));
  EXPECT_THAT(MuonRefusal([&](auto& m) {
                m.mutable_newton_schulz()->set_custom_repeat(v1::NEWTON_SCHULZ_REPEAT_CYCLE);
              }),
              HasSubstr("custom_repeat is set, must be unset: it needs ns_coefficients custom"));
}

// [N5]: no eps in the scale-invariant form.
TEST(GroupValidationTest, NormEpsNeedsAModeThatHasOne) {
  EXPECT_THAT(MuonRefusal([](auto& m) { m.mutable_newton_schulz()->set_norm_eps(1e-7); }),
              HasSubstr("norm_eps is set"));
  EXPECT_THAT(MuonRefusal([](auto& m) {
                m.mutable_newton_schulz()->set_norm_mode(v1::NORM_MODE_ADD_EPS);
                m.mutable_newton_schulz()->set_norm_eps(0);
              }),
              HasSubstr("norm_eps is 0"));
}

// Edge 44: the Gram form needs a second restart for more than five steps ([N7]).
TEST(GroupValidationTest, GramWithManyStepsNeedsMoreThanOneRestart) {
  const auto gram = [](uint32_t steps, const std::vector<uint32_t>& restarts) {
    return MuonRefusal([&](v1::MuonOptions& muon) {
      muon.set_ns_coefficients(v1::NEWTON_SCHULZ_COEFFICIENTS_POLAR_EXPRESS);
      muon.set_ns_steps(steps);
      muon.mutable_newton_schulz()->set_form(v1::NEWTON_SCHULZ_FORM_GRAM);
      for (uint32_t at : restarts) muon.mutable_newton_schulz()->add_gram_restarts(at);
    });
  };
  EXPECT_EQ(gram(5, {2}), "OK");
  EXPECT_EQ(gram(8, {}), "OK");  // The default has enough.
  EXPECT_EQ(gram(8, {2, 4, 6}), "OK");
  EXPECT_THAT(gram(8, {2}),
              HasSubstr("gram_restarts: has 1 entries with ns_steps 8, must be >= 2"));
  EXPECT_THAT(gram(5, {5}), HasSubstr("gram_restarts[0]: is 5, must be ascending and within"));
  EXPECT_THAT(gram(8, {2, 2}), HasSubstr("gram_restarts[1]: is 2, must be ascending"));
  EXPECT_THAT(MuonRefusal([](auto& m) { m.mutable_newton_schulz()->add_gram_restarts(2); }),
              HasSubstr("gram_restarts: has 1 entries, must be empty"));
}

TEST(GroupValidationTest, RefusesAdamWOptionsOutOfRange) {
  EXPECT_THAT(Refusal(1, [](auto& g) { g.mutable_adamw()->set_beta1(1); }), HasSubstr("beta1"));
  EXPECT_THAT(Refusal(1, [](auto& g) { g.mutable_adamw()->set_beta2(kNan); }), HasSubstr("beta2"));
  EXPECT_THAT(Refusal(1, [](auto& g) { g.mutable_adamw()->set_eps(0); }), HasSubstr("eps"));
}

// Nesterov of SGD needs momentum without dampening ([G1]).
TEST(GroupValidationTest, NesterovOfSgdNeedsMomentumWithoutDampening) {
  const auto sgd = [](double momentum, double dampening) {
    return Refusal(1, [&](v1::ParameterGroup& group) {
      group.set_rule(v1::RULE_SGD);
      group.mutable_sgd()->set_momentum(momentum);
      group.mutable_sgd()->set_dampening(dampening);
      group.mutable_sgd()->set_nesterov(true);
    });
  };
  EXPECT_THAT(sgd(0, 0), HasSubstr("sgd.nesterov: is set, but momentum is 0"));
  EXPECT_THAT(sgd(0.9, 0.5), HasSubstr("dampening is 0.5"));
}

// Edge 51: without momentum SGD has no buffer that these options could describe ([G1]).
TEST(GroupValidationTest, SgdWithoutMomentumTakesNoOptionOfItsBuffer) {
  const auto sgd = [](double momentum, double dampening, v1::StateDType dtype) {
    return Refusal(1, [&](v1::ParameterGroup& group) {
      group.set_rule(v1::RULE_SGD);
      group.mutable_sgd()->set_momentum(momentum);
      group.mutable_sgd()->set_dampening(dampening);
      group.set_momentum_dtype(dtype);
    });
  };
  EXPECT_EQ(sgd(0.9, 0.5, v1::STATE_DTYPE_INT8), "OK");
  EXPECT_EQ(sgd(0, 0, v1::STATE_DTYPE_FLOAT32), "OK");
  EXPECT_THAT(sgd(0, 0.5, v1::STATE_DTYPE_FLOAT32),
              HasSubstr("sgd.dampening is set, must be unset: it needs sgd.momentum above 0"));
  EXPECT_THAT(sgd(0, 0, v1::STATE_DTYPE_INT8), HasSubstr("momentum_dtype int8 is set"));
}

// [Q1], [Q2]: a momentum has a sign, and second moments are stored as they are or as roots.
TEST(GroupValidationTest, StateIsStoredInWhatItFits) {
  const auto adamw = [](v1::StateDType momentum, v1::StateDType second_moment) {
    return Refusal(1, [&](v1::ParameterGroup& group) {
      group.set_momentum_dtype(momentum);
      group.mutable_adamw()->set_exp_avg_sq_dtype(second_moment);
    });
  };
  EXPECT_EQ(adamw(v1::STATE_DTYPE_INT8, v1::STATE_DTYPE_SQRT_UINT8), "OK");
  EXPECT_THAT(adamw(v1::STATE_DTYPE_SQRT_UINT8, v1::STATE_DTYPE_FLOAT32),
              HasSubstr("momentum_dtype is sqrt_uint8, must be float32, bfloat16 or int8"));
  EXPECT_THAT(adamw(v1::STATE_DTYPE_FLOAT32, v1::STATE_DTYPE_INT8),
              HasSubstr("adamw.exp_avg_sq_dtype is int8, must be float32 or sqrt_uint8"));
}

// Edge 51: an eps mode ([A2]) other than the default needs the bias correction ([A5]).
TEST(GroupValidationTest, AnEpsModeOfTheCorrectionNeedsOne) {
  const auto adamw = [](bool corrected) {
    return Refusal(1, [&](v1::ParameterGroup& group) {
      group.mutable_adamw()->set_eps_mode(v1::ADAM_EPS_MODE_UNCORRECTED);
      group.mutable_adamw()->set_bias_correction(corrected);
    });
  };
  EXPECT_EQ(adamw(true), "OK");
  EXPECT_THAT(adamw(false), HasSubstr("adamw.eps_mode uncorrected is set, must be unset: it needs "
                                      "bias_correction true"));
}

}  // namespace
}  // namespace kaon::job
