#include "server/coordinator/service/request_lookup.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <vector>

namespace kaon::coordinator {
namespace {

// Control entries at positions 1, 3, 6 and 8; the requests of the last three were 30, 60 and 80.
class RequestLookupTest : public ::testing::Test {
 protected:
  RequestLookupTest() {
    uint64_t before = 0;
    for (uint64_t position : {1, 3, 6, 8}) {
      v1::StepPlan& plan = *records_[position].mutable_plan();
      plan.set_position(position);
      plan.set_config_revision(before);
      before = position;
    }
    records_[1].mutable_plan()->mutable_registration();
    records_[3].mutable_plan()->mutable_group_change()->set_request_id(30);
    records_[6].mutable_plan()->mutable_restore()->set_request_id(60);
    records_[8].mutable_plan()->mutable_group_change()->set_request_id(80);
  }

  // Returns the position of the entry that was found.
  absl::StatusOr<uint64_t> Find(uint64_t request_id, uint64_t after = 0) {
    RequestLookup::Query query;
    query.request_id = request_id;
    query.newest = newest_;
    query.after = after;
    query.num_shards = 2;
    std::optional<absl::StatusOr<uint64_t>> found;
    asked_.clear();
    RequestLookup::Start(
        query,
        [this](int shard, uint64_t position, const auto& answer) {
          asked_.push_back(position);
          if (away_.count(shard) > 0) return answer(absl::UnavailableError("away"));
          v1::ReadHistoryResponse response;
          const auto record = records_.lower_bound(std::max(position, keeps_from_[shard]));
          if (record != records_.end()) *response.add_records() = record->second;
          answer(response);
        },
        [&found](const absl::StatusOr<v1::StepRecord>& record) {
          EXPECT_FALSE(found.has_value());
          if (record.ok()) {
            found = record->plan().position();
          } else {
            found = record.status();
          }
        });
    return found.value();
  }

  std::map<uint64_t, v1::StepRecord> records_;
  std::set<int> away_;
  std::map<int, uint64_t> keeps_from_;
  uint64_t newest_ = 8;
  std::vector<uint64_t> asked_;
};

TEST_F(RequestLookupTest, GoesBackFromEntryToEntry) {
  EXPECT_EQ(*Find(80), 8u);
  EXPECT_EQ(asked_, std::vector<uint64_t>{8});
  EXPECT_EQ(*Find(60), 6u);
  EXPECT_EQ(*Find(30), 3u);
  EXPECT_EQ(asked_, (std::vector<uint64_t>{8, 6, 3}));
  EXPECT_EQ(Find(90).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(asked_, (std::vector<uint64_t>{8, 6, 3, 1}));
}

TEST_F(RequestLookupTest, LooksAtNothingTheRequestCannotHaveLedTo) {
  EXPECT_EQ(Find(30, 3).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(asked_, (std::vector<uint64_t>{8, 6}));
  EXPECT_EQ(*Find(60, 3), 6u);
}

TEST_F(RequestLookupTest, EndsWhereTheHistoryDoes) {
  records_.erase(3);
  records_.erase(1);
  EXPECT_EQ(Find(30).status().message(), "the record of position 3 is not kept any more");
  away_ = {1};
  EXPECT_EQ(Find(30).status().code(), absl::StatusCode::kUnavailable);
}

// A shard that restarted after a truncation keeps fewer records than the others.
TEST_F(RequestLookupTest, AsksAnotherShardWhereOneDoesNotKeepTheRecordAnyMore) {
  keeps_from_[0] = 5;
  EXPECT_EQ(*Find(30), 3u);
  keeps_from_[1] = 5;
  EXPECT_EQ(Find(30).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(RequestLookupTest, AsksAnotherShardWhereOneIsAwayOrBehind) {
  away_ = {0};
  EXPECT_EQ(*Find(30), 3u);
  away_ = {0, 1};
  EXPECT_EQ(Find(30).status().code(), absl::StatusCode::kUnavailable);
  away_ = {};
  records_.erase(8);
  EXPECT_EQ(Find(30).status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(RequestLookupTest, LooksAtSoManyEntriesAtMost) {
  for (uint64_t position = 1; position <= 200; ++position) {
    v1::StepPlan& plan = *records_[position].mutable_plan();
    plan.Clear();
    plan.set_position(position);
    plan.set_config_revision(position - 1);
  }
  newest_ = 200;
  EXPECT_EQ(Find(7).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(asked_.size(), static_cast<size_t>(RequestLookup::kMaxEntries));
}

}  // namespace
}  // namespace kaon::coordinator
