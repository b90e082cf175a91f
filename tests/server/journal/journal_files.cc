#include "tests/server/journal/journal_files.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/crc32c.h"

namespace kaon::journal {

PromiseRecord Promise(uint64_t counter) {
  PromiseRecord promise;
  promise.ballot.set_counter(counter);
  promise.ballot.set_incarnation_high(0x123456789abcdef0 + counter);
  promise.ballot.set_incarnation_low(~counter);
  promise.shard = 1;
  promise.num_shards = 3;
  return promise;
}

PrepareRecord Prepare(uint64_t position, uint64_t generation) {
  v1::StepPlan plan;
  plan.set_job("job");
  plan.set_timeline(1);
  plan.set_position(position);
  plan.mutable_step()->set_step(position);
  PrepareRecord prepare;
  prepare.generation = generation;
  prepare.prepared.set_plan(plan.SerializeAsString());
  prepare.prepared.set_gradient_digest(position * 77);
  return prepare;
}

DecisionRecord Decision(uint64_t position) {
  DecisionRecord decision;
  decision.record.mutable_plan()->set_timeline(1);
  decision.record.mutable_plan()->set_position(position);
  decision.record.mutable_decision()->set_grad_norm(static_cast<double>(position) / 3);
  return decision;
}

GradientSlice Slice(uint64_t position, uint64_t generation, uint32_t parameter_id,
                    const std::vector<float>& values) {
  return {position, generation, parameter_id, 0, values};
}

std::string Describe(const Entry& entry) {
  if (const auto* promise = std::get_if<PromiseRecord>(&entry)) {
    return absl::StrCat("promise ", promise->ballot.ShortDebugString(), " ", promise->shard, "/",
                        promise->num_shards);
  }
  if (const auto* prepare = std::get_if<PrepareRecord>(&entry)) {
    return absl::StrCat("prepare ", prepare->generation, " ", prepare->prepared.ShortDebugString());
  }
  if (const auto* decision = std::get_if<DecisionRecord>(&entry)) {
    return absl::StrCat("decision ", decision->record.ShortDebugString());
  }
  const auto& slice = std::get<GradientSlice>(entry);
  const size_t size = slice.values.size() * sizeof(float);
  return absl::StrCat("gradient ", slice.position, " ", slice.generation, " ", slice.parameter_id,
                      " ", slice.offset, ": ", slice.values.size(), " values with CRC ",
                      proto::Crc32c(slice.values.data(), size));
}

std::unique_ptr<disk::PosixDirectory> TemporaryDirectory() {
  std::string path = testing::TempDir() + "/journal-XXXXXX";
  EXPECT_NE(mkdtemp(path.data()), nullptr);
  return std::move(disk::PosixDirectory::At(path)).value();
}

absl::StatusOr<std::unique_ptr<JournalLog>> OpenLog(disk::Directory& directory,
                                                    std::vector<std::string>* found,
                                                    uint64_t segment_bytes, History* history) {
  found->clear();
  JournalLog::Options options;
  options.segment_bytes = segment_bytes;
  options.history = history;
  options.snapshot_position = std::nullopt;
  options.id_if_created = {0x0123456789abcdef, 0xfedcba9876543210};
  return JournalLog::Open(directory, options, [found](const Entry& entry) {
    found->push_back(Describe(entry));
    return absl::OkStatus();
  });
}

std::vector<uint64_t> PositionsIn(History& history) {
  std::vector<uint64_t> positions;
  const std::vector<v1::StepRecord> records = history.Read(0, kMaxHistory).value();
  for (const v1::StepRecord& record : records) {
    positions.push_back(record.plan().position());
    EXPECT_EQ(Describe(DecisionRecord{record}), Describe(Decision(positions.back())));
  }
  return positions;
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void WriteFile(const std::string& path, const std::string& contents) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << contents;
  file.close();
  EXPECT_TRUE(file.good()) << path;
}

}  // namespace kaon::journal
