#include "proto/shm_ring.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <iterator>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/attributes.h"
#include "proto/shm_region.h"

namespace kaon::proto {
namespace {

constexpr size_t kRingBytes = 64 << 10;

// Writes as another process does. It races with the reader on purpose, so sanitizers ignore it.
ABSL_ATTRIBUTE_NO_SANITIZE_THREAD void Overwrite(std::byte* at, uint32_t with) {
  *reinterpret_cast<volatile uint32_t*>(at) = with;
}

// Both ends of one direction over one mapping. The test writes to the mapping by hand what a
// malicious end may write.
class ShmRingTest : public testing::Test {
 protected:
  ShmRingTest()
      : region_(ShmRegion::Create(kRingBytes).value()),
        memory_(region_->requests()),
        writer_(memory_),
        reader_(memory_) {}

  // Returns true if there was room.
  bool Write(const std::string& body, uint32_t kind = 7) {
    const absl::StatusOr<std::byte*> to = writer_.Reserve(body.size());
    EXPECT_TRUE(to.ok()) << to.status();
    if (!to.ok() || *to == nullptr) return false;
    std::memcpy(*to, body.data(), body.size());
    writer_.Commit({static_cast<uint32_t>(body.size()), kind, 1, 2});
    return true;
  }

  // The body of the next record, or "none", or why not.
  std::string Take() {
    const auto record = reader_.Take(&taken_);
    if (!record.ok()) return std::string(record.status().message());
    if (!record->has_value()) return "none";
    const absl::Span<const std::byte> body = (*record)->body;
    return std::string(reinterpret_cast<const char*>(body.data()), body.size());
  }

  std::unique_ptr<ShmRegion> region_;
  RingMemory memory_;
  RingWriter writer_;
  RingReader reader_;
  std::vector<std::byte> taken_;
};

TEST_F(ShmRingTest, CarriesRecordsInOrderAcrossItsEnd) {
  // 20,000 bytes each: three fit, and every fourth is cut by the end of the ring.
  for (int i = 0; i < 50; ++i) {
    const std::string body(20000, static_cast<char>('a' + i % 26));
    ASSERT_TRUE(Write(body)) << i;
    ASSERT_EQ(Take(), body) << i;
  }
  EXPECT_EQ(Take(), "none");
}

TEST_F(ShmRingTest, SaysWhatARecordIs) {
  Write("body", 3);
  const auto record = reader_.Take(&taken_);
  ASSERT_TRUE(record.ok() && record->has_value());
  EXPECT_EQ((*record)->header.size, 4u);
  EXPECT_EQ((*record)->header.kind, 3u);
  EXPECT_EQ((*record)->header.call, 1u);
  EXPECT_EQ((*record)->header.code, 2u);
}

TEST_F(ShmRingTest, HasRoomAgainOnceARecordIsRead) {
  // 65,536 with its header and two more; then it is full to the last byte.
  EXPECT_TRUE(Write(std::string(kRingBytes - 48, 'x')));
  EXPECT_TRUE(Write("last"));
  EXPECT_FALSE(Write(""));
  EXPECT_EQ(Take().size(), kRingBytes - 48);
  EXPECT_TRUE(Write(""));
  EXPECT_EQ(Take(), "last");
  EXPECT_EQ(Take(), "");
}

TEST_F(ShmRingTest, TakesACopyThatTheWriterCannotChange) {
  Write("true");
  const auto record = reader_.Take(&taken_);
  ASSERT_TRUE(record.ok() && record->has_value());
  std::memcpy(memory_.bytes + sizeof(RingHeader), "lies", 4);
  EXPECT_EQ(std::memcmp((*record)->body.data(), "true", 4), 0);
}

TEST_F(ShmRingTest, ARecordWhoseSizeGrewAfterItWasCheckedIsStillAsItWasChecked) {
  Write("1234");
  const auto record = reader_.Peek();
  ASSERT_TRUE(record.ok() && record->has_value());
  const uint32_t more = 60000;
  std::memcpy(memory_.bytes, &more, sizeof(more));
  EXPECT_EQ((*record)->body.size(), 4u);
  reader_.Advance(**record);
  EXPECT_EQ(Take(), "none");
}

TEST_F(ShmRingTest, RefusesMoreThanTheRingHolds) {
  memory_.places->written = kRingBytes + 16;
  EXPECT_EQ(Take(),
            "shared memory: 65552 bytes were written, expecting a multiple of 16, at most 65536");
}

TEST_F(ShmRingTest, RefusesAPlaceThatWentBack) {
  Write("one");
  ASSERT_EQ(Take(), "one");
  memory_.places->written = 16;
  EXPECT_EQ(Take(),
            "shared memory: 18446744073709551600 bytes were written, expecting a multiple "
            "of 16, at most 65536");
}

TEST_F(ShmRingTest, RefusesAPlaceWithinARecord) {
  memory_.places->written = 17;
  EXPECT_EQ(Take(),
            "shared memory: 17 bytes were written, expecting a multiple of 16, at most 65536");
}

TEST_F(ShmRingTest, RefusesARecordLongerThanWhatWasWritten) {
  Write("four");
  const uint32_t size = 17;
  std::memcpy(memory_.bytes, &size, sizeof(size));
  EXPECT_EQ(Take(),
            "shared memory: a record of 17 bytes among 32 that were written, expecting at "
            "most 1114112");
  const uint32_t most = 0xffffffff;
  std::memcpy(memory_.bytes, &most, sizeof(most));
  EXPECT_EQ(Take(),
            "shared memory: a record of 4294967295 bytes among 32 that were written, "
            "expecting at most 1114112");
}

TEST_F(ShmRingTest, TheReadersOwnPlaceIsNotInSharedMemory) {
  Write("one");
  ASSERT_EQ(Take(), "one");
  // A foreign write to the reader's place changes only what the writer believes.
  memory_.places->read = 0;
  Write("two");
  EXPECT_EQ(Take(), "two");
}

TEST_F(ShmRingTest, RefusesToWriteWhenMoreWasReadThanWritten) {
  ASSERT_TRUE(Write(std::string(kRingBytes - 16, 'x')));
  memory_.places->read = kRingBytes + 16;
  const absl::StatusOr<std::byte*> to = writer_.Reserve(100);
  EXPECT_EQ(to.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(to.status().message(), "shared memory: 65552 bytes were read, expecting at most 65536");
}

TEST_F(ShmRingTest, RefusesToWriteWhenTheReaderWentBack) {
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(Write(std::string(20000, 'x')));
    Take();
  }
  memory_.places->read = 0;
  EXPECT_FALSE(writer_.Reserve(60000).ok());
}

// The size of the next record keeps changing between valid and invalid values while it is read.
// Every record that the reader returns must lie within the ring and have the size in its header,
// which is read once.
TEST_F(ShmRingTest, AWriterThatChangesARecordWhileItIsReadGivesNothingThatCannotBe) {
  constexpr uint32_t kSizes[] = {4, 4000, 60000, 0xffffffff, 0};
  std::atomic<bool> done{false};
  std::thread lying([&] {
    for (uint64_t i = 0; !done.load(std::memory_order_relaxed); ++i) {
      const uint64_t next = memory_.places->read.load(std::memory_order_relaxed) % kRingBytes;
      Overwrite(memory_.bytes + next, kSizes[i % std::size(kSizes)]);
    }
  });
  uint64_t read = 0;
  int taken = 0, refused = 0;
  // Runs until the two threads have met often enough; the limit is that of the test.
  while (taken < 300000 || refused < 1000) {
    // There is always a whole ring to read.
    memory_.places->written = read + kRingBytes;
    const auto record = reader_.Take(&taken_);
    if (!record.ok()) {
      ++refused;
      continue;
    }
    const bool can_be = record->has_value() && (*record)->body.size() == (*record)->header.size &&
                        (*record)->header.size <= kRingBytes - sizeof(RingHeader) &&
                        (*record)->body.data() == taken_.data();
    EXPECT_TRUE(can_be) << "after " << taken << " records";
    if (!can_be) break;
    // A reader advances by the record that it got, not by the present content of the ring.
    read += sizeof(RingHeader) + ((*record)->header.size + 15) / 16 * 16;
    const uint64_t place = memory_.places->read.load();
    EXPECT_EQ(place, read) << "after " << taken << " records";
    if (place != read) break;
    ++taken;
  }
  done = true;
  lying.join();
}

TEST_F(ShmRingTest, PassesBetweenTwoThreadsAndTwoMappings) {
  const std::unique_ptr<ShmRegion> other =
      ShmRegion::Open(Descriptor(dup(region_->descriptor()))).value();
  constexpr int kRecords = 20000;
  std::thread writing([&] {
    RingWriter writer(other->requests());
    for (int i = 0; i < kRecords;) {
      const size_t size = i % 5000;
      std::byte* const to = writer.Reserve(size).value();
      if (to == nullptr) continue;
      std::memset(to, i % 251, size);
      writer.Commit({static_cast<uint32_t>(size), static_cast<uint32_t>(i), 0, 0});
      ++i;
    }
  });
  for (int i = 0; i < kRecords;) {
    const auto record = reader_.Take(&taken_);
    if (!record.ok()) {
      ADD_FAILURE() << record.status();
      break;
    }
    if (!record->has_value()) continue;
    EXPECT_EQ((*record)->header.kind, static_cast<uint32_t>(i));
    EXPECT_EQ((*record)->body, std::vector<std::byte>(i % 5000, std::byte(i % 251)));
    ++i;
  }
  writing.join();
}

}  // namespace
}  // namespace kaon::proto
