#include "client/train/ngram.h"

#include <gtest/gtest.h>

#include <cmath>

namespace kaon::train {
namespace {

constexpr int kContext = 6;

TEST(NgramModelTest, InterpolatesByHand) {
  const std::vector<CorpusFile> files = {{"x", "aab"}};
  const Vocabulary vocabulary(files);  // padding, unknown, a = 2, b = 3
  const NgramModel model(TokenText(files, vocabulary, kContext), 2, vocabulary.size());
  // Unigram: 3 characters, 2 types. P(a) = (2 + 2/4) / 5, P(b) = (1 + 2/4) / 5.
  // After a: a and b once each. P(b | a) = (1 + 2 P(b)) / 4.
  const uint8_t a = 2;
  EXPECT_DOUBLE_EQ(model.Probability(absl::MakeConstSpan(&a, 1), 3), (1 + 2 * 0.3) / 4);
}

TEST(NgramModelTest, ProbabilitiesOfAContextAddUpToOne) {
  const std::vector<CorpusFile> files = {{"x", "abracadabra"}, {"y", "barbara"}};
  const Vocabulary vocabulary(files);
  const TokenText text(files, vocabulary, kContext);
  const NgramModel model(text, 5, vocabulary.size());
  const std::vector<uint8_t> unseen = {3, 3, 3, 3};
  double seen_sum = 0;
  double unseen_sum = 0;
  for (int token = 0; token < vocabulary.size(); ++token) {
    seen_sum += model.Probability(text.ContextOf(6, 4), token);
    unseen_sum += model.Probability(unseen, token);
  }
  EXPECT_NEAR(seen_sum, 1, 1e-12);
  EXPECT_NEAR(unseen_sum, 1, 1e-12);
}

TEST(NgramModelTest, GivesUnknownCharactersAFiniteLoss) {
  const std::vector<CorpusFile> training = {{"x", "abababab"}};
  const Vocabulary vocabulary(training);
  const NgramModel model(TokenText(training, vocabulary, kContext), 3, vocabulary.size());
  const double loss = model.Loss(TokenText({{"v", "zz"}}, vocabulary, kContext));
  EXPECT_TRUE(std::isfinite(loss));
  EXPECT_GT(loss, std::log(4.0));
}

TEST(NgramModelTest, LongerContextsFitTheLicencesBetter) {
  const absl::StatusOr<Corpus> corpus = ReadCorpus(kDefaultCorpusDirectory);
  ASSERT_TRUE(corpus.ok());
  const Vocabulary vocabulary(corpus->training);
  const TokenText training(corpus->training, vocabulary, kContext);
  const TokenText validation(corpus->validation, vocabulary, kContext);
  const double bigram = NgramModel(training, 2, vocabulary.size()).Loss(validation);
  const double fivegram = NgramModel(training, 5, vocabulary.size()).Loss(validation);
  EXPECT_NEAR(bigram, 2.5, 0.1);
  EXPECT_NEAR(fivegram, 1.45, 0.15);
}

}  // namespace
}  // namespace kaon::train
