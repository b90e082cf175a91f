#include "kernels/nccl/nccl_api.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

namespace kaon::kernels {
namespace {

constexpr char kFolder[] = "tests/kernels/nccl/";

class NcclApiTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string path = std::string(kFolder) + "libtest_nccl.so";
    auto api = NcclApi::Load(path);
    ASSERT_TRUE(api.ok()) << api.status();
    api_ = *std::move(api);
    void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    calls_ = reinterpret_cast<const char* (*)()>(dlsym(library, "test_nccl_calls"));
    calls_();
  }

  std::unique_ptr<NcclApi> api_;
  const char* (*calls_)() = nullptr;
};

TEST_F(NcclApiTest, TellsTheVersionAndMakesIds) {
  EXPECT_EQ(api_->version(), "2.28.9");
  const auto id = api_->NewId();
  ASSERT_TRUE(id.ok()) << id.status();
  EXPECT_EQ(*id, [] {
    UniqueId sevens;
    sevens.fill(std::byte{7});
    return sevens;
  }());
}

TEST_F(NcclApiTest, JoinsWithoutBlockingAndSaysWhenItIsReady) {
  UniqueId id;
  id.fill(std::byte{9});
  const auto comm = api_->Init(id, 2, 1, {.max_ctas = 3});
  ASSERT_TRUE(comm.ok()) << comm.status();
  EXPECT_EQ(std::string(calls_()),
            "init 1/2 id 9 size 80 magic cafebeef version 22807 blocking 0 ctas 1..3;");
  EXPECT_EQ(api_->Poll(*comm).kind, CommState::Kind::kInProgress);
  EXPECT_EQ(api_->Poll(*comm).kind, CommState::Kind::kInProgress);
  EXPECT_EQ(api_->Poll(*comm).kind, CommState::Kind::kReady);
}

TEST_F(NcclApiTest, MapsErrorsAndNamesCallAndReason) {
  const std::pair<int, absl::StatusCode> codes[] = {
      {nccl::kSystemError, absl::StatusCode::kUnavailable},
      {nccl::kInternalError, absl::StatusCode::kInternal},
      {nccl::kInvalidArgument, absl::StatusCode::kInvalidArgument},
      {nccl::kInvalidUsage, absl::StatusCode::kInvalidArgument},
      {nccl::kRemoteError, absl::StatusCode::kUnavailable},
      {99, absl::StatusCode::kInternal}};
  for (const auto& [result, code] : codes) {
    const absl::Status status = api_->Init({}, 2, result, {}).status();
    EXPECT_EQ(status.code(), code) << result;
  }
  EXPECT_EQ(api_->Init({}, 2, nccl::kSystemError, {}).status().message(),
            "ncclCommInitRankConfig: an error (2): the test said so");
  const CommState failed = api_->Poll(nullptr);
  EXPECT_EQ(failed.kind, CommState::Kind::kFailed);
  EXPECT_EQ(failed.message, "ncclCommGetAsyncError: an error (4): the test said so");
}

TEST_F(NcclApiTest, TransfersBytesAndRevokesAndAbortsAsOneGroup) {
  std::vector<std::byte> bytes(24);
  const auto one = reinterpret_cast<nccl::Comm>(1);
  const auto two = reinterpret_cast<nccl::Comm>(2);
  const Region memory(Space::kDevice, bytes.data(), bytes.size());
  EXPECT_TRUE(api_->Send(one, memory, 0, nullptr).ok());
  EXPECT_EQ(api_->Receive(two, memory, 1, nullptr),
            absl::UnavailableError("ncclRecv: an error (6): the test said so"));
  EXPECT_TRUE(api_->Revoke(two).ok());
  EXPECT_TRUE(api_->Abort({one, two}).ok());
  EXPECT_EQ(
      std::string(calls_()),
      "send 24 of 1 to 0 on 1;recv 24 of 1 from 1 on 2;revoke 2 0;group;abort 1;abort 2;end;");
}

TEST_F(NcclApiTest, TellsOfAnAbortThatFailed) {
  const auto stuck = reinterpret_cast<nccl::Comm>(66);
  const auto other = reinterpret_cast<nccl::Comm>(2);
  EXPECT_EQ(api_->Abort({stuck, other}),
            absl::FailedPreconditionError("ncclCommAbort: an error (1): the test said so"));
  EXPECT_EQ(std::string(calls_()), "group;abort 66;abort 2;end;");
}

TEST(NcclLoadTest, SaysWhyALibraryIsRefused) {
  const absl::Status absent = NcclApi::Load("libnccl_absent.so.2").status();
  EXPECT_TRUE(absl::IsNotFound(absent)) << absent;
  EXPECT_NE(absent.message().find("libnccl_absent.so.2: cannot open shared object file"),
            std::string::npos)
      << absent;
  const std::string stale = std::string(kFolder) + "libtest_nccl_stale.so";
  EXPECT_EQ(NcclApi::Load(stale).status(),
            absl::FailedPreconditionError("NCCL: " + stale +
                                          " is version 2.27.3, expecting at least 2.28.7"));
  const std::string cut = std::string(kFolder) + "libtest_nccl_cut.so";
  EXPECT_EQ(
      NcclApi::Load(cut).status(),
      absl::FailedPreconditionError("NCCL: " + cut + ", version 2.28.9, has no ncclCommRevoke"));
}

// NCCL itself, where KAON_NCCL_LIBRARY or the loader finds one. No driver is needed.
TEST(NcclLibraryTest, TheRealLibraryHasTheTableAndFailsCleanlyWithoutADevice) {
  const char* const named = std::getenv("KAON_NCCL_LIBRARY");
  const auto api = NcclApi::Load(named != nullptr ? named : NcclApi::kLibrary);
  if (absl::IsNotFound(api.status()) && named == nullptr) {
    GTEST_SKIP() << api.status().message() << "; KAON_NCCL_LIBRARY names one elsewhere";
  }
  ASSERT_TRUE(api.ok()) << api.status();
  const auto first = (*api)->NewId();
  const auto second = (*api)->NewId();
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_NE(*first, *second);
  // On a machine with a device, the first rank waits for the second, which never joins.
  const auto comm = (*api)->Init(*first, 2, 0, {});
  CommState state = {CommState::Kind::kFailed, std::string(comm.status().message())};
  if (comm.ok()) {
    for (int i = 0; i < 1000; ++i) {
      state = (*api)->Poll(*comm);
      if (state.kind != CommState::Kind::kInProgress) break;
    }
    static_cast<void>((*api)->Abort({*comm}));
  }
  EXPECT_NE(state.kind, CommState::Kind::kReady);
}

}  // namespace
}  // namespace kaon::kernels
