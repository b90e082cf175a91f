#include "server/admin_cli/parameter_command.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

namespace kaon::admin_cli {
namespace {

v1::ParameterPlacement Placement() {
  v1::ParameterPlacement placement;
  placement.set_parameter_id(3);
  placement.set_group("muon");
  placement.set_shard(1);
  return placement;
}

NamedStats Stats() {
  NamedStats stats;
  stats.name = "h.weight";
  *stats.answer.mutable_placement() = Placement();
  stats.answer.mutable_stats()->set_weight_norm(2.5);
  stats.answer.mutable_stats()->set_grad_zeros(5);
  stats.answer.mutable_stats()->set_update_norm(0.5);
  stats.answer.mutable_stats()->set_newton_schulz_updates(7);
  return stats;
}

NamedDiagnostics Diagnostics() {
  NamedDiagnostics diagnostics;
  diagnostics.name = "h.weight";
  *diagnostics.answer.mutable_placement() = Placement();
  diagnostics.answer.mutable_diagnostics()->set_rule("muon");
  diagnostics.answer.mutable_diagnostics()->set_backend("cpu/onednn");
  for (const char* name : {"gradient", "momentum_buffer"}) {
    v1::StoredTensor* tensor = diagnostics.answer.mutable_diagnostics()->add_tensors();
    tensor->set_name(name);
    tensor->add_shape(2);
    tensor->add_shape(3);
    tensor->set_bytes(24);
    tensor->set_tier("cpu");
  }
  diagnostics.answer.mutable_diagnostics()->mutable_tensors(1)->set_dtype("int8");
  diagnostics.answer.mutable_diagnostics()->mutable_tensors(1)->set_first_used_step(4);
  return diagnostics;
}

TEST(ParameterCommandTest, StatsHaveTheDocumentedKeysInOrder) {
  EXPECT_EQ(ParameterStatsJson(Stats()).dump(),
            R"({"parameter_id":3,"name":"h.weight","group":"muon","shard":1,"weight_norm":2.5,)"
            R"("grad_norm":null,"grad_zeros":5,"update_norm":0.5,"update_to_weight_ratio":null,)"
            R"("momentum_norm":null,"orthogonality_error":null,"updates_applied":0,)"
            R"("newton_schulz_updates":7,"non_finite_steps":0,"non_finite_elements":0})");
}

TEST(ParameterCommandTest, StatsTableShowsADashForWhatThereIsNot) {
  const std::string text = ParameterStatsText(Stats());
  EXPECT_EQ(text.rfind("parameter h.weight (id 3, group muon, shard 1)\nSTATISTIC", 0), 0u) << text;
  EXPECT_NE(text.find("weight_norm               2.5\n"), std::string::npos) << text;
  EXPECT_NE(text.find("grad_norm                   -\n"), std::string::npos) << text;
}

TEST(ParameterCommandTest, DiagnosticsHaveTheDocumentedKeysInOrder) {
  EXPECT_EQ(ParameterDiagnosticsJson(Diagnostics()).dump(),
            R"({"parameter_id":3,"name":"h.weight","group":"muon","shard":1,"rule":"muon",)"
            R"("backend":"cpu/onednn","tensors":[{"name":"gradient","dtype":"","shape":[2,3],)"
            R"("bytes":24,"tier":"cpu","first_used_step":0},{"name":"momentum_buffer",)"
            R"("dtype":"int8","shape":[2,3],"bytes":24,"tier":"cpu","first_used_step":4}]})");
}

TEST(ParameterCommandTest, DiagnosticsTableHasARowForEachTensor) {
  EXPECT_EQ(ParameterDiagnosticsText(Diagnostics()),
            "parameter h.weight (id 3, group muon, shard 1)\n"
            "rule muon, backend cpu/onednn\n"
            "TENSOR           DTYPE  SHAPE  BYTES  TIER  FIRST USED\n"
            "gradient         -      2x3     24 B  cpu            -\n"
            "momentum_buffer  int8   2x3     24 B  cpu       step 4\n");
}

TEST(ParameterCommandTest, HistoriesHaveOneRowForEachSample) {
  NamedHistory history = {"h.weight", {}};
  *history.answer.mutable_placement() = Placement();
  history.answer.mutable_history()->set_every_steps(20);
  v1::ParameterSample& sample = *history.answer.mutable_history()->add_samples();
  sample.set_step(9);
  sample.set_weight_norm(2.5);
  sample.set_stable_rank(3);
  EXPECT_EQ(ParameterHistoryJson(history).dump(),
            R"({"parameter_id":3,"name":"h.weight","group":"muon","shard":1,"every_steps":20,)"
            R"("samples":[{"step":9,"weight_norm":2.5,"grad_norm":null,"update_norm":null,)"
            R"("update_to_weight_ratio":null,"orthogonality_error":null,"stable_rank":3.0}]})");
  EXPECT_EQ(
      ParameterHistoryText(history),
      "parameter h.weight (id 3, group muon, shard 1)\n"
      "a sample every 20 steps or more, since the shard started\n"
      "STEP  WEIGHT NORM  GRAD NORM  UPDATE NORM  UPDATE/WEIGHT  ORTHOGONALITY  STABLE RANK\n"
      "   9          2.5          -            -              -              -            3\n");
}

TEST(ParameterCommandTest, SlicesShowEveryValueWithItsIndex) {
  NamedSlice slice = {"h.weight", "exp_avg", 4, {}};
  *slice.answer.mutable_placement() = Placement();
  v1::TensorSlice& read = *slice.answer.mutable_slice();
  read.set_step(9);
  read.add_shape(2);
  read.add_shape(3);
  read.set_crc32c(0xab);
  const float values[] = {0.1F, NAN};
  read.set_values(std::string(reinterpret_cast<const char*>(values), sizeof(values)));
  EXPECT_EQ(ParameterSliceJson(slice).dump(),
            R"({"parameter_id":3,"name":"h.weight","group":"muon","shard":1,"tensor":"exp_avg",)"
            R"("step":9,"shape":[2,3],"offset":4,"values":[0.10000000149011612,null],)"
            R"("crc32c":"000000ab"})");
  EXPECT_EQ(ParameterSliceText(slice),
            "parameter h.weight (id 3, group muon, shard 1)\n"
            "exp_avg of 2x3 after step 9\n"
            "INDEX        VALUE\n"
            "    4  0.100000001\n"
            "    5          nan\n");
}

}  // namespace
}  // namespace kaon::admin_cli
