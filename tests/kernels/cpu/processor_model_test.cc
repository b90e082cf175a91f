#include "kernels/cpu/processor_model.h"

#include <gtest/gtest.h>

namespace kaon::kernels {
namespace {

TEST(ProcessorModelTest, FindsTheProcessorsName) {
  EXPECT_EQ(ProcessorModelIn("processor\t: 0\nmodel\t\t: 85\nmodel name\t: Xeon Gold @ 2\n"),
            "Xeon Gold @ 2");
  EXPECT_EQ(ProcessorModelIn("processor\t: 0\n"), "unknown");
}

TEST(ProcessorModelTest, ThisMachineHasOne) { EXPECT_FALSE(ProcessorModel().empty()); }

}  // namespace
}  // namespace kaon::kernels
