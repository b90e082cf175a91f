#include "server/tier/memory_home.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "server/tier/host_tier.h"

namespace kaon::tier {
namespace {

using testing::Each;
using testing::HasSubstr;

class MemoryHomeTest : public testing::Test {
 protected:
  std::vector<float> Read(UnitId unit, int version, size_t tensor, size_t count) {
    std::vector<float> values(count);
    const absl::Status status =
        home_->Read(unit, version, tensor, 0, kernels::Region(values).host_bytes());
    EXPECT_TRUE(status.ok()) << status;
    return values;
  }

  HostTier tier_{4096};
  TieredStore store_{tier_};
  std::optional<MemoryHome> home_{std::in_place, store_, "test"};
};

TEST_F(MemoryHomeTest, AnUpdateWritesTheOtherWeightsAndTheSameState) {
  const UnitId unit = *home_->Add({"w", 8, {{"exp_avg", 4}}, false});
  EXPECT_THAT(Read(unit, 0, 0, 2), Each(0));
  for (const float value : {1.0f, 2.0f, 3.0f}) {
    const int before = home_->newest(unit);
    const float old = Read(unit, before, 0, 1)[0];
    UnitUpdatePin pin = *home_->PinForUpdate(unit);
    pin.next_weights().host_floats()[0] = value;
    pin.state(0).host_floats()[0] = 10 * value;
    EXPECT_EQ(pin.next_version(), 1 - before);
    pin.Commit();
    EXPECT_EQ(home_->newest(unit), 1 - before);
    EXPECT_EQ(Read(unit, 1 - before, 0, 1)[0], value);
    EXPECT_EQ(Read(unit, before, 0, 1)[0], old);
    EXPECT_EQ(Read(unit, before, 1, 1)[0], 10 * value);
    EXPECT_EQ(home_->Pin(unit)->tensor(0).host_floats()[0], value);
  }
}

// The next update finds the bytes of a dropped one, and nobody else sees them.
TEST_F(MemoryHomeTest, ADroppedUpdateKeepsTheNewestVersion) {
  const UnitId unit = *home_->Add({"w", 8, {}, false});
  home_->PinForUpdate(unit)->next_weights().host_floats()[0] = 5;
  EXPECT_EQ(home_->newest(unit), 0);
  EXPECT_EQ(home_->Pin(unit)->tensor(0).host_floats()[0], 0);
  EXPECT_EQ(home_->PinForUpdate(unit)->next_weights().host_floats()[0], 5);
}

TEST_F(MemoryHomeTest, AUnitThatIsWrittenOnceHasOneBuffer) {
  const UnitId unit = *home_->Add({"f", 64, {}, true});
  EXPECT_EQ(store_.used_bytes(), 64u);
  UnitUpdatePin pin = *home_->PinForUpdate(unit);
  EXPECT_EQ(pin.next_version(), 0);
  pin.Commit();
  EXPECT_EQ(home_->newest(unit), 0);
}

TEST_F(MemoryHomeTest, NamesTheTensorThatDoesNotFitAndReturnsTheRest) {
  EXPECT_THAT(home_->Add({"w", 2048, {{"exp_avg", 64}}, false}).status().message(),
              HasSubstr("exp_avg/w"));
  home_.reset();
  EXPECT_EQ(store_.used_bytes(), 0u);
}

}  // namespace
}  // namespace kaon::tier
