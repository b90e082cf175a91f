#include "server/admin_cli/table.h"

#include <gtest/gtest.h>

namespace kaon::admin_cli {
namespace {

TEST(TableTest, PadsColumnsToTheirWidestCell) {
  Table table({{"NAME"}, {"BYTES", Align::kRight}, {"REASON"}});
  table.AddRow({"hidden.0.weight", "7", "matrix"});
  table.AddRow({"bias", "1024", "vector"});
  EXPECT_EQ(table.ToString(),
            "NAME             BYTES  REASON\n"
            "hidden.0.weight      7  matrix\n"
            "bias              1024  vector\n");
}

TEST(TableTest, WithoutRowsIsItsHeader) {
  const Table table({{"A"}, {"B"}});
  EXPECT_EQ(table.ToString(), "A  B\n");
}

TEST(TableTest, LinesHaveNoTrailingSpaces) {
  Table table({{"A"}, {"LONG TITLE"}});
  table.AddRow({"x", "y"});
  EXPECT_EQ(table.ToString(), "A  LONG TITLE\nx  y\n");
}

TEST(TableTest, ControlCharactersCannotBreakALine) {
  Table table({{"A"}});
  table.AddRow({"x\n\x1b[2J"});
  EXPECT_EQ(table.ToString(), "A\nx??[2J\n");
}

TEST(TableDeathTest, RowWithAnotherNumberOfCellsIsABug) {
  Table table({{"A"}, {"B"}});
  EXPECT_DEATH(table.AddRow({"x"}), "1 vs. 2");
}

}  // namespace
}  // namespace kaon::admin_cli
