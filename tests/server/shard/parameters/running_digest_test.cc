// The digests that shards maintain equal those of their memory after every entry of random jobs.
// The jobs cover every rule, stored momentum and layout, skipped steps, missing gradients, and
// changes of groups. The digests add up to the same for any number of shards.
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "job/decide.h"
#include "job/definition.h"
#include "job/resolve.h"
#include "job/schedule.h"
#include "job/settings.h"
#include "kernels/reduce/digest.h"
#include "tests/kernels/reference/random_matrices.h"
#include "tests/server/shard/device/parameter_memory.h"
#include "tests/server/shard/driven_shard.h"

namespace kaon::shard {
namespace {

constexpr int kEntries = 10;

class Random {
 public:
  explicit Random(uint64_t seed) : bits_(seed) {}
  int Below(int limit) { return static_cast<int>(bits_() % static_cast<uint64_t>(limit)); }
  bool OneIn(int n) { return Below(n) == 0; }

 private:
  std::mt19937_64 bits_;
};

void AddGroup(const std::string& name, v1::Rule rule, Random& random, v1::JobDefinition* job) {
  v1::ParameterGroup* group = job->add_groups();
  group->set_name(name);
  group->set_rule(rule);
  group->set_lr(0.01);
  group->set_weight_decay(random.OneIn(2) ? 0.1 : 0);
  group->set_momentum_dtype(static_cast<v1::StateDType>(1 + random.Below(3)));
  if (random.OneIn(3)) group->set_missing_gradient(v1::MISSING_GRADIENT_ZERO);
  if (rule == v1::RULE_SGD && !random.OneIn(3)) group->mutable_sgd()->set_momentum(0.9);
  if (rule == v1::RULE_SGD && !group->has_sgd()) group->clear_momentum_dtype();
  if (rule == v1::RULE_ADAMW) {
    group->mutable_adamw()->set_amsgrad(random.OneIn(2));
    if (random.OneIn(2)) group->mutable_adamw()->set_exp_avg_sq_dtype(v1::STATE_DTYPE_SQRT_UINT8);
  }
}

v1::ParameterSpec* AddParameter(const std::string& group, std::vector<uint64_t> shape,
                                v1::JobDefinition* job) {
  v1::ParameterSpec* spec = job->add_parameters();
  spec->set_name(absl::StrCat("p", job->parameters_size(), ".", group));
  for (uint64_t extent : shape) spec->add_shape(extent);
  spec->set_dtype(v1::DTYPE_FLOAT32);
  spec->set_group(group);
  return spec;
}

// Blocks that are one run of memory, several, and strips of columns.
void AddMatrices(const std::string& group, Random& random, v1::JobDefinition* job) {
  AddParameter(group, {9, 130}, job);
  v1::ParameterSpec* spec = nullptr;
  switch (random.Below(3)) {
    case 0:
      spec = AddParameter(group, {3, 5, 7}, job);
      spec->mutable_layout()->set_kind(v1::MATRIX_LAYOUT_KIND_BATCHED);
      return;
    case 1:
      spec = AddParameter(group, {16, 5}, job);
      spec->mutable_layout()->set_kind(v1::MATRIX_LAYOUT_KIND_QKV_INTERLEAVED);
      for (uint64_t size : {2, 1, 1}) spec->mutable_layout()->add_sizes(size);
      return;
    default:
      spec = AddParameter(group, {6, 11}, job);
      spec->mutable_layout()->set_kind(v1::MATRIX_LAYOUT_KIND_SPLIT_COLS);
      for (uint64_t size : {3, 8}) spec->mutable_layout()->add_sizes(size);
  }
}

v1::JobDefinition MakeJob(Random& random) {
  v1::JobDefinition job;
  job.set_name("gpt2");
  job.set_world_size(2);
  job.set_max_grad_norm(1);
  for (const char* name : {"muon", "polar"}) {
    AddGroup(name, v1::RULE_MUON, random, &job);
    AddMatrices(name, random, &job);
  }
  const std::pair<const char*, v1::Rule> element_wise[] = {
      {"adamw", v1::RULE_ADAMW}, {"sgd", v1::RULE_SGD}, {"lion", v1::RULE_LION}};
  for (const auto& [name, rule] : element_wise) {
    AddGroup(name, rule, random, &job);
    AddParameter(name, {static_cast<uint64_t>(1 + random.Below(70))}, &job);
    // More than one chunk, and a tail.
    AddParameter(name, {1000, 3}, &job);
  }
  v1::ParameterSpec* frozen = AddParameter("", {5}, &job);
  frozen->set_frozen(true);
  job.set_matrix_group("muon");
  job.set_scalar_group("adamw");
  return job;
}

// Read again from memory.
uint64_t StateDigestIn(DrivenShard& shard) {
  ShardCore& core = shard.core();
  uint64_t digest = 0;
  for (const StoredParameter& parameter : core.parameters()->parameters()) {
    if (core.machine().weights_loaded()) {
      digest += kernels::TensorDigest(parameter.id, kernels::kWeightSlot,
                                      shard.memory().Floats(WeightsOf(parameter)));
    }
    for (uint32_t k = 0; k < parameter.state_slots.size(); ++k) {
      std::vector<std::byte> bytes = shard.memory().Bytes(SlotOf(parameter, k));
      bytes.resize((bytes.size() + 3) / 4 * 4);
      digest += kernels::TensorDigest(
          parameter.id, k + 1, kernels::ConstRegion(absl::MakeConstSpan(bytes)).host_floats());
    }
    digest += kernels::FactDigest(parameter.id, kernels::kUpdatesSlot, parameter.updates_applied);
  }
  return digest;
}

// Several shards in lockstep; every parameter on the shard of its id modulo their number.
class Shards {
 public:
  Shards(const v1::JobDefinition& job, uint32_t num_shards) : registration_(*job::Resolve(job)) {
    registration_.mutable_placement()->set_num_shards(num_shards);
    for (v1::ParameterPlacement& row : *registration_.mutable_placement()->mutable_parameters()) {
      row.set_shard(row.parameter_id() % num_shards);
    }
    for (uint32_t i = 0; i < num_shards; ++i) {
      shards_.push_back(std::make_unique<DrivenShard>(uint64_t{1} << 20));
      shards_.back()->PlaceAs(i, num_shards);
      shards_.back()->Promise(1);
    }
    v1::StepPlan plan = RegistrationPlan(1, 1);
    *plan.mutable_registration() = registration_;
    Enter(plan, {});
    Enter(LoadPlan(1, 1), Gradients(/*step=*/0, {}));
  }

  // Returns a rank's gradients by parameter; no rank has those in `missing`.
  std::map<uint32_t, std::vector<float>> Gradients(uint64_t step,
                                                   const std::vector<bool>& missing) {
    std::map<uint32_t, std::vector<float>> gradients;
    const v1::JobDefinition& job = registration_.definition();
    for (int id = 0; id < job.parameters_size(); ++id) {
      if (step > 0 && job.parameters(id).frozen()) continue;
      std::vector<float>& values = gradients[id];
      if (!missing.empty() && missing[id]) continue;
      values = reference::GaussianVector(static_cast<int>(job::NumElements(job.parameters(id))),
                                         100 * step + id);
    }
    return gradients;
  }

  void Train(std::map<uint32_t, std::vector<float>> gradients) {
    v1::StepPlan plan = TrainPlan(++step_, 1, 1);
    plan.mutable_step()->clear_rates();
    job::AddRates(registration_.definition(), record_.decision().applied_updates(), {},
                  *plan.mutable_step());
    Enter(plan, gradients);
  }

  void ChangeGroup(int group, double lr) {
    v1::StepPlan plan = GroupChangePlan(position_ + 1, lr, 1, 1);
    v1::GroupSetting setting;
    setting.set_field("lr");
    setting.set_value(absl::StrCat(lr));
    *plan.mutable_group_change() = *job::MakeGroupChange(
        registration_, registration_.definition().groups(group).name(), {setting}, position_ + 1);
    Enter(plan, {});
  }

  // Digests of the whole job before each entry.
  const std::vector<uint64_t>& recorded() const { return recorded_; }
  const v1::StepRecord& record() const { return record_; }

 private:
  void Enter(v1::StepPlan plan, const std::map<uint32_t, std::vector<float>>& gradients) {
    plan.set_position(++position_);
    plan.set_config_revision(revision_);
    std::vector<v1::Prepared> votes;
    uint64_t found = 0;
    for (auto& shard : shards_) {
      std::vector<v1::ShardToCoordinator> answers = shard->Plan(plan);
      if (plan.has_step()) answers = Push(plan.step(), gradients, *shard);
      ASSERT_EQ(answers.size(), 1u);
      ASSERT_TRUE(answers[0].has_prepared()) << answers[0].ShortDebugString();
      votes.push_back(answers[0].prepared());
      if (position_ > 1) found += StateDigestIn(*shard);
    }
    const v1::StepRecord before = record_;
    *record_.mutable_plan() = plan;
    *record_.mutable_decision() =
        job::Decide(registration_, plan, votes, position_ > 1 ? &before : nullptr);
    recorded_.push_back(record_.decision().state_digest());
    EXPECT_EQ(recorded_.back(), found) << "position " << position_;
    if (!plan.has_step()) revision_ = position_;
    if (plan.has_group_change()) job::ApplyGroupChange(plan.group_change(), registration_);
    for (auto& shard : shards_) {
      shard->Decide(record_);
      EXPECT_EQ(shard->core().machine().applied_position(), position_);
      EXPECT_EQ(shard->core().machine().state_digest(), StateDigestIn(*shard))
          << "position " << position_;
    }
  }

  std::vector<v1::ShardToCoordinator> Push(const v1::StepBody& step,
                                           const std::map<uint32_t, std::vector<float>>& gradients,
                                           DrivenShard& shard) {
    std::map<uint32_t, std::vector<float>> of_shard;
    for (const StoredParameter& parameter : shard.core().parameters()->parameters()) {
      const auto found = gradients.find(parameter.id);
      if (found != gradients.end()) of_shard.insert(*found);
    }
    for (const v1::Member& member : step.members()) {
      const absl::Status status = shard.PushParameters(member.rank(), step.step(), of_shard);
      EXPECT_TRUE(status.ok()) << status;
    }
    return shard.Pump();
  }

  v1::RegisterBody registration_;
  std::vector<std::unique_ptr<DrivenShard>> shards_;
  uint64_t position_ = 0;
  uint64_t revision_ = 0;
  uint64_t step_ = 0;
  v1::StepRecord record_;
  std::vector<uint64_t> recorded_;
};

struct Counts {
  int skips = 0;
  int missing = 0;
  int changes = 0;
};

// Makes the same entries for the same seed, for any number of shards.
std::vector<uint64_t> Live(uint64_t seed, uint32_t num_shards, Counts* counts) {
  Random random(seed);
  const v1::JobDefinition job = MakeJob(random);
  Shards shards(job, num_shards);
  for (int entry = 1; entry <= kEntries; ++entry) {
    if (random.OneIn(4)) {
      shards.ChangeGroup(random.Below(job.groups_size()), 0.01 * (1 + random.Below(9)));
      ++counts->changes;
      continue;
    }
    std::vector<bool> missing(job.parameters_size());
    for (size_t id = 0; id < missing.size(); ++id) {
      missing[id] = random.OneIn(6);
      counts->missing += missing[id] ? 1 : 0;
    }
    std::map<uint32_t, std::vector<float>> gradients =
        shards.Gradients(static_cast<uint64_t>(entry), missing);
    if (random.OneIn(5)) {
      missing[2] = false;
      gradients[2] = shards.Gradients(static_cast<uint64_t>(entry), missing)[2];
      gradients[2][1] = std::numeric_limits<float>::quiet_NaN();
    }
    shards.Train(gradients);
    if (shards.record().decision().outcome() == v1::OUTCOME_SKIP) {
      ++counts->skips;
      // Edge 10: the next entry has the digest after this one; Enter compares both with the memory.
    }
  }
  return shards.recorded();
}

// The running digest equals that of the memory (P4), and does not depend on the number of shards
// ([P2]).
TEST(RunningDigestTest, IsThatOfTheMemoryAndTheSameForAnyNumberOfShards) {
  Counts counts;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(seed);
    const std::vector<uint64_t> alone = Live(seed, 1, &counts);
    ASSERT_EQ(alone.size(), 2u + kEntries);
    for (const uint32_t num_shards : {2, 3, 7}) {
      EXPECT_EQ(Live(seed, num_shards, &counts), alone) << num_shards;
    }
  }
  // Otherwise this shows little.
  EXPECT_GT(counts.skips, 20);
  EXPECT_GT(counts.missing, 100);
  EXPECT_GT(counts.changes, 20);
}

}  // namespace
}  // namespace kaon::shard
