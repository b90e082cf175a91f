#include "client/number_flags.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace kaon::client {
namespace {

// Returns true if a program with a flag of each kind of number, here and in a command, accepts
// `value`.
bool Takes(const std::string& flag, const std::string& value) {
  uint32_t whole = 0;
  int64_t negative = 0;
  std::vector<uint64_t> list;
  std::optional<double> real;
  CLI::App app;
  app.add_option("--whole", whole)->check(CLI::Range(0, 100));
  app.add_option("--signed", negative);
  app.add_option("--list", list)->delimiter(',');
  app.add_subcommand("do")->add_option("--real", real)->check(CLI::Range(-100.0, 1000.0));
  AcceptPlainNumbersOnly(app);
  std::vector<const char*> words = {"program"};
  if (flag == "--real") words.push_back("do");
  words.insert(words.end(), {flag.c_str(), value.c_str()});
  try {
    app.parse(static_cast<int>(words.size()), words.data());
  } catch (const CLI::ParseError&) {
    return false;
  }
  return true;
}

TEST(NumberFlagsTest, TakeDecimalAndFiniteNumbersOnly) {
  EXPECT_TRUE(Takes("--whole", "7") && Takes("--signed", "-7") && Takes("--list", "3,5"));
  EXPECT_TRUE(Takes("--real", "1.5e2") && Takes("--real", "-0.5"));
  for (const char* flag : {"--whole", "--signed", "--list", "--real"}) {
    for (const char* value : {"nan", "inf", "-nan", "0x10", " 7", "7 ", "1e999", "1e-999", ""}) {
      EXPECT_FALSE(Takes(flag, value)) << flag << " \"" << value << '"';
    }
  }
  EXPECT_FALSE(Takes("--list", "3, 5"));
}

}  // namespace
}  // namespace kaon::client
