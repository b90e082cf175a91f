#include "server/admin_cli/terminal.h"

#include <gtest/gtest.h>

#include <sstream>

namespace kaon::admin_cli {
namespace {

absl::Status Answer(const std::string& text, bool is_terminal = true) {
  std::istringstream in(text);
  std::ostringstream out;
  const absl::Status status = Confirm("delete checkpoint a", is_terminal, in, out);
  EXPECT_EQ(out.str(), is_terminal ? "kaonctl will delete checkpoint a. Go on? [y/N] " : "");
  return status;
}

TEST(ConfirmTest, OnlyYesIsYes) {
  EXPECT_TRUE(Answer("y\n").ok());
  EXPECT_TRUE(Answer(" YES\n").ok());
  for (const char* text : {"n\n", "\n", "", "yesterday\n"}) {
    EXPECT_EQ(Answer(text).code(), absl::StatusCode::kAborted) << text;
  }
}

TEST(ConfirmTest, WithoutATerminalItRefusesAndNamesTheFlag) {
  const absl::Status refused = Answer("y\n", false);
  EXPECT_EQ(refused.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(refused.message(),
            "not confirmed: would delete checkpoint a; without a terminal, add --yes");
}

TEST(WatchTest, RepeatsUntilThePauseEndsAndReturnsTheLastStatus) {
  for (const bool is_terminal : {false, true}) {
    std::ostringstream out;
    int calls = 0;
    const auto once = [&] {
      out << "answer " << ++calls << "\n";
      return calls;
    };
    EXPECT_EQ(Watch(
                  once, [&] { return calls < 3; }, is_terminal, out),
              3);
    EXPECT_EQ(out.str(), is_terminal ? "\033[H\033[2Janswer 1\n\033[H\033[2Janswer 2\n"
                                       "\033[H\033[2Janswer 3\n"
                                     : "answer 1\n\nanswer 2\n\nanswer 3\n");
  }
}

}  // namespace
}  // namespace kaon::admin_cli
