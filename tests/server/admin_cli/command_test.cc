#include "server/admin_cli/command.h"

#include <gtest/gtest.h>

namespace kaon::admin_cli {
namespace {

TEST(CommandTest, AReaderRunsOnlyCommandsThatChangeNothing) {
  for (const Command command :
       {Command::kStatus, Command::kSteps, Command::kCheckpointVerify, Command::kCheckpointList,
        Command::kHealth, Command::kTop, Command::kStepsFollow}) {
    EXPECT_TRUE(IsAReaders(command)) << static_cast<int>(command);
  }
  for (const Command command : {Command::kGroupSet, Command::kCheckpointCreate,
                                Command::kCheckpointDelete, Command::kCheckpointRestore}) {
    EXPECT_FALSE(IsAReaders(command)) << static_cast<int>(command);
  }
}

TEST(CommandTest, ACheckpointerTakesCheckpointsAndLooksAtTheStatus) {
  for (const Command command : {Command::kStatus, Command::kHealth, Command::kCheckpointList,
                                Command::kCheckpointVerify, Command::kCheckpointCreate}) {
    EXPECT_TRUE(IsACheckpointers(command)) << static_cast<int>(command);
  }
  for (const Command command : {Command::kCheckpointDelete, Command::kCheckpointRestore,
                                Command::kGroupSet, Command::kJobDelete, Command::kShardDrain,
                                Command::kLogSet, Command::kConfig, Command::kParameterRead}) {
    EXPECT_FALSE(IsACheckpointers(command)) << static_cast<int>(command);
  }
}

TEST(CommandTest, AConfigurationIsForAdminsAndChangesNothing) {
  EXPECT_TRUE(ChangesNothing(Command::kConfig));
  EXPECT_FALSE(IsAReaders(Command::kConfig));
  EXPECT_FALSE(ChangesNothing(Command::kLogSet));
}

TEST(CommandTest, ACommandThatRepeatsByItselfOnlyReads) {
  for (const Command command : {Command::kTop, Command::kEventsWatch, Command::kStepsFollow}) {
    EXPECT_TRUE(RepeatsByItself(command) && IsAReaders(command)) << static_cast<int>(command);
  }
  EXPECT_FALSE(RepeatsByItself(Command::kStatus));
}

}  // namespace
}  // namespace kaon::admin_cli
