#include "job/glob.h"

#include <fnmatch.h>
#include <gtest/gtest.h>
#include <re2/re2.h>

#include <random>
#include <string>

namespace kaon::job {
namespace {

bool GlobMatches(const std::string& pattern, const std::string& name) {
  const RE2 regex(GlobToRegex(pattern));
  EXPECT_TRUE(regex.ok()) << pattern << ": " << regex.error();
  return RE2::PartialMatch(name, regex);
}

TEST(GlobTest, StarsMatchDotsAndNothing) {
  EXPECT_TRUE(GlobMatches("*", ""));
  EXPECT_TRUE(GlobMatches("*.bias", "layers.0.bias"));
  EXPECT_TRUE(GlobMatches("layers.*.weight", "layers.0.mlp.weight"));
  EXPECT_TRUE(GlobMatches("*experts*", "experts"));
  EXPECT_FALSE(GlobMatches("*.bias", "bias"));
}

TEST(GlobTest, MatchesTheWholeName) {
  EXPECT_FALSE(GlobMatches("experts", "experts.0"));
  EXPECT_FALSE(GlobMatches("experts.0", "experts"));
  EXPECT_FALSE(GlobMatches("", "x"));
}

TEST(GlobTest, SetsAndEscapes) {
  EXPECT_TRUE(GlobMatches("h.[0-3].w", "h.2.w"));
  EXPECT_FALSE(GlobMatches("h.[!0-3].w", "h.2.w"));
  EXPECT_TRUE(GlobMatches("a\\*b", "a*b"));
  EXPECT_FALSE(GlobMatches("a\\*b", "axb"));
  EXPECT_TRUE(GlobMatches("a[b", "a[b"));
  EXPECT_TRUE(GlobMatches("[]x]", "]"));
  EXPECT_TRUE(GlobMatches("?", "."));
}

// fnmatch needs minutes for this pattern.
TEST(GlobTest, ManyStarsTakeNoTime) {
  std::string pattern;
  for (int i = 0; i < 300; ++i) pattern += "*a";
  EXPECT_FALSE(GlobMatches(pattern + "b", std::string(512, 'a')));
}

// Each [ without its ] was looked after to the pattern's end, for every character of the name.
TEST(GlobTest, SetsWithoutAnEndAreReadOnce) {
  const std::string pattern = "*" + std::string(256, '[') + std::string(767, 'a');
  EXPECT_FALSE(GlobMatches(pattern, std::string(511, '[') + "b"));
  EXPECT_TRUE(GlobMatches(pattern, "x" + pattern.substr(1)));
  EXPECT_TRUE(GlobMatches("[[\\]", "[[]"));
  EXPECT_LT(GlobToRegex(pattern).size(), 8 * pattern.size());
}

TEST(GlobTest, SetsThatHoldNothing) {
  EXPECT_FALSE(GlobMatches("[z-a]", "b"));
  EXPECT_TRUE(GlobMatches("[!z-a]", "b"));
}

TEST(GlobTest, AgreesWithFnmatch) {
  constexpr unsigned kSeed = 20;
  std::mt19937 random(kSeed);
  const auto text = [&](const std::string& alphabet, size_t most) {
    std::string out(random() % (most + 1), ' ');
    for (char& c : out) c = alphabet[random() % alphabet.size()];
    return out;
  };
  int matches = 0;
  for (int i = 0; i < 50000; ++i) {
    const std::string pattern = text("ab.*?[]!-\\", 7);
    // The C library's reading of a lone backslash at the end, or in a set, is its own.
    if (!pattern.empty() && pattern.back() == '\\') continue;
    if (pattern.find('[') != std::string::npos && pattern.find('\\') != std::string::npos) continue;
    if (pattern.find("[.") != std::string::npos) continue;  // Collating symbols, which we have not.
    const std::string name = text("ab.-", 5);
    const bool expected = fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
    ASSERT_EQ(GlobMatches(pattern, name), expected) << "'" << pattern << "' on '" << name << "'";
    matches += expected;
  }
  EXPECT_GT(matches, 250);
}

}  // namespace
}  // namespace kaon::job
