#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "kernels/backend.h"
#include "kernels/gemm/amx_tiles.h"
#include "kernels/vector_dispatch.h"

namespace kaon::kernels {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

BackendOptions Plugin(const std::string& name) {
  BackendOptions options;
  options.name = name;
  options.plugin_dir = "tests/kernels";
  return options;
}

TEST(BackendFactoryTest, CpuBackendUsesTheProductsAskedFor) {
  for (const std::string gemm : {"onednn", "reference"}) {
    BackendOptions options;
    options.gemm = gemm;
    const absl::StatusOr<std::unique_ptr<Backend>> backend = CreateBackend(options);
    ASSERT_TRUE(backend.ok()) << backend.status();
    EXPECT_EQ((*backend)->name(), "cpu/" + gemm);
  }
}

TEST(BackendFactoryTest, TakesTheTilesWhereTheMachineHasThem) {
  const absl::StatusOr<std::unique_ptr<Backend>> widest = CreateBackend({});
  ASSERT_TRUE(widest.ok()) << widest.status();
  EXPECT_EQ((*widest)->name(), HasAmx() ? "cpu/amx" : "cpu/onednn");
  BackendOptions options;
  options.gemm = "amx";
  const absl::StatusOr<std::unique_ptr<Backend>> amx = CreateBackend(options);
  if (HasAmx()) {
    ASSERT_TRUE(amx.ok()) << amx.status();
    EXPECT_EQ((*amx)->name(), "cpu/amx");
  } else {
    EXPECT_EQ(amx.status().code(), absl::StatusCode::kFailedPrecondition);
  }
}

TEST(BackendFactoryTest, RefusesUnknownProductsByName) {
  BackendOptions options;
  options.gemm = "blas";
  const absl::Status status = CreateBackend(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("gemm"), HasSubstr("\"blas\"")));
}

TEST(BackendFactoryTest, RefusesThreadsOutOfRange) {
  for (const int threads : {0, 257}) {
    BackendOptions options;
    options.threads = threads;
    const absl::Status status = CreateBackend(options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(), "threads: is " + std::to_string(threads) + ", must be 1 .. 256");
  }
}

TEST(BackendFactoryTest, ChoosesTheInstructionSetOfTheProcess) {
  BackendOptions options;
  options.isa = "scalar";
  ASSERT_TRUE(CreateBackend(options).ok());
  EXPECT_EQ(ChosenInstructionSet(), InstructionSet::kScalar);
  options.isa = "sse2";
  const absl::Status status = CreateBackend(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "isa: is \"sse2\", must be widest, avx512, avx2 or scalar");
  // A refusal changes nothing.
  EXPECT_EQ(ChosenInstructionSet(), InstructionSet::kScalar);
  options.isa = "widest";
  ASSERT_TRUE(CreateBackend(options).ok());
  EXPECT_EQ(ChosenInstructionSet(), WidestInstructionSet());
}

TEST(BackendFactoryTest, RefusesAnInstructionSetThatTheMachineDoesNotHave) {
  BackendOptions options;
  options.isa = "avx512";
  const bool has_it = WidestInstructionSet() == InstructionSet::kAvx512;
  EXPECT_EQ(CreateBackend(options).status().code(),
            has_it ? absl::StatusCode::kOk : absl::StatusCode::kFailedPrecondition);
}

TEST(BackendFactoryTest, LoadsAPluginByItsName) {
  const absl::StatusOr<std::unique_ptr<Backend>> backend = CreateBackend(Plugin("echo"));
  ASSERT_TRUE(backend.ok()) << backend.status();
  EXPECT_EQ((*backend)->name(), "echo");
  EXPECT_EQ((*backend)->Digest(0, 0, {}), 4711u);
}

TEST(BackendFactoryTest, APluginTakesTheDeviceAskedForOrSaysWhyNot) {
  BackendOptions options = Plugin("echo");
  options.device = 2;
  EXPECT_EQ(CreateBackend(options).value()->device_class(), "device 2");
  options.device = 8;
  const absl::Status status = CreateBackend(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(),
            "backend echo: tests/kernels/libkaon_echo.so: no device 8, this machine has 8");
}

TEST(BackendFactoryTest, JoinsAPluginWithTheCpuIfTensorsStayInHostMemory) {
  BackendOptions options = Plugin("echo");
  options.host_memory = true;
  options.gemm = "reference";
  const absl::StatusOr<std::unique_ptr<Backend>> backend = CreateBackend(options);
  ASSERT_TRUE(backend.ok()) << backend.status();
  EXPECT_EQ((*backend)->name(), "echo+cpu/reference");
  EXPECT_EQ((*backend)->memory_tier(), "cpu");
  options.gemm = "blas";
  EXPECT_EQ(CreateBackend(options).status().code(), absl::StatusCode::kInvalidArgument);
  options = {};
  options.host_memory = true;
  EXPECT_EQ((*CreateBackend(options))->name().find("cpu/"), 0u);
}

TEST(BackendFactoryTest, MissingPluginIsNotFoundWithLibraryAndReason) {
  const absl::Status status = CreateBackend(Plugin("absent")).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("tests/kernels/libkaon_absent.so"), HasSubstr("No such file")));
}

TEST(BackendFactoryTest, RefusesAPluginOfAnotherInterfaceVersion) {
  const absl::Status status = CreateBackend(Plugin("stale")).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("version 999"), HasSubstr(std::to_string(kBackendVersion))));
}

TEST(BackendFactoryTest, RefusesALibraryThatIsNoPlugin) {
  const absl::Status status = CreateBackend(Plugin("empty")).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("kaon_create_backend"));
}

TEST(BackendFactoryTest, RefusesANameThatIsAPath) {
  for (const std::string name : {"", "../echo", "a/b", "x.so"}) {
    EXPECT_EQ(CreateBackend(Plugin(name)).status().code(), absl::StatusCode::kInvalidArgument)
        << name;
  }
}

}  // namespace
}  // namespace kaon::kernels
