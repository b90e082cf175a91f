// Worker::RunStep, and parameters by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "client/kaon/client.h"
#include "tests/client/client_fixture.h"

namespace kaon {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(ClientTest, PushesAndPullsByName) {
  cluster_.SetWeight(0.5f);
  Worker worker = job_.Join(0).value();
  Step step = worker.Begin(First()).value();
  (void)step.Push("bias", View(bias_));
  (void)step.Push("large", View(large_));
  EXPECT_EQ(step.Push("smal", View(bias_)).Get().status().message(),
            "parameter is 'smal', which job small does not have");
  ASSERT_TRUE(step.Finish().Get());
  EXPECT_EQ(cluster_.Contribution(0, 0), Bytes(bias_));
  std::vector<float> bias(4);
  ASSERT_TRUE(job_.Pull(1, {{"bias", {bias.data(), 4}}}).Get());
  EXPECT_THAT(bias, ElementsAre(0.5f, 0.5f, 0.5f, 0.5f));
  EXPECT_EQ(job_.Pull(1, {{"smal", {bias.data(), 4}}}).Get().status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(job_.ParameterId("large").value(), 1u);
}

TEST_F(ClientTest, RunsAWholeStep) {
  cluster_.SetWeight(0.5f);
  Worker worker = job_.Join(0).value();
  std::vector<float> bias(4);
  const Result<StepRecord> record =
      worker.RunStep({1, 512}, {View(bias_), View(large_), {}}, 1.5, {{bias.data(), 4}, {}, {}});
  ASSERT_TRUE(record) << record.status().ToString();
  EXPECT_TRUE(record->applied);
  EXPECT_EQ(cluster_.Contribution(1, 0), Bytes(large_));
  EXPECT_EQ(cluster_.finishes().at(0).loss(), 1.5);
  EXPECT_EQ(cluster_.finishes().at(0).missing_parameters_size(), 0);
  EXPECT_THAT(bias, ElementsAre(0.5f, 0.5f, 0.5f, 0.5f));
}

TEST_F(ClientTest, ListsAnEmptyGradientOfAStepAsMissing) {
  Worker worker = job_.Join(0).value();
  ASSERT_TRUE(worker.RunStep({1, 512}, {{}, View(large_), {}}, std::nullopt, {{}, {}, {}}));
  EXPECT_THAT(cluster_.finishes().at(0).missing_parameters(), ElementsAre(0u));
}

TEST_F(ClientTest, RefusesViewsThatDoNotFit) {
  Worker worker = job_.Join(0).value();
  std::vector<float> bias(5);
  EXPECT_EQ(worker.RunStep({1, 512}, {View(bias_)}, 1.5, {{}, {}, {}}).status().message(),
            "1 gradients, expecting 3, one for each parameter of job small: pass an empty view for "
            "a parameter without one");
  const std::vector<TensorView> gradients = {View(bias_), View(large_), {}};
  EXPECT_THAT(
      worker.RunStep({1, 512}, gradients, 1.5, {{bias.data(), 5}, {}, {}}).status().message(),
      HasSubstr("target of 5 elements, expecting 4"));
  EXPECT_THAT(worker.RunStep({1, 512, 2}, gradients, 1.5, {{}, {}, {}}).status().message(),
              HasSubstr("micro_batches is 2, must be 1"));
  EXPECT_EQ(worker.RunStep({1, 512}, {View(bias), View(large_), {}}, 1.5, {{}, {}, {}})
                .status()
                .message(),
            "parameter bias: 5 elements pushed, expecting 4");
  EXPECT_TRUE(worker.RunStep({1, 512}, gradients, 1.5, {{}, {}, {}}));
}

}  // namespace
}  // namespace kaon
