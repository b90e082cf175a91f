#include "server/monitor/event_counts.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/testing/captured_log.h"

namespace kaon::monitor {
namespace {

std::string Text(const EventCounts& counts) {
  std::string text;
  for (const v1::EventCount& one : counts.Happened()) {
    absl::StrAppend(&text, one.name(), "=", one.count(), " ");
  }
  return text;
}

TEST(EventCountsTest, ShowsWhatHappenedByNameAndNothingElse) {
  EventCounts counts;
  EXPECT_EQ(Text(counts), "");
  counts.Add(Event::kTakeover);
  counts.Add(Event::kPushRefused, absl::StatusCode::kInvalidArgument);
  counts.Add(Event::kPushRefused, absl::StatusCode::kUnauthenticated);
  counts.Add(Event::kPushRefused, absl::StatusCode::kInvalidArgument);
  counts.Add(Event::kControlRefused, v1::REFUSAL_REASON_OLD_BALLOT);
  counts.Add(Event::kAdminAct);
  EXPECT_EQ(Text(counts),
            "admin_act=1 control_refused.old_ballot=1 push_refused.invalid_argument=2 "
            "push_refused.unauthenticated=1 takeover=1 ");
}

TEST(EventCountsTest, CountsBytesApartFromEvents) {
  EventCounts counts;
  counts.AddBytes(Transfer::kPushed, 3);
  counts.AddBytes(Transfer::kPushed, 4);
  counts.AddBytes(Transfer::kPulled, 5);
  EXPECT_EQ(counts.bytes(Transfer::kPushed), 7u);
  EXPECT_EQ(counts.bytes(Transfer::kPulled), 5u);
  EXPECT_EQ(Text(counts), "");
}

TEST(EventCountsTest, NamesAreOfLowerCaseLetters) {
  EventCounts counts;
#define KAON_EVENT_OF(enumerator, name, apart) counts.Add(Event::enumerator);
  KAON_EVENTS(KAON_EVENT_OF)
#undef KAON_EVENT_OF
  for (const v1::EventCount& one : counts.Happened()) {
    EXPECT_EQ(one.name().find_first_not_of("abcdefghijklmnopqrstuvwxyz_."), std::string::npos)
        << one.name();
    EXPECT_LE(one.name().size(), 64u);
  }
}

TEST(EventCountsTest, AnyThreadMayAdd) {
  EventCounts counts;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&counts] {
      for (int j = 0; j < 1000; ++j) counts.Add(Event::kPromise);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Text(counts), "promise=4000 ");
}

TEST(EventCountsTest, CountsEveryRefusalHoweverFewAreLogged) {
  EventCounts counts;
  for (int i = 0; i < 5; ++i) NoteUnauthorized(counts, "x", absl::PermissionDeniedError("no"));
  NoteAdminAct(counts, "x", "group set", absl::OkStatus());
  NoteAdminAct(counts, "x", "group set", absl::AbortedError("stale"));
  EXPECT_EQ(Text(counts), "admin_act=1 admin_refused.aborted=1 call_unauthorized=5 ");
}

TEST(EventCountsTest, CallsThatWereAnsweredOrGivenUpAreNoRefusals) {
  EventCounts counts;
  NoteEnd(counts, "x", "GetJob", absl::OkStatus());
  NoteEnd(counts, "x", "GetJob", absl::CancelledError("gone"));
  EXPECT_EQ(Text(counts), "");
}

// Each log statement of a refusal runs at most once a second, so this tests their common part
// alone.
TEST(EventCountsTest, WhatIsLoggedOfARefusalIsShortAndOfOneLine) {
  const std::string text = ForLog(absl::PermissionDeniedError("job \n" + std::string(9999, 'a')));
  EXPECT_EQ(text.rfind("PERMISSION_DENIED: job \\naaa", 0), 0u) << text;
  EXPECT_LT(text.size(), 500u);
}

TEST(EventCountsTest, LogsWhoWasRefusedWhatOnOneShortLine) {
  EventCounts counts;
  const testing::CapturedLog log;
  const std::string forged = "\nW1123 all is well" + std::string(100000, 'a');
  for (int i = 0; i < 100; ++i) {
    NoteEnd(counts, "spiffe://x/worker/1", "GetJob", absl::NotFoundError(forged));
  }
  NoteEnd(counts, "x", "BeginStep", absl::PermissionDeniedError(forged));
  NoteAdminAct(counts, "x", "group set", absl::InvalidArgumentError(forged));
  EXPECT_EQ(Text(counts),
            "admin_refused.invalid_argument=1 call_refused.not_found=100 call_unauthorized=1 ");
  const std::string text = log.text();
  EXPECT_EQ(text.rfind("GetJob of spiffe://x/worker/1 refused: NOT_FOUND: \\nW1123", 0), 0u)
      << text;
  EXPECT_LT(text.size(), 10000u);
  EXPECT_EQ(text.find("\nW1123"), std::string::npos) << text;
}

}  // namespace
}  // namespace kaon::monitor
