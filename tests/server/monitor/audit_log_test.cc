#include "server/monitor/audit_log.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "server/monitor/event_counts.h"

namespace kaon::monitor {
namespace {

class AuditLogTest : public ::testing::Test {
 protected:
  AuditLogTest() {
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directory(directory_);
  }

  std::vector<nlohmann::json> Lines(const std::string& path) const {
    std::vector<nlohmann::json> lines;
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }

  const std::string directory_ = ::testing::TempDir() + "/audit";
  const std::string path_ = directory_ + "/audit.log";
  const absl::Time now_ = absl::UnixEpoch();
};

TEST_F(AuditLogTest, RecordsActsAndRefusalsWithTheirCallers) {
  EventCounts counts;
  auto log = *AuditLog::Open(path_);
  counts.set_audit(log.get());
  NoteAdminAct(counts, "spiffe://d/kaon/admin", "delete of job gpt", absl::OkStatus());
  NoteUnauthorized(counts, "spiffe://d/kaon/worker \xff\n", absl::PermissionDeniedError("role"));
  log.reset();
  const auto lines = Lines(path_);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0]["kind"], "act");
  EXPECT_EQ(lines[0]["peer"], "spiffe://d/kaon/admin");
  EXPECT_EQ(lines[0]["act"], "delete of job gpt");
  EXPECT_EQ(lines[0]["code"], "OK");
  EXPECT_EQ(lines[1]["kind"], "refusal");
  EXPECT_EQ(lines[1]["code"], "PERMISSION_DENIED");
  EXPECT_EQ(lines[1]["reason"], "role");
  struct stat facts;
  ASSERT_EQ(stat(path_.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0600u);
}

TEST_F(AuditLogTest, AFloodOfRefusalsLeavesRoomForActs) {
  auto log = *AuditLog::Open(path_, {.refusals_per_second = 2});
  for (int i = 0; i < 1000; ++i) log->Refusal("flood", absl::PermissionDeniedError("no"), now_);
  log->Act("admin", "drain", absl::OkStatus(), now_);
  log->Refusal("flood", absl::PermissionDeniedError("no"), now_ + absl::Seconds(1));
  log.reset();
  const auto lines = Lines(path_);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[2]["act"], "drain");
  EXPECT_EQ(lines[2]["left_out"], 998);
  EXPECT_FALSE(lines[3].contains("left_out"));
}

TEST_F(AuditLogTest, KeepsSoManyFilesOfBoundedSizeAndAppendsAfterARestart) {
  const AuditLog::Limits limits{.file_bytes = 1000, .old_files = 2};
  const int kActs = 100;
  for (int i = 0; i < kActs; ++i) {
    const auto log = *AuditLog::Open(path_, limits);
    log->Act("admin", std::to_string(i), absl::OkStatus(), now_);
  }
  std::vector<nlohmann::json> lines;
  for (const char* suffix : {".2", ".1", ""}) {
    EXPECT_LE(std::filesystem::file_size(path_ + suffix), 1000u);
    for (const auto& line : Lines(path_ + suffix)) lines.push_back(line);
  }
  EXPECT_FALSE(std::filesystem::exists(path_ + ".3"));
  // The newest ones, without a hole.
  ASSERT_GT(lines.size(), 20u);
  for (size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i]["act"], std::to_string(kActs - lines.size() + i));
  }
}

TEST_F(AuditLogTest, GoesOnAfterAnotherProgramMovedTheFile) {
  for (const char* act : {"first", "second"}) {
    auto log = *AuditLog::Open(path_, {.file_bytes = 1});
    log->Act("admin", act, absl::OkStatus(), now_);
  }
  auto log = *AuditLog::Open(path_);
  std::filesystem::remove(path_);
  log->Act("admin", "third", absl::OkStatus(), now_);
  log.reset();
  EXPECT_EQ(Lines(path_ + ".1")[0]["act"], "first");
  ASSERT_EQ(Lines(path_).size(), 1u);
  EXPECT_EQ(Lines(path_)[0]["act"], "third");
  // logrotate makes a new file at once.
  log = *AuditLog::Open(path_);
  std::filesystem::rename(path_, path_ + ".moved");
  std::ofstream(path_).close();
  log->Act("admin", "fourth", absl::OkStatus(), now_);
  log.reset();
  ASSERT_EQ(Lines(path_).size(), 1u);
  EXPECT_EQ(Lines(path_)[0]["act"], "fourth");
}

TEST_F(AuditLogTest, LosesNoLineIfItCannotRotate) {
  const AuditLog::Limits limits{.file_bytes = 1, .old_files = 2};
  // No file can have the name of a directory.
  std::filesystem::create_directory(path_ + ".2");
  auto log = *AuditLog::Open(path_, limits);
  for (const char* act : {"first", "second", "third", "fourth"}) {
    log->Act("admin", act, absl::OkStatus(), now_);
  }
  log.reset();
  ASSERT_EQ(Lines(path_ + ".1").size(), 1u);
  EXPECT_EQ(Lines(path_ + ".1")[0]["act"], "first");
  ASSERT_EQ(Lines(path_).size(), 3u);
  EXPECT_EQ(Lines(path_)[2]["act"], "fourth");
  std::filesystem::remove(path_ + ".2");
  log = *AuditLog::Open(path_, limits);
  log->Act("admin", "fifth", absl::OkStatus(), now_);
  log.reset();
  EXPECT_EQ(Lines(path_ + ".2").size(), 1u);
  EXPECT_EQ(Lines(path_ + ".1").size(), 3u);
  EXPECT_EQ(Lines(path_)[0]["act"], "fifth");
}

TEST_F(AuditLogTest, GoesOnInTheMovedFileUntilItCanOpenAnother) {
  auto log = *AuditLog::Open(path_);
  std::filesystem::rename(path_, path_ + ".moved");
  std::filesystem::create_directory(path_);
  log->Act("admin", "first", absl::OkStatus(), now_);
  log.reset();
  ASSERT_EQ(Lines(path_ + ".moved").size(), 1u);
  EXPECT_EQ(Lines(path_ + ".moved")[0]["act"], "first");
}

TEST_F(AuditLogTest, NamesAFileThatItCannotWrite) {
  for (const std::string& path : {directory_, directory_ + "/absent/audit.log"}) {
    const absl::Status status = AuditLog::Open(path).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(status.message().find("audit_file '" + path + "' cannot be written: "), 0u) << status;
  }
}

}  // namespace
}  // namespace kaon::monitor
