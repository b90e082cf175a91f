#include "server/tier/host_view.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "kernels/tensor.h"
#include "tests/server/shard/device/fake_device_backend.h"

namespace kaon::tier {
namespace {

class HostViewTest : public testing::Test {
 protected:
  std::unique_ptr<kernels::Backend> host_ = kernels::CreateBackend({}).value();
  shard::FakeDeviceBackend device_{kernels::CreateBackend({}).value()};
};

TEST_F(HostViewTest, BorrowsHostMemory) {
  const std::vector<float> values = {1, 2, 3};
  const HostView view(*host_, values);
  EXPECT_EQ(view.floats().data(), values.data());
}

TEST_F(HostViewTest, CopiesMemoryOfADevice) {
  const std::vector<float> values = {1, 2, 3};
  const kernels::Tensor tensor(device_, values);
  const HostView view(device_, tensor.region());
  EXPECT_EQ(view.floats(), absl::MakeConstSpan(values));
  EXPECT_EQ(HostView(device_, tensor.region().Sub(4, 5)).bytes().size(), 5u);
  EXPECT_TRUE(HostView(device_, kernels::ConstRegion()).floats().empty());
}

TEST_F(HostViewTest, FillsHostMemoryInPlace) {
  std::vector<float> memory(kFilledBytes);
  int calls = 0;
  EXPECT_TRUE(
      FillRegion(*host_, kernels::Region(memory), [&](uint64_t offset, absl::Span<char> piece) {
        ++calls;
        EXPECT_EQ(offset, 0u);
        EXPECT_EQ(piece.data(), reinterpret_cast<char*>(memory.data()));
        return absl::OkStatus();
      }).ok());
  EXPECT_EQ(calls, 1);
}

TEST_F(HostViewTest, FillsADeviceInPieces) {
  const uint64_t size = 2 * kFilledBytes + 12;
  const kernels::Tensor tensor = kernels::Tensor::Create(device_, size).value();
  std::vector<uint64_t> pieces;
  EXPECT_TRUE(FillRegion(device_, tensor.region(), [&](uint64_t offset, absl::Span<char> piece) {
                for (size_t i = 0; i < piece.size(); ++i) {
                  piece[i] = static_cast<char>((offset + i) % 251);
                }
                pieces.push_back(piece.size());
                return absl::OkStatus();
              }).ok());
  EXPECT_EQ(pieces, (std::vector<uint64_t>{kFilledBytes, kFilledBytes, 12}));
  const HostView view(device_, tensor.region());
  for (uint64_t i = 0; i < size; ++i) {
    ASSERT_EQ(view.bytes()[i], static_cast<std::byte>(i % 251)) << i;
  }
}

TEST_F(HostViewTest, ReturnsTheFirstError) {
  const kernels::Tensor tensor = kernels::Tensor::Create(device_, 2 * kFilledBytes).value();
  int calls = 0;
  const absl::Status status = FillRegion(device_, tensor.region(), [&](uint64_t, absl::Span<char>) {
    ++calls;
    return absl::DataLossError("damaged");
  });
  EXPECT_EQ(status, absl::DataLossError("damaged"));
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace kaon::tier
