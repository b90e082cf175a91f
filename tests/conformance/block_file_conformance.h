// The conformance suite of disk::BlockFile. The test of each file instantiates it:
//   INSTANTIATE_TYPED_TEST_SUITE_P(Threads, BlockFileConformance, ThreadedBlockFileFactory);
// where the factory has std::unique_ptr<disk::BlockFile> Open(uint64_t size_bytes), which opens the
// same file each time. It may have std::string WhyNot(), which says why this machine cannot run the
// suite. The suite does not cover crashes, because each disk loses other data.
#ifndef KAON_TESTS_CONFORMANCE_BLOCK_FILE_CONFORMANCE_H_
#define KAON_TESTS_CONFORMANCE_BLOCK_FILE_CONFORMANCE_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "server/disk/block_file.h"
#include "server/disk/completion.h"

namespace kaon::disk {

// Zeroed memory of whole blocks.
class Blocks {
 public:
  explicit Blocks(uint64_t num_blocks)
      : bytes_((num_blocks + 1) * kBlockBytes), size_(num_blocks * kBlockBytes) {}

  absl::Span<std::byte> span() {
    const uint64_t past = reinterpret_cast<uintptr_t>(bytes_.data()) % kBlockBytes;
    return absl::MakeSpan(bytes_).subspan((kBlockBytes - past) % kBlockBytes, size_);
  }
  // Fills the blocks with bytes that depend on place and `seed`.
  void Fill(uint64_t seed) {
    const absl::Span<std::byte> blocks = span();
    for (size_t i = 0; i < size_; ++i) {
      blocks[i] = static_cast<std::byte>((i * 31 + i / kBlockBytes * 7 + seed * 101) >> 2);
    }
  }

 private:
  std::vector<std::byte> bytes_;
  uint64_t size_;
};

template <typename Factory>
class BlockFileConformance : public testing::Test {
 protected:
  static constexpr uint64_t kNumBlocks = 2048;

  void SetUp() override {
    if constexpr (requires { factory_.WhyNot(); }) {
      const std::string why = factory_.WhyNot();
      if (!why.empty()) GTEST_SKIP() << why;
    }
    Open();
  }

  void Open() {
    file_.reset();
    file_ = factory_.Open(kNumBlocks * kBlockBytes);
    ASSERT_NE(file_, nullptr);
  }

  absl::Status Write(uint64_t block, Blocks& from) {
    Completion written;
    file_->Write(block * kBlockBytes, from.span(), written.Callback());
    return written.Wait();
  }
  absl::Status Read(uint64_t block, Blocks& to) {
    Completion read;
    file_->Read(block * kBlockBytes, to.span(), read.Callback());
    return read.Wait();
  }
  // Returns whether the file holds `expected` from `block` on.
  bool Holds(uint64_t block, Blocks& expected) {
    Blocks read(expected.span().size() / kBlockBytes);
    EXPECT_EQ(Read(block, read), absl::OkStatus());
    return std::memcmp(read.span().data(), expected.span().data(), read.span().size()) == 0;
  }

  Factory factory_;
  std::unique_ptr<BlockFile> file_;
};

TYPED_TEST_SUITE_P(BlockFileConformance);

TYPED_TEST_P(BlockFileConformance, BeginsWithZeros) {
  Blocks zeros(this->kNumBlocks);
  EXPECT_TRUE(this->Holds(0, zeros));
}

TYPED_TEST_P(BlockFileConformance, ReadsWhatWasWrittenAlsoAfterItWasOpenedAgain) {
  // The sizes of one block, of one piece and its neighbours, and of the whole file.
  for (const uint64_t size : {uint64_t{1}, uint64_t{255}, uint64_t{256}, uint64_t{257},
                              uint64_t{1000}, this->kNumBlocks}) {
    Blocks written(size);
    written.Fill(size);
    const uint64_t block = this->kNumBlocks - size;
    ASSERT_EQ(this->Write(block, written), absl::OkStatus());
    EXPECT_TRUE(this->Holds(block, written)) << size;
    ASSERT_EQ(this->file_->Sync(), absl::OkStatus());
    this->Open();
    EXPECT_TRUE(this->Holds(block, written)) << size;
  }
}

TYPED_TEST_P(BlockFileConformance, ChangesNoNeighbour) {
  Blocks all(this->kNumBlocks);
  all.Fill(1);
  ASSERT_EQ(this->Write(0, all), absl::OkStatus());
  Blocks three(3);
  three.Fill(2);
  ASSERT_EQ(this->Write(700, three), absl::OkStatus());
  std::memcpy(all.span().data() + 700 * kBlockBytes, three.span().data(), 3 * kBlockBytes);
  EXPECT_TRUE(this->Holds(0, all));
}

TYPED_TEST_P(BlockFileConformance, RunsManyOperationsAtOnce) {
  constexpr uint64_t kOperations = 128;
  const uint64_t size = this->kNumBlocks / kOperations;
  std::vector<Blocks> written(kOperations, Blocks(size));
  std::vector<Blocks> read(kOperations, Blocks(size));
  std::vector<Completion> writes(kOperations);
  for (uint64_t i = 0; i < kOperations; ++i) {
    written[i].Fill(i);
    this->file_->Write(i * size * kBlockBytes, written[i].span(), writes[i].Callback());
  }
  for (Completion& write : writes) EXPECT_EQ(write.Wait(), absl::OkStatus());
  std::vector<Completion> reads(kOperations);
  for (uint64_t i = 0; i < kOperations; ++i) {
    this->file_->Read(i * size * kBlockBytes, read[i].span(), reads[i].Callback());
  }
  for (Completion& one : reads) EXPECT_EQ(one.Wait(), absl::OkStatus());
  for (uint64_t i = 0; i < kOperations; ++i) EXPECT_EQ(read[i].span(), written[i].span()) << i;
}

TYPED_TEST_P(BlockFileConformance, LetsACompletionStartTheNextOperation) {
  Blocks written(300);
  Blocks read(300);
  written.Fill(5);
  Completion done;
  this->file_->Write(0, written.span(), [&](const absl::Status& status) {
    EXPECT_EQ(status, absl::OkStatus());
    this->file_->Read(0, read.span(), done.Callback());
  });
  EXPECT_EQ(done.Wait(), absl::OkStatus());
  EXPECT_EQ(read.span(), written.span());
}

TYPED_TEST_P(BlockFileConformance, EndsOperationsBeforeItIsDestroyed) {
  Blocks written(this->kNumBlocks);
  written.Fill(3);
  bool done = false;
  this->file_->Write(0, written.span(), [&](const absl::Status& status) { done = status.ok(); });
  this->file_.reset();
  EXPECT_TRUE(done);
  this->Open();
  EXPECT_TRUE(this->Holds(0, written));
}

TYPED_TEST_P(BlockFileConformance, RefusesWhatIsOutsideOrUnaligned) {
  Blocks two(2);
  two.Fill(4);
  Blocks zeros(this->kNumBlocks);
  EXPECT_EQ(this->Write(this->kNumBlocks - 1, two).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(this->Read(this->kNumBlocks, two).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(this->Read(~uint64_t{0} / kBlockBytes, two).code(), absl::StatusCode::kOutOfRange);
  const auto write = [&](uint64_t offset, absl::Span<const std::byte> from) {
    Completion written;
    this->file_->Write(offset, from, written.Callback());
    return written.Wait();
  };
  EXPECT_EQ(write(512, two.span()).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(write(0, two.span().first(4097)).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(write(0, two.span().subspan(8, kBlockBytes)).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(write(this->kNumBlocks * kBlockBytes, {}), absl::OkStatus());
  EXPECT_TRUE(this->Holds(0, zeros));
}

REGISTER_TYPED_TEST_SUITE_P(BlockFileConformance, BeginsWithZeros,
                            ReadsWhatWasWrittenAlsoAfterItWasOpenedAgain, ChangesNoNeighbour,
                            RunsManyOperationsAtOnce, LetsACompletionStartTheNextOperation,
                            EndsOperationsBeforeItIsDestroyed, RefusesWhatIsOutsideOrUnaligned);

}  // namespace kaon::disk

#endif  // KAON_TESTS_CONFORMANCE_BLOCK_FILE_CONFORMANCE_H_
