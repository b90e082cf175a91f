#include "server/admin_cli/command.h"

#include <gtest/gtest.h>

namespace kaon::admin_cli {
namespace {

TEST(CommandTest, OnlyCommandsThatChangeNothingAreAReaders) {
  for (const Command command :
       {Command::kStatus, Command::kSteps, Command::kCheckpointVerify, Command::kCheckpointList,
        Command::kHealth, Command::kTop, Command::kStepsFollow}) {
    EXPECT_TRUE(IsReadOnly(command)) << static_cast<int>(command);
  }
  for (const Command command : {Command::kGroupSet, Command::kCheckpointCreate,
                                Command::kCheckpointDelete, Command::kCheckpointRestore}) {
    EXPECT_FALSE(IsReadOnly(command)) << static_cast<int>(command);
  }
}

TEST(CommandTest, ACommandThatRepeatsByItselfOnlyReads) {
  for (const Command command : {Command::kTop, Command::kEventsWatch, Command::kStepsFollow}) {
    EXPECT_TRUE(RepeatsByItself(command) && IsReadOnly(command)) << static_cast<int>(command);
  }
  EXPECT_FALSE(RepeatsByItself(Command::kStatus));
}

}  // namespace
}  // namespace kaon::admin_cli
