#include "server/coordinator/cluster_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/coordinator/machine/registration.h"
#include "tests/server/coordinator/machine/test_job.h"

namespace kaon::coordinator {
namespace {

using ::testing::HasSubstr;

bool Any(const std::string&) { return true; }

class ClusterViewTest : public ::testing::Test {
 protected:
  ClusterViewTest() {
    view_.addresses = {"s:0", "s:1"};
    for (int i = 0; i < 2; ++i) {
      v1::DescribeShardResponse shard;
      shard.mutable_state()->set_applied_position(7 + i);
      shard.mutable_state()->set_applied_step(5 + i);
      *shard.mutable_state()->mutable_registration() = *MakeRegistration(TestJob(), {2, 0});
      for (const auto& row : shard.state().registration().placement().parameters()) {
        if (row.shard() == i) shard.add_parameters()->set_parameter_id(row.parameter_id());
      }
      view_.shards.push_back(shard);
    }
  }

  ClusterView view_;
};

TEST_F(ClusterViewTest, JobIsTheNewestShardsView) {
  EXPECT_EQ(view_.Newest(), 1);
  EXPECT_EQ(view_.DescribeJob("")->applied_step(), 6);
  view_.shards[1] = absl::UnavailableError("down");
  EXPECT_EQ(view_.DescribeJob("tiny")->applied_step(), 5);
}

// The newest shard has applied the deletion, the other one not yet.
TEST_F(ClusterViewTest, ADeletedJobIsNotDescribed) {
  view_.shards[1]->mutable_state()->clear_registration();
  EXPECT_EQ(view_.DescribeJob("tiny").status().code(), absl::StatusCode::kNotFound);
  view_.shards[0] = absl::UnavailableError("down");
  EXPECT_EQ(view_.DescribeJob("").status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(ClusterViewTest, AShardWithAFullDiskDoesNotVote) {
  view_.shards[1]->mutable_journal()->set_read_only_reason("/data/journal-1: No space left");
  EXPECT_TRUE(view_.CheckVotes(0).ok());
  EXPECT_EQ(view_.CheckVotes(1),
            absl::ResourceExhaustedError("shard 1: /data/journal-1: No space left"));
  view_.shards[1] = absl::UnavailableError("down");
  EXPECT_TRUE(view_.CheckVotes(1).ok());
  EXPECT_TRUE(view_.CheckVotes(9).ok());
}

TEST_F(ClusterViewTest, JobSaysWhatWasAskedForAndWhatChangedSince) {
  v1::ShardState& state = *view_.shards[1]->mutable_state();
  state.set_config_revision(4);
  state.mutable_registration()->add_changed()->set_field("lr");
  const v1::JobDescription job = *view_.DescribeJob("");
  EXPECT_EQ(job.config_revision(), 4u);
  EXPECT_EQ(job.changed(0).field(), "lr");
  EXPECT_FALSE(job.requested().groups(0).has_weight_decay());
  EXPECT_TRUE(job.definition().groups(0).has_weight_decay());
}

// Section 2: an admin sees route, layout, blocks and scale of every parameter.
TEST_F(ClusterViewTest, RowsOfMuonListTheMatricesItStepsAndTheirScale) {
  v1::JobDefinition definition = TestJob();
  v1::MatrixLayout& layout = *definition.mutable_parameters(0)->mutable_layout();
  layout.set_kind(v1::MATRIX_LAYOUT_KIND_SPLIT_ROWS);
  for (uint64_t rows : {4, 2, 2}) layout.add_sizes(rows);
  definition.mutable_groups(0)->mutable_muon()->set_scale(v1::UPDATE_SCALE_MAX_DIM);
  *view_.shards[1]->mutable_state()->mutable_registration() = *MakeRegistration(definition, {2, 0});
  uint32_t next = 0;
  const std::vector<v1::ParameterRow> rows = view_.Rows(*view_.DescribeJob(""), 0, 9, Any, &next);
  ASSERT_EQ(rows[0].blocks_size(), 2);
  EXPECT_EQ(rows[0].blocks(0).rows(), 4u);
  EXPECT_EQ(rows[0].blocks(0).scale(), 2);
  EXPECT_EQ(rows[0].blocks(1).rows(), 2u);
  EXPECT_EQ(rows[0].blocks(1).cols(), 4u);
  EXPECT_EQ(rows[0].blocks(1).count(), 2u);
  EXPECT_EQ(rows[1].blocks_size(), 0);
}

TEST_F(ClusterViewTest, JobOfAnotherNameIsNotFoundNamingBoth) {
  EXPECT_EQ(view_.DescribeJob("x").status().message(), "job \"x\": the job here is \"tiny\"");
}

TEST_F(ClusterViewTest, NothingIsNotFoundOnlyIfEveryShardSaysSo) {
  view_.shards[0] = v1::DescribeShardResponse();
  view_.shards[1] = v1::DescribeShardResponse();
  EXPECT_EQ(view_.DescribeJob("").status().code(), absl::StatusCode::kNotFound);
  view_.shards[1] = absl::UnavailableError("down");
  EXPECT_EQ(view_.DescribeJob("").status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(view_.DescribeJob("").status().message(), HasSubstr("shard 1 at s:1"));
}

TEST_F(ClusterViewTest, LostStateIsTheStopReason) {
  view_.shards[0]->mutable_state()->set_data_loss("marker without state");
  EXPECT_EQ(view_.DescribeJob("")->stopped_reason(), "DATA_LOSS: shard 0: marker without state");
}

TEST_F(ClusterViewTest, RowsOfAShardThatIsDownHaveNoState) {
  view_.shards[0] = absl::UnavailableError("down");
  const v1::JobDescription job = *view_.DescribeJob("");
  uint32_t next = 0;
  for (const v1::ParameterRow& row : view_.Rows(job, 0, 100, Any, &next)) {
    EXPECT_EQ(row.has_state(), row.placement().shard() == 1) << row.spec().name();
  }
  EXPECT_EQ(next, 5);
}

TEST_F(ClusterViewTest, RowsStopAtTheLimitAndSayWhereToGoOn) {
  const v1::JobDescription job = *view_.DescribeJob("");
  uint32_t next = 0;
  EXPECT_EQ(view_.Rows(job, 1, 2, Any, &next).size(), 2);
  EXPECT_EQ(next, 3);
  const auto biases = [](const std::string& name) { return name.back() == 'b'; };
  EXPECT_EQ(view_.Rows(job, 0, 1, biases, &next).front().spec().name(), "layer0.b");
  EXPECT_EQ(next, 2);
}

}  // namespace
}  // namespace kaon::coordinator
