#include "tests/server/shard/shard_history.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "job/settings.h"
#include "proto/crc32c.h"

namespace kaon::shard {

namespace {

constexpr uint32_t kSizes[] = {6, 4, 5};

// Of one slot: the same whenever it is pushed. Empty for a gradient that the worker does not have.
std::vector<float> ValuesOf(const v1::Member& member, uint64_t step, uint32_t micro,
                            uint32_t parameter) {
  std::mt19937_64 random(step * 1000003 + member.attempt().number() * 1009 + micro * 31 +
                         parameter);
  std::vector<float> values;
  const bool missing = step > 0 && (step + parameter) % 4 == 0;
  if (missing) return values;
  for (uint32_t i = 0; i < kSizes[parameter]; ++i) {
    values.push_back(std::ldexp(static_cast<float>(random() % 2001) - 1000, -9));
  }
  if (step > 0 && member.attempt().number() % 4 == 3) values[0] = NAN;
  return values;
}

// A coordinator and its workers, as they act on one shard.
class Author {
 public:
  explicit Author(uint64_t seed) : random_(seed) {}

  ShardHistory Write(int num_steps) {
    Take();
    v1::StepPlan registration = RegistrationPlan(counter_, 1);
    *registration.mutable_registration() = Registration();
    body_ = registration.registration();
    Vote(std::move(registration));
    Load();
    while (step_ < static_cast<uint64_t>(num_steps)) {
      if (Chance(15)) ChangeGroups();
      Train();
    }
    return std::move(history_);
  }

 private:
  bool Chance(int percent) { return random_() % 100 < static_cast<uint64_t>(percent); }

  v1::RegisterBody Registration() {
    v1::RegisterBody body = MakeRegistration();
    const v1::StateDType kinds[] = {v1::STATE_DTYPE_FLOAT32, v1::STATE_DTYPE_BFLOAT16,
                                    v1::STATE_DTYPE_INT8};
    for (v1::ParameterGroup& group : *body.mutable_definition()->mutable_groups()) {
      group.set_momentum_dtype(kinds[random_() % 3]);
      if (group.rule() == v1::RULE_ADAMW && Chance(50)) {
        group.mutable_adamw()->set_exp_avg_sq_dtype(v1::STATE_DTYPE_SQRT_UINT8);
      }
      if (Chance(40)) group.set_missing_gradient(v1::MISSING_GRADIENT_ZERO);
    }
    return body;
  }

  Operation& Add() {
    Operation& operation = history_.operations.emplace_back();
    operation.position = position_;
    return operation;
  }
  // Another coordinator takes over.
  void Take() {
    Add().promise = ++counter_;
    round_ = 0;
  }
  void AddPlan(v1::StepPlan& plan) {
    plan.set_position(position_);
    plan.set_config_revision(revision_);
    *plan.mutable_ballot() = MakeBallot(counter_);
    plan.set_round(++round_);
    Add().plan = plan;
  }
  void Push(const v1::StepPlan& plan, const v1::Member& member) {
    Operation& operation = Add();
    operation.push = member;
    operation.step = plan.step().step();
  }
  void Decide(const v1::StepRecord& record) {
    Add().decision = record;
    if (record.decision().outcome() == v1::OUTCOME_SKIP) ++history_.counts.skips;
    ++position_;
    round_ = 0;
  }
  // A control entry, perhaps stamped again by another coordinator.
  void Vote(v1::StepPlan plan) {
    AddPlan(plan);
    if (Chance(30)) {
      Take();
      AddPlan(plan);
      ++history_.counts.restamps;
    }
    if (plan.has_group_change()) job::ApplyGroupChange(plan.group_change(), body_);
    revision_ = position_;
    Decide(Applying(plan));
  }
  void ChangeGroups() {
    v1::GroupSetting setting;
    setting.set_field(Chance(50) ? "lr" : "weight_decay");
    setting.set_value(absl::StrCat(0.001 * static_cast<double>(1 + random_() % 9)));
    v1::StepPlan plan = GroupChangePlan(position_, 0.5, counter_, 1);
    *plan.mutable_group_change() = *job::MakeGroupChange(body_, "scalars", {setting}, position_);
    ++history_.counts.group_changes;
    Vote(std::move(plan));
  }
  void Load() {
    v1::StepPlan plan = LoadPlan(counter_, 1);
    plan.mutable_step()->clear_rates();
    Round(plan);
    Decide(Applying(plan));
  }
  void Train() {
    ++step_;
    v1::StepPlan plan = TrainPlan(step_, counter_, 1);
    plan.mutable_step()->set_loss_scale(1 << (random_() % 3));
    for (v1::Member& member : *plan.mutable_step()->mutable_members()) {
      member.set_token_weight(1 + static_cast<double>(random_() % 5));
      member.set_micro_batches(1 + static_cast<uint32_t>(random_() % 2));
      member.mutable_attempt()->set_number(attempts_[member.rank()]);
    }
    Round(plan);
    v1::StepRecord record = Applying(plan);
    for (const v1::Member& member : plan.step().members()) {
      if (member.attempt().number() % 4 == 3) record = Skipping(plan);
    }
    if (record.decision().outcome() == v1::OUTCOME_APPLY && Chance(50)) {
      record.mutable_decision()->mutable_norm_groups(0)->set_clip_factor(0.25);
    }
    Decide(record);
  }
  // Rounds of one position up to the one that every member finishes.
  void Round(v1::StepPlan& plan) {
    AddPlan(plan);
    const auto& members = plan.step().members();
    while (Chance(45)) {
      bool all = true;
      for (const v1::Member& member : members) {
        if (Chance(65)) {
          Push(plan, member);
        } else {
          all = false;
        }
      }
      if (Chance(40)) Take();
      if (Chance(50)) {
        v1::Member& restarted =
            *plan.mutable_step()->mutable_members(static_cast<int>(random_() % members.size()));
        restarted.mutable_attempt()->set_number(attempts_[restarted.rank()] = ++last_attempt_);
        if (all) ++history_.counts.withdrawals;
      } else {
        ++history_.counts.restamps;
      }
      AddPlan(plan);
    }
    // In any order.
    for (int i = 0; i < members.size(); ++i) Push(plan, members[members.size() - 1 - i]);
  }

  std::mt19937_64 random_;
  ShardHistory history_;
  v1::RegisterBody body_;
  uint64_t position_ = 1;
  uint64_t revision_ = 0;
  uint64_t counter_ = 0;
  uint64_t round_ = 0;
  uint64_t step_ = 0;
  uint32_t attempts_[2] = {1, 2};
  uint32_t last_attempt_ = 2;
};

// As the client does: asks what the shard has, sends the rest, finishes. Whether it was taken.
bool PushAll(const v1::Member& member, uint64_t step, DrivenShard& shard) {
  v1::PushOpen open;
  open.set_job("gpt2");
  open.set_timeline(1);
  open.set_step(step);
  open.set_rank(member.rank());
  *open.mutable_attempt() = member.attempt();
  GradientAccumulator& accumulator = shard.core().accumulator();
  const absl::StatusOr<OpenPush> push =
      accumulator.Open(open, {[](uint64_t) {}, [](const absl::Status&) {}});
  if (!push.ok()) return false;
  if (push->opened.finished()) return true;
  std::map<std::pair<uint32_t, uint32_t>, uint64_t> received;
  for (const v1::ReceivedChunks& chunks : push->opened.received()) {
    received[{chunks.parameter_id(), chunks.micro_batch()}] = chunks.num_elements();
  }
  v1::PushFinish finish;
  // Frozen parameters are loaded only.
  for (uint32_t parameter = 0; parameter < (step == 0 ? 3 : 2); ++parameter) {
    for (uint32_t micro = 0; micro < member.micro_batches(); ++micro) {
      const std::vector<float> values = ValuesOf(member, step, micro, parameter);
      if (values.empty()) {
        if (micro == 0) finish.add_missing_parameters(parameter);
        continue;
      }
      const uint64_t offset = received[{parameter, micro}];
      if (offset == values.size()) continue;
      const auto part = absl::MakeConstSpan(values).subspan(offset);
      const auto payload = absl::MakeConstSpan(reinterpret_cast<const std::byte*>(part.data()),
                                               part.size() * sizeof(float));
      v1::TensorChunk chunk;
      chunk.set_parameter_id(parameter);
      chunk.set_micro_batch(micro);
      chunk.set_offset(offset);
      chunk.set_num_elements(part.size());
      chunk.set_dtype(v1::DTYPE_FLOAT32);
      chunk.set_crc32c(proto::Crc32c(payload.data(), payload.size()));
      const absl::Status status =
          accumulator.AddChunks(push->stream, {{&chunk, absl::MakeConstSpan(&payload, 1)}});
      EXPECT_TRUE(status.ok()) << "step " << step << ": " << status;
    }
  }
  finish.set_loss(0.5 * static_cast<double>(step) + member.rank());
  const absl::Status status = accumulator.Finish(push->stream, finish);
  EXPECT_TRUE(status.ok()) << "step " << step << ": " << status;
  return true;
}

}  // namespace

ShardHistory MakeHistory(uint64_t seed, int num_steps) { return Author(seed).Write(num_steps); }

std::string Describe(DrivenShard& shard) {
  v1::DescribeShardResponse description = *shard.core().Describe("");
  description.clear_applied_steps();
  description.clear_skipped_steps();
  return description.SerializeAsString();
}

std::map<uint64_t, Observed> Play(const ShardHistory& history, uint64_t from, DrivenShard& shard) {
  std::map<uint64_t, Observed> observed;
  std::map<std::string, std::string> votes;
  for (const Operation& operation : history.operations) {
    if (operation.position < from) continue;
    std::vector<v1::ShardToCoordinator> sent;
    if (operation.promise > 0) sent = shard.Promise(operation.promise);
    if (operation.plan.has_value()) sent = shard.Plan(*operation.plan);
    if (operation.push.has_value()) {
      PushAll(*operation.push, operation.step, shard);
      sent = shard.Pump();
    }
    if (operation.decision.has_value()) sent = shard.Decide(*operation.decision);
    for (const v1::ShardToCoordinator& message : sent) {
      if (message.has_prepared()) {
        votes[message.prepared().plan()] = message.prepared().SerializeAsString();
      }
    }
    if (!operation.decision.has_value()) continue;
    EXPECT_EQ(shard.core().machine().applied_position(), operation.position)
        << (sent.empty() ? std::string("no answer") : sent[0].ShortDebugString());
    if (shard.core().machine().applied_position() != operation.position) break;
    observed[operation.position] = {votes[operation.decision->plan().SerializeAsString()],
                                    Describe(shard)};
  }
  return observed;
}

}  // namespace kaon::shard
