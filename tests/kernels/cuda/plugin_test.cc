#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "kernels/reduce/digest.h"
#include "kernels/tensor.h"

namespace kaon::kernels {
namespace {

BackendOptions OptionsOf(const std::string& name, int device) {
  BackendOptions options;
  options.name = name;
  options.device = device;
  options.plugin_dir = "kernels/cuda";
  return options;
}

TEST(CudaPluginTest, LoadsTheLibraryForTheHost) {
  const auto backend = CreateBackend(OptionsOf("cuda_on_host", 1));
  ASSERT_TRUE(backend.ok()) << backend.status();
  EXPECT_EQ((*backend)->name(), "cuda_on_host");
  EXPECT_EQ((*backend)->memory_tier(), "cuda:1");
  const std::vector<float> floats = {1, 2, 3};
  const Tensor tensor(**backend, floats);
  EXPECT_EQ((*backend)->Digest(4, 0, tensor.region()), TensorDigest(4, 0, floats));
}

TEST(CudaPluginTest, SaysThatADeviceDoesNotExist) {
  const absl::Status status = CreateBackend(OptionsOf("cuda_on_host", 99)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("device cuda:99 does not exist"), std::string::npos) << status;
}

// The library itself needs a driver only once a backend is created.
TEST(CudaPluginTest, TheGpusLibraryLoadsAndSaysWhatIsMissing) {
  std::ifstream file("kernels/cuda/libkaon_cuda.txt");
  std::stringstream reason;
  reason << file.rdbuf();
  if (!reason.str().empty()) GTEST_SKIP() << reason.str();
  const auto backend = CreateBackend(OptionsOf("cuda", 0));
  if (backend.ok()) {
    EXPECT_EQ((*backend)->name(), "cuda/cublaslt");
    return;
  }
  EXPECT_EQ(backend.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(backend.status().message().find("device cuda:0 cannot be used: cudaGetDeviceCount: "),
            std::string::npos)
      << backend.status();
}

}  // namespace
}  // namespace kaon::kernels
