#include "client/train/language_model.h"

#include <gtest/gtest.h>

#include <cmath>

#include "client/train/random.h"

namespace kaon::train {
namespace {

constexpr ModelShape kSmall = {
    .vocabulary = 7, .context = 3, .embedding = 4, .hidden = 6, .blocks = 2};

Batch RandomBatch(const ModelShape& shape, int size) {
  Batch batch;
  for (int i = 0; i < size * shape.context; ++i) {
    batch.contexts.push_back(RandomBits(3, 0, i) % shape.vocabulary);
  }
  for (int i = 0; i < size; ++i) batch.targets.push_back(RandomBits(3, 1, i) % shape.vocabulary);
  return batch;
}

// Away from the zeros and ones of the initial weights, so that every path carries gradient.
template <typename Scalar>
std::vector<std::vector<Scalar>> RandomWeights(const ModelShape& shape) {
  std::vector<std::vector<Scalar>> weights;
  for (const std::vector<float>& initial : InitialWeights(shape, 1)) {
    weights.emplace_back(initial.begin(), initial.end());
    for (size_t i = 0; i < initial.size(); ++i) {
      weights.back()[i] += static_cast<Scalar>(0.4 * UnitUniform(9, weights.size(), i) - 0.2);
    }
  }
  return weights;
}

class LanguageModelGradientTest : public testing::TestWithParam<int> {};

TEST_P(LanguageModelGradientTest, EqualsFiniteDifferences) {
  const int id = GetParam();
  LanguageModel<double> model(kSmall);
  const Batch batch = RandomBatch(kSmall, 11);
  std::vector<std::vector<double>> weights = RandomWeights<double>(kSmall);
  std::vector<std::vector<double>> gradients;
  model.LossAndGradients(weights, batch, &gradients);
  constexpr double kStep = 1e-5;
  double largest = 0;
  for (size_t i = 0; i < weights[id].size(); ++i) {
    const double saved = weights[id][i];
    weights[id][i] = saved + kStep;
    const double above = model.Loss(weights, batch);
    weights[id][i] = saved - kStep;
    const double below = model.Loss(weights, batch);
    weights[id][i] = saved;
    EXPECT_NEAR(gradients[id][i], (above - below) / (2 * kStep), 1e-8)
        << ModelParameters(kSmall)[id].name << "[" << i << "]";
    largest = std::max(largest, std::abs(gradients[id][i]));
  }
  EXPECT_GT(largest, 1e-4);
}

INSTANTIATE_TEST_SUITE_P(EveryParameter, LanguageModelGradientTest,
                         testing::Range(0, static_cast<int>(ModelParameters(kSmall).size())),
                         [](const testing::TestParamInfo<int>& info) {
                           std::string name = ModelParameters(kSmall)[info.param].name;
                           for (char& c : name) c = c == '.' ? '_' : c;
                           return name;
                         });

TEST(LanguageModelTest, FirstLossIsThatOfTheUniformDistribution) {
  LanguageModel<float> model(kSmall);
  const double loss = model.Loss(InitialWeights(kSmall, 1), RandomBatch(kSmall, 50));
  EXPECT_NEAR(loss, std::log(7.0), 1e-6);
}

TEST(LanguageModelTest, GradientOfTheWholeIsTheWeightedMeanOfTheParts) {
  LanguageModel<double> model(kSmall);
  const Batch whole = RandomBatch(kSmall, 8);
  Batch parts[2];
  for (int i = 0; i < 8; ++i) {
    Batch& part = parts[i < 3 ? 0 : 1];
    part.targets.push_back(whole.targets[i]);
    part.contexts.insert(part.contexts.end(), whole.contexts.begin() + 3 * i,
                         whole.contexts.begin() + 3 * i + 3);
  }
  const std::vector<std::vector<double>> weights = RandomWeights<double>(kSmall);
  std::vector<std::vector<double>> expected, first, second;
  model.LossAndGradients(weights, whole, &expected);
  model.LossAndGradients(weights, parts[0], &first);
  model.LossAndGradients(weights, parts[1], &second);
  for (size_t id = 0; id < expected.size(); ++id) {
    for (size_t i = 0; i < expected[id].size(); ++i) {
      EXPECT_NEAR((3 * first[id][i] + 5 * second[id][i]) / 8, expected[id][i], 1e-12);
    }
  }
}

TEST(LanguageModelTest, GivesTheSameBitsFromAnyInstance) {
  const ModelShape shape = {
      .vocabulary = 87, .context = 16, .embedding = 24, .hidden = 96, .blocks = 2};
  const std::vector<std::vector<float>> weights = RandomWeights<float>(shape);
  LanguageModel<float> used(shape);
  std::vector<std::vector<float>> gradients, again;
  // Scratch left over from another batch must not matter.
  used.LossAndGradients(weights, RandomBatch(shape, 77), &gradients);
  const Batch batch = RandomBatch(shape, 51);
  const double loss = used.LossAndGradients(weights, batch, &gradients);
  LanguageModel<float> fresh(shape);
  EXPECT_EQ(fresh.LossAndGradients(weights, batch, &again), loss);
  EXPECT_EQ(again, gradients);
}

TEST(LanguageModelTest, InitialWeightsDependOnTheSeedAlone) {
  EXPECT_EQ(InitialWeights(kSmall, 1), InitialWeights(kSmall, 1));
  EXPECT_NE(InitialWeights(kSmall, 1), InitialWeights(kSmall, 2));
}

TEST(LanguageModelTest, NamesMatricesForMuonAndTheRestForTheScalarRule) {
  int matrices = 0;
  for (const ModelParameter& parameter : ModelParameters(kSmall)) {
    matrices += parameter.shape.size() == 2 && !parameter.is_embedding_or_output;
  }
  EXPECT_EQ(matrices, 1 + kSmall.blocks);
}

}  // namespace
}  // namespace kaon::train
