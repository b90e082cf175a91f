#include "server/tier/nvme_tier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/mutex.h"
#include "server/disk/completion.h"
#include "server/disk/device_error.h"
#include "server/disk/open_block_file.h"
#include "tests/kernels/forwarding_backend.h"
#include "tests/simulation/disk/simulated_block_file.h"

namespace kaon::tier {
namespace {

using disk::kBlockBytes;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr uint64_t kFileBytes = 4096 * kBlockBytes;

// Counts the most memory in use.
class CountingBackend : public kernels::ForwardingBackend {
 public:
  CountingBackend() : ForwardingBackend(kernels::CreateBackend({}).value()) {}

  absl::StatusOr<absl::Span<std::byte>> AllocateStaging(uint64_t bytes) override {
    MutexLock lock(mu_);
    most_ = std::max(most_, used_ += bytes);
    return ForwardingBackend::AllocateStaging(bytes);
  }
  void FreeStaging(absl::Span<std::byte> staging) override {
    MutexLock lock(mu_);
    used_ -= staging.size();
    ForwardingBackend::FreeStaging(staging);
  }
  uint64_t most() const {
    MutexLock lock(mu_);
    return most_;
  }

 private:
  mutable Mutex mu_;
  uint64_t used_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t most_ ABSL_GUARDED_BY(mu_) = 0;
};

// Records operations of a file.
class RecordingFile : public disk::BlockFile {
 public:
  explicit RecordingFile(std::unique_ptr<disk::BlockFile> file) : file_(std::move(file)) {}

  void Read(uint64_t offset, absl::Span<std::byte> to, Done done) override {
    Record("read ", offset);
    file_->Read(offset, to, std::move(done));
  }
  void Write(uint64_t offset, absl::Span<const std::byte> from, Done done) override {
    Record("write ", offset);
    file_->Write(offset, from, std::move(done));
  }
  absl::Status Sync() override { return file_->Sync(); }
  uint64_t size_bytes() const override { return file_->size_bytes(); }
  const std::string& path() const override { return file_->path(); }

  // Returns the calls since the last one.
  std::vector<std::string> TakeCalls() {
    MutexLock lock(mu_);
    return std::exchange(calls_, {});
  }

 private:
  void Record(const char* what, uint64_t offset) {
    MutexLock lock(mu_);
    calls_.push_back(absl::StrCat(what, offset / kBlockBytes));
  }

  const std::unique_ptr<disk::BlockFile> file_;
  Mutex mu_;
  std::vector<std::string> calls_ ABSL_GUARDED_BY(mu_);
};

// The same steps in plain vectors: w' = w + m + place + unit + 1, m' = 3 m + w.
struct Plain {
  std::vector<uint32_t> weights;
  std::vector<uint32_t> state;
  uint32_t unit = 0;

  void Step() {
    for (size_t i = 0; i < weights.size(); ++i) {
      const uint32_t w = weights[i];
      weights[i] = w + state[i % state.size()] + static_cast<uint32_t>(i) + unit + 1;
      state[i % state.size()] = 3 * state[i % state.size()] + w;
    }
  }
};

absl::Span<const uint32_t> Words(kernels::ConstRegion region) {
  const absl::Span<const std::byte> bytes = region.host_bytes();
  return {reinterpret_cast<const uint32_t*>(bytes.data()), bytes.size() / 4};
}

void Step(UnitUpdatePin pin, UnitId id) {
  Plain next;
  next.unit = static_cast<uint32_t>(id);
  next.weights.assign(Words(pin.weights()).begin(), Words(pin.weights()).end());
  next.state.assign(Words(pin.state(0)).begin(), Words(pin.state(0)).end());
  next.Step();
  std::copy(next.weights.begin(), next.weights.end(),
            reinterpret_cast<uint32_t*>(pin.next_weights().data()));
  std::copy(next.state.begin(), next.state.end(), reinterpret_cast<uint32_t*>(pin.state(0).data()));
  pin.Commit();
}

// Bytes of staging of which `units` units of AddUnits get three quarters.
uint64_t Staging(uint64_t units, uint64_t weight_blocks) {
  return (units * UnitMemory::BytesFor(3 * weight_blocks * kBlockBytes) * 4 + 2) / 3;
}

class NvmeTierTest : public testing::Test {
 protected:
  NvmeTierTest() { Use(*simulation::SimulatedBlockFile::Open(disk_, "state", kFileBytes)); }

  void Use(std::unique_ptr<disk::BlockFile> file) {
    file_ = std::make_unique<RecordingFile>(std::move(file));
  }
  void TearDown() override {
    tier_.reset();
    file_.reset();
    std::filesystem::remove(path_);
  }
  void MakeTier(uint64_t staging_bytes) {
    tier_.reset();
    disk::BlockFile* const files[] = {file_.get()};
    tier_ = std::make_unique<NvmeTier>(files, backend_, staging_bytes);
  }
  // Units of weights of `weight_blocks` blocks and as much state.
  void AddUnits(size_t count, uint64_t weight_blocks) {
    for (size_t i = 0; i < count; ++i) {
      const uint64_t bytes = weight_blocks * kBlockBytes;
      const auto id = tier_->Add(absl::StrCat("u", plain_.size()), bytes, {bytes});
      ASSERT_TRUE(id.ok()) << id.status();
      plain_.push_back({std::vector<uint32_t>(bytes / 4), std::vector<uint32_t>(bytes / 4),
                        static_cast<uint32_t>(*id)});
    }
  }
  void StepUnit(UnitId id) {
    auto pin = tier_->PinForUpdate(id);
    ASSERT_TRUE(pin.ok()) << pin.status();
    Step(*std::move(pin), id);
    plain_[id].Step();
  }
  void ExpectNewest(UnitId id) {
    const auto pin = tier_->Pin(id);
    ASSERT_TRUE(pin.ok()) << pin.status();
    EXPECT_EQ(Words(pin->tensor(0)), absl::MakeConstSpan(plain_[id].weights)) << id;
    EXPECT_EQ(Words(pin->tensor(1)), absl::MakeConstSpan(plain_[id].state)) << id;
  }
  std::vector<uint32_t> Read(UnitId id, int version, size_t tensor) {
    std::vector<uint32_t> words(plain_[id].weights.size());
    const absl::Status status = tier_->Read(
        id, version, tensor, 0, {reinterpret_cast<std::byte*>(words.data()), words.size() * 4});
    EXPECT_EQ(status, absl::OkStatus());
    return words;
  }

  const std::string path_ = testing::TempDir() + "/nvme_tier";
  simulation::SimulatedDirectory disk_{"/nvme", 1};
  std::unique_ptr<RecordingFile> file_;
  CountingBackend backend_;
  std::vector<Plain> plain_;
  std::unique_ptr<NvmeTier> tier_;
};

// Runs on a file of this machine.
class NvmeTierOnDiskTest : public NvmeTierTest, public testing::WithParamInterface<disk::FileIo> {
 protected:
  void SetUp() override {
    auto file = disk::OpenBlockFile(path_, kFileBytes, GetParam());
    if (absl::IsFailedPrecondition(file.status())) GTEST_SKIP() << file.status();
    ASSERT_TRUE(file.ok()) << file.status();
    Use(*std::move(file));
  }
};

INSTANTIATE_TEST_SUITE_P(Threads, NvmeTierOnDiskTest, testing::Values(disk::FileIo::kThreads));
INSTANTIATE_TEST_SUITE_P(Uring, NvmeTierOnDiskTest, testing::Values(disk::FileIo::kUring));

TEST_P(NvmeTierOnDiskTest, EndsInTheBitsOfMemoryWithinItsStaging) {
  MakeTier(Staging(2, 20));
  for (const uint64_t blocks : {1, 20, 3, 7, 7, 7, 20, 20, 1, 2}) AddUnits(1, blocks);
  std::vector<UnitId> order(plain_.size());
  std::iota(order.begin(), order.end(), 0u);
  for (int step = 0; step < 40; ++step) {
    tier_->Prefetch(order);
    for (const UnitId id : order) StepUnit(id);
    std::reverse(order.begin(), order.end());
  }
  for (const UnitId id : order) ExpectNewest(id);
  EXPECT_EQ(tier_->Flush(), absl::OkStatus());
  EXPECT_LE(backend_.most(), Staging(2, 20));
}

TEST_F(NvmeTierTest, KeepsWhatWasWrittenLastForTheNextStep) {
  MakeTier(Staging(4, 1));
  AddUnits(10, 1);
  std::vector<UnitId> order = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  for (int step = 0; step < 3; ++step) {
    tier_->Prefetch(order);
    for (const UnitId id : order) StepUnit(id);
    std::reverse(order.begin(), order.end());
  }
  // The first step reads nothing; each other step finds four units of ten in memory.
  EXPECT_EQ(tier_->counters().read_bytes, 2 * 6 * 2 * kBlockBytes);
  EXPECT_EQ(tier_->counters().written_bytes, 3 * 10 * 2 * kBlockBytes);
}

TEST_F(NvmeTierTest, ReadsAheadInTheOrderToldAndWritesTheOtherVersion) {
  MakeTier(Staging(3, 1));
  AddUnits(6, 1);
  for (UnitId id = 0; id < 6; ++id) StepUnit(id);
  file_->TakeCalls();
  // The last three are in memory. A version has two blocks, a unit four; each is at version 1.
  const std::vector<UnitId> order = {2, 0, 1};
  tier_->Prefetch(order);
  EXPECT_THAT(file_->TakeCalls(), ElementsAre("read 10", "read 2", "read 6"));
  for (const UnitId id : order) StepUnit(id);
  EXPECT_THAT(file_->TakeCalls(), ElementsAre("write 8", "write 0", "write 4"));
  EXPECT_EQ(tier_->counters().hits, 3u);
}

TEST_F(NvmeTierTest, ADroppedUpdateChangesNothing) {
  MakeTier(Staging(2, 1));
  AddUnits(1, 1);
  for (int step = 0; step < 3; ++step) {
    {
      auto pin = tier_->PinForUpdate(0);
      ASSERT_TRUE(pin.ok()) << pin.status();
      std::fill_n(pin->state(0).data(), kBlockBytes, std::byte{7});
      std::fill_n(pin->next_weights().data(), kBlockBytes, std::byte{8});
    }
    ExpectNewest(0);
    StepUnit(0);
    ExpectNewest(0);
  }
}

TEST_F(NvmeTierTest, ReadsBothVersionsWhereverTheyAre) {
  MakeTier(Staging(2, 5));
  AddUnits(4, 5);
  EXPECT_EQ(Read(0, tier_->newest(0), 0), plain_[0].weights) << "zeros";
  StepUnit(0);
  Plain older = plain_[0];
  StepUnit(0);
  for (int i = 0; i < 2; ++i) {
    const int newest = tier_->newest(0);
    EXPECT_EQ(Read(0, newest, 0), plain_[0].weights);
    EXPECT_EQ(Read(0, newest, 1), plain_[0].state);
    EXPECT_EQ(Read(0, 1 - newest, 0), older.weights);
    EXPECT_EQ(Read(0, 1 - newest, 1), older.state);
    // Takes the memory of unit 0. Then it has the newest version alone.
    for (UnitId id = 1; id < 4; ++id) StepUnit(id);
    if (i == 0) ExpectNewest(0);
  }
  std::byte some[5000];
  ASSERT_EQ(tier_->Read(0, tier_->newest(0), 1, 4001, absl::MakeSpan(some)), absl::OkStatus());
  EXPECT_EQ(std::memcmp(some, reinterpret_cast<const char*>(plain_[0].state.data()) + 4001, 5000),
            0);
}

TEST_P(NvmeTierOnDiskTest, DoesNotUpdateAUnitThatIsStillWritten) {
  MakeTier(kFileBytes);
  AddUnits(1, 500);
  for (int step = 0; step < 20; ++step) {
    Step(*tier_->PinForUpdate(0), 0);
    {
      auto pin = tier_->PinForUpdate(0);
      ASSERT_TRUE(pin.ok()) << pin.status();
      std::memset(pin->state(0).data(), 0xab, pin->state(0).size());
    }
    plain_[0].Step();
    ExpectNewest(0);
  }
}

TEST_P(NvmeTierOnDiskTest, ReadersOfOtherThreadsSeeWholeVersions) {
  MakeTier(Staging(5, 1));
  AddUnits(8, 1);
  // Every word of a unit tells its version.
  std::atomic<bool> stop{false};
  std::vector<std::thread> readers;
  for (UnitId first = 0; first < 2; ++first) {
    readers.emplace_back([&, first] {
      for (UnitId id = first; !stop; id = (id + 3) % 8) {
        const auto pin = tier_->Pin(id);
        ASSERT_TRUE(pin.ok()) << pin.status();
        const uint32_t version = Words(pin->tensor(0))[0];
        for (const size_t tensor : {0, 1}) {
          const absl::Span<const uint32_t> words = Words(pin->tensor(tensor));
          ASSERT_EQ(std::count(words.begin(), words.end(), version), 1024);
        }
      }
    });
  }
  for (uint32_t version = 1; version <= 200; ++version) {
    for (UnitId id = 0; id < 8; ++id) {
      auto pin = tier_->PinForUpdate(id);
      ASSERT_TRUE(pin.ok()) << pin.status();
      ASSERT_EQ(Words(pin->weights())[0], version - 1);
      std::fill_n(reinterpret_cast<uint32_t*>(pin->next_weights().data()), 1024, version);
      std::fill_n(reinterpret_cast<uint32_t*>(pin->state(0).data()), 1024, version);
      pin->Commit();
    }
  }
  stop = true;
  for (std::thread& reader : readers) reader.join();
}

TEST_F(NvmeTierTest, ReadsAUnitOnceHoweverMuchIsReadAhead) {
  MakeTier(Staging(2, 1));
  AddUnits(6, 1);
  for (UnitId id = 0; id < 6; ++id) StepUnit(id);
  const auto held = tier_->Pin(0);
  ASSERT_TRUE(held.ok()) << held.status();
  tier_->Prefetch({1, 2, 3});
  file_->TakeCalls();
  ExpectNewest(5);
  // The pin comes first; then there is room for the first of the order again.
  EXPECT_THAT(file_->TakeCalls(), ElementsAre("read 22", "read 10"));
}

TEST_F(NvmeTierTest, AVersionThatWasNeverCommittedIsZeros) {
  const UnitMemory dirty = *UnitMemory::Allocate(backend_, 64 * kBlockBytes);
  std::memset(dirty.bytes().data(), 9, dirty.bytes().size());
  file_->Write(0, dirty.bytes(), [](const absl::Status& status) { ASSERT_TRUE(status.ok()); });
  MakeTier(Staging(2, 1));
  AddUnits(4, 1);
  StepUnit(0);
  const std::vector<uint32_t> zeros(kBlockBytes / 4);
  for (int i = 0; i < 2; ++i) {
    for (const size_t tensor : {0, 1}) {
      EXPECT_EQ(Read(0, 1 - tier_->newest(0), tensor), zeros) << tensor;
      EXPECT_EQ(Read(3, tier_->newest(3), tensor), zeros) << tensor;
    }
    for (UnitId id = 1; id < 3; ++id) StepUnit(id);
  }
}

TEST_F(NvmeTierTest, TheNewestWeightsAreReadWhileAnUpdateIsDropped) {
  MakeTier(Staging(2, 200));
  AddUnits(3, 200);
  for (UnitId id = 0; id < 3; ++id) StepUnit(id);
  std::atomic<bool> stop{false};
  std::thread reader([&] {
    while (!stop) EXPECT_EQ(Read(0, tier_->newest(0), 0), plain_[0].weights);
  });
  for (int i = 0; i < 30; ++i) {
    { const auto dropped = tier_->PinForUpdate(0); }
    // Takes the memory.
    ExpectNewest(1);
    ExpectNewest(2);
  }
  stop = true;
  reader.join();
}

TEST_F(NvmeTierTest, AReadThatFailsEndsTheTier) {
  MakeTier(Staging(2, 1));
  AddUnits(4, 1);
  for (UnitId id = 0; id < 4; ++id) StepUnit(id);
  disk_.FailAfter(0);
  std::byte some[8];
  const absl::Status status = tier_->Read(0, tier_->newest(0), 0, 0, absl::MakeSpan(some));
  EXPECT_TRUE(disk::IsDeviceError(status)) << status;
  disk_.SetHealthy();
  EXPECT_EQ(tier_->Pin(3).status(), status);
  EXPECT_EQ(tier_->Flush(), status);
}

TEST_F(NvmeTierTest, NamesTheUnitWhenTheDiskFailsAndStaysFailed) {
  for (const bool on_write : {true, false}) {
    disk_.SetHealthy();
    MakeTier(Staging(2, 1));
    plain_.clear();
    AddUnits(4, 1);
    for (UnitId id = 0; id < 4; ++id) StepUnit(id);
    disk_.FailAfter(0);
    if (on_write) StepUnit(3);
    for (const UnitId id : {1, 2}) {
      const absl::Status status = tier_->Pin(id).status();
      EXPECT_TRUE(disk::IsDeviceError(status)) << status;
      EXPECT_THAT(status.message(), HasSubstr(on_write ? "unit u3: " : "unit u1: "));
    }
    EXPECT_FALSE(tier_->Flush().ok());
  }
}

TEST_F(NvmeTierTest, RefusesUnitsThatDoNotFitWithTheArithmetic) {
  MakeTier(20 * kBlockBytes);
  const absl::Status staging = tier_->Add("large", 4 * kBlockBytes, {4 * kBlockBytes}).status();
  EXPECT_EQ(staging.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(
      staging.message(),
      HasSubstr(absl::StrCat("it takes ", 13 * kBlockBytes,
                             " bytes of memory, and three quarters of ", 20 * kBlockBytes,
                             " bytes of staging must hold it twice; raise --nvme-staging-bytes to ",
                             35 * kBlockBytes)));
  MakeTier(35 * kBlockBytes);
  EXPECT_TRUE(tier_->Add("large", 4 * kBlockBytes, {4 * kBlockBytes}).ok());
  MakeTier(2 * kFileBytes);
  AddUnits(1, 1000);
  const uint64_t used = tier_->used_bytes();
  EXPECT_EQ(used, 4000 * kBlockBytes);
  const absl::Status file = tier_->Add("more", 49 * kBlockBytes, {1}).status();
  EXPECT_EQ(file.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(file.message(),
              AllOf(HasSubstr(absl::StrCat("take ", 100 * kBlockBytes, " bytes of /nvme/state")),
                    HasSubstr(absl::StrCat("has ", 96 * kBlockBytes, " of ", kFileBytes,
                                           " left in one piece; raise --nvme-bytes"))));
  EXPECT_EQ(tier_->used_bytes(), used);
  tier_->Clear();
  EXPECT_EQ(tier_->used_bytes(), 0u);
}

TEST_F(NvmeTierTest, AChangedByteIsFoundByEveryReadAndFailsTheTier) {
  for (const int way : {0, 1, 2}) {
    SCOPED_TRACE(way);
    plain_.clear();
    std::vector<absl::Status> failures;
    tier_.reset();
    disk::BlockFile* const files[] = {file_.get()};
    tier_ =
        std::make_unique<NvmeTier>(files, backend_, Staging(2, 4),
                                   [&](const absl::Status& status) { failures.push_back(status); });
    AddUnits(6, 4);
    for (UnitId id = 0; id < 6; ++id) StepUnit(id);
    ASSERT_TRUE(tier_->Flush().ok());
    // The second block of the newest version of unit 0, which has 8 blocks.
    const UnitMemory block = *UnitMemory::Allocate(backend_, kBlockBytes);
    std::memset(block.bytes().data(), 0x5a, kBlockBytes);
    disk::Completion written;
    file_->Write(9 * kBlockBytes, block.bytes(), written.Callback());
    ASSERT_TRUE(written.Wait().ok());
    std::byte byte;
    const absl::Status status = way == 0   ? tier_->Pin(0).status()
                                : way == 1 ? tier_->PinForUpdate(0).status()
                                           : tier_->Read(0, 1, 0, 1, absl::MakeSpan(&byte, 1));
    EXPECT_TRUE(disk::IsDeviceError(status)) << status;
    EXPECT_THAT(status.message(), HasSubstr("unit u0: the file has other bytes than were written"));
    ASSERT_EQ(failures.size(), 1u);
    EXPECT_EQ(failures[0], status);
    EXPECT_FALSE(tier_->Pin(1).ok());
  }
}

// Edge 24: state in the file and state in memory end in the same bits.
TEST_F(NvmeTierTest, StateMayStayInMemory) {
  MakeTier(Staging(2, 4));
  std::vector<std::vector<float>> state(6, std::vector<float>(kBlockBytes));
  const std::vector<uint32_t> zeros(kBlockBytes);
  for (uint32_t i = 0; i < 6; ++i) {
    ASSERT_TRUE(tier_->Add("u", 4 * kBlockBytes, {}, {kernels::Region(state[i])}).ok());
    plain_.push_back({zeros, zeros, i});
  }
  for (UnitId id = 0; id < 18; ++id) StepUnit(id % 6);
  for (UnitId id = 0; id < 6; ++id) {
    ExpectNewest(id);
    EXPECT_TRUE(tier_->Memory(id, 0, 0).empty());
    EXPECT_EQ(Words(tier_->Memory(id, 1, 1)), absl::MakeConstSpan(plain_[id].state));
  }
}

// Each unit goes to the file with most room.
TEST_F(NvmeTierTest, UnitsAreSpreadOverTheFiles) {
  const auto other = *simulation::SimulatedBlockFile::Open(disk_, "other", kFileBytes / 2);
  disk::BlockFile* const files[] = {file_.get(), other.get()};
  tier_ = std::make_unique<NvmeTier>(files, backend_, Staging(2, 64));
  EXPECT_EQ(tier_->capacity_bytes(), kFileBytes / 2 * 3);
  EXPECT_EQ(tier_->paths(), file_->path() + "," + other->path());
  AddUnits(24, 64);
  EXPECT_THAT(tier_->Add("u24", 64 * kBlockBytes, {}).status().message(),
              AllOf(HasSubstr("its two versions take "), HasSubstr("raise --nvme-bytes")));
  for (UnitId id = 0; id < 72; ++id) StepUnit(id % 24);
  for (UnitId id = 0; id < 24; ++id) ExpectNewest(id);
}

}  // namespace
}  // namespace kaon::tier
