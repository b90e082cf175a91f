#include "kernels/update_sizes.h"

#include <gtest/gtest.h>

#include <vector>

namespace kaon::kernels {
namespace {

TEST(UpdateSizesDeathTest, RefusesBuffersOfOtherSizes) {
  const RuleConfig rule = AdamWConfig();
  const std::vector<uint64_t> shape = {2, 3};
  std::vector<float> floats(6);
  std::vector<float> more(7);
  const std::vector<Region> slots = {Region(floats), Region(floats)};
  Update update = {&rule, {}, shape, {GradView(floats), floats, floats, slots}, {}};
  CheckUpdateSizes(update);
  update.buffers.grad = GradView(more);
  EXPECT_DEATH(CheckUpdateSizes(update), "shape has 6 elements, gradient 7");
  update.buffers.grad = GradView(floats);
  update.buffers.new_param = Region(more);
  EXPECT_DEATH(CheckUpdateSizes(update), "new parameter 7");
  update.buffers.new_param = Region(floats);
  update.buffers.state = absl::MakeConstSpan(slots).first(1);
  EXPECT_DEATH(CheckUpdateSizes(update), "2 state slots, given 1");
  const std::vector<Region> long_slots = {Region(floats), Region(more)};
  update.buffers.state = long_slots;
  EXPECT_DEATH(CheckUpdateSizes(update), "exp_avg_sq has 28 bytes, needs 24");
}

}  // namespace
}  // namespace kaon::kernels
