#include "server/admin_cli/live/redraw.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>

#include <sstream>

namespace kaon::admin_cli {
namespace {

struct Output {
  int status = 0;
  std::string out;
  std::string errors;
};

// Draws frames "1\n", "2\n", ...; the second fails.
Output Draw(const RedrawOptions& options, int pauses = 1000) {
  std::ostringstream out;
  std::ostringstream errors;
  int turn = 0;
  Output drawn;
  drawn.status = Redraw(
      options,
      [&turn] {
        ++turn;
        return turn == 2 ? Frame{"", "away\n", 4} : Frame{std::to_string(turn) + "\n", "", 0};
      },
      [&pauses] { return pauses-- > 0; }, out, errors);
  drawn.out = out.str();
  drawn.errors = errors.str();
  return drawn;
}

TEST(RedrawTest, WritesPlainTextWithoutATerminal) {
  RedrawOptions options;
  options.frames = 3;
  options.separator = "\n";
  const Output drawn = Draw(options);
  EXPECT_EQ(drawn.out, "1\n\n3\n");
  EXPECT_EQ(drawn.errors, "away\n");
  EXPECT_EQ(drawn.status, 0);
}

TEST(RedrawTest, DrawsOverTheOldFrameOnATerminal) {
  RedrawOptions options;
  options.frames = 3;
  options.is_terminal = true;
  EXPECT_EQ(Draw(options).out,
            "\033[2J\033[H1\033[K\n\033[J"
            "\033[H\033[J"
            "\033[H3\033[K\n\033[J");
}

TEST(RedrawTest, ReturnsTheStatusOfTheLastFrame) {
  RedrawOptions options;
  options.frames = 2;
  EXPECT_EQ(Draw(options).status, 4);
}

TEST(RedrawTest, GoesOnUntilThePauseEnds) { EXPECT_EQ(Draw({}, 2).out, "1\n3\n"); }

TEST(EndOnInterruptDeathTest, CtrlCIsNoFailure) {
  for (const bool is_terminal : {false, true}) {
    EXPECT_EXIT(
        {
          EndOnInterrupt(is_terminal);
          raise(SIGINT);
          abort();
        },
        testing::ExitedWithCode(0), "");
  }
}

}  // namespace
}  // namespace kaon::admin_cli
