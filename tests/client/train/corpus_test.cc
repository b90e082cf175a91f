#include "client/train/corpus.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace kaon::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(SplitCorpusTest, KeepsOneCopyOfEachTextAndHoldsOutWholeFiles) {
  const absl::StatusOr<Corpus> corpus = SplitCorpus(
      {{"GPL-3", "gpl"}, {"GPL", "gpl"}, {"Artistic", "art"}, {"Apache-2.0", "apa"}, {"BSD", "b"}});
  ASSERT_TRUE(corpus.ok());
  ASSERT_EQ(corpus->training.size(), 2u);
  EXPECT_EQ(corpus->training[0].name, "BSD");
  EXPECT_EQ(corpus->training[1].name, "GPL");
  ASSERT_EQ(corpus->validation.size(), 2u);
  EXPECT_EQ(corpus->validation[0].name, "Apache-2.0");
  EXPECT_EQ(corpus->validation[1].name, "Artistic");
}

TEST(SplitCorpusTest, KeepsCopiesOfValidationTextsOutOfTraining) {
  const absl::StatusOr<Corpus> corpus =
      SplitCorpus({{"AAA", "same"}, {"Artistic", "same"}, {"BSD", "other"}});
  ASSERT_TRUE(corpus.ok());
  ASSERT_EQ(corpus->validation.size(), 1u);
  ASSERT_EQ(corpus->training.size(), 1u);
  EXPECT_EQ(corpus->training[0].name, "BSD");
}

TEST(SplitCorpusTest, RefusesACorpusWithAnEmptySide) {
  EXPECT_THAT(std::string(SplitCorpus({{"BSD", "b"}}).status().message()), HasSubstr("validation"));
  EXPECT_THAT(std::string(SplitCorpus({{"Artistic", "a"}}).status().message()),
              HasSubstr("training"));
}

TEST(ReadCorpusTest, FollowsLinksOnce) {
  const std::filesystem::path directory = std::filesystem::path(testing::TempDir()) / "links";
  std::filesystem::remove_all(directory);
  std::filesystem::create_directories(directory);
  std::ofstream(directory / "GPL-3") << "gpl";
  std::ofstream(directory / "Artistic") << "art";
  std::filesystem::create_symlink("GPL-3", directory / "GPL");
  const absl::StatusOr<Corpus> corpus = ReadCorpus(directory.string());
  ASSERT_TRUE(corpus.ok());
  EXPECT_EQ(corpus->training.size(), 1u);
}

TEST(ReadCorpusTest, NamesAMissingDirectory) {
  const absl::Status status = ReadCorpus("/nonexistent-corpus").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/nonexistent-corpus"));
}

TEST(ReadCorpusTest, FindsTheLicencesOfThisMachine) {
  const absl::StatusOr<Corpus> corpus = ReadCorpus(kDefaultCorpusDirectory);
  ASSERT_TRUE(corpus.ok());
  EXPECT_EQ(corpus->validation.size(), 2u);
  size_t characters = 0;
  for (const CorpusFile& file : corpus->training) characters += file.text.size();
  EXPECT_GT(characters, 150000u);
}

TEST(VocabularyTest, NumbersTrainingCharactersInOrderAndKnowsNoOthers) {
  const Vocabulary vocabulary({{"x", "ba"}, {"y", "bc"}});
  EXPECT_EQ(vocabulary.size(), 5);
  EXPECT_EQ(vocabulary.TokenOf('a'), 2);
  EXPECT_EQ(vocabulary.TokenOf('b'), 3);
  EXPECT_EQ(vocabulary.TokenOf('c'), 4);
  EXPECT_EQ(vocabulary.TokenOf('z'), Vocabulary::kUnknown);
}

TEST(VocabularyTest, NeverLeavesTheRangeOfAByte) {
  std::string all;
  for (int c = 0; c < 256; ++c) all.push_back(static_cast<char>(c));
  const Vocabulary vocabulary({{"x", all}});
  EXPECT_EQ(vocabulary.size(), 256);
  EXPECT_EQ(vocabulary.TokenOf('\xff'), Vocabulary::kUnknown);
}

TEST(TokenTextTest, PadsTheStartOfEachFile) {
  const std::vector<CorpusFile> files = {{"x", "ab"}, {"y", "c"}};
  const TokenText text(files, Vocabulary(files), 2);
  ASSERT_EQ(text.num_positions(), 3);
  const Batch batch = text.MakeBatch({2, 1});
  EXPECT_THAT(batch.targets, ElementsAre(4, 3));
  EXPECT_THAT(batch.contexts, ElementsAre(0, 0, 0, 2));
  EXPECT_THAT(text.ContextOf(1, 1), ElementsAre(2));
}

}  // namespace
}  // namespace kaon::train
