#include "server/checkpoint/written_by.h"

#include <gtest/gtest.h>

#include <string>

namespace kaon::checkpoint {
namespace {

TEST(WrittenByTest, SaysBuildBackendAndDevice) {
  const v1::CheckpointFile file = WrittenBy("cpu/onednn", "Xeon");
  EXPECT_FALSE(file.build().empty());
  EXPECT_EQ(file.backend(), "cpu/onednn");
  EXPECT_EQ(file.device_class(), "Xeon");
}

v1::CheckpointFile By(const std::string& build, const std::string& backend,
                      const std::string& device_class) {
  v1::CheckpointFile file;
  file.set_build(build);
  file.set_backend(backend);
  file.set_device_class(device_class);
  return file;
}

TEST(WrittenByTest, NamesBothWhereBitsMayDiffer) {
  const v1::CheckpointFile present = By("kaon 2", "cpu/onednn", "Xeon");
  EXPECT_EQ(CheckSameBits("it", present, "shard 0", present), absl::OkStatus());
  for (const v1::CheckpointFile& other :
       {By("kaon 1", "cpu/onednn", "Xeon"), By("kaon 2", "cpu/reference", "Xeon"),
        By("kaon 2", "cpu/onednn", "EPYC")}) {
    EXPECT_EQ(CheckSameBits("it", other, "shard 0", present).code(),
              absl::StatusCode::kFailedPrecondition);
  }
  EXPECT_EQ(CheckSameBits("it", By("kaon 1", "cpu/onednn", "EPYC"), "shard 0", present).message(),
            "it was written by build 'kaon 1', backend 'cpu/onednn', device class 'EPYC', shard 0 "
            "has build 'kaon 2', backend 'cpu/onednn', device class 'Xeon': later steps may differ "
            "in their last bits; --allow-other-build takes it");
}

TEST(WrittenByTest, AnImportAndWhatDoesNotSayIsOfAny) {
  const v1::CheckpointFile present = By("kaon 2", "cpu/onednn", "Xeon");
  EXPECT_EQ(CheckSameBits("it", WrittenByImport(), "shard 0", present), absl::OkStatus());
  EXPECT_EQ(CheckSameBits("it", By("", "cpu/onednn", ""), "shard 0", present), absl::OkStatus());
}

}  // namespace
}  // namespace kaon::checkpoint
