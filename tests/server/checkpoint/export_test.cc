#include "server/checkpoint/export.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "server/checkpoint/safetensors/safetensors_reader.h"
#include "tests/server/checkpoint/tiny_checkpoint.h"
#include "tests/simulation/disk/simulated_disk.h"

namespace kaon::checkpoint {
namespace {

class ExportTest : public testing::Test {
 protected:
  v1::CheckpointManifest Checkpoint(const TinyShards& shards = {2, 32, 3}) {
    return WriteCheckpoint(directory_, "a", 10, shards).value();
  }

  simulation::SimulatedDirectory disk_{"disk", 1};
  simulation::SimulatedDirectory out_{"out", 2};
  CheckpointDirectory directory_{disk_};
};

// Returns the bytes of one tensor and sets `*tensor` to its header entry.
std::string BytesOf(disk::Directory& directory, const std::string& file, const std::string& name,
                    Tensor* tensor) {
  const std::unique_ptr<disk::File> opened = directory.Open(file).value();
  const auto reader = SafetensorsReader::Open(*opened, kImportedFiles).value();
  *tensor = **reader->Find(name);
  std::string bytes(tensor->end - tensor->begin, '\0');
  EXPECT_TRUE(reader->Read(*tensor, 0, absl::MakeSpan(bytes)).ok());
  return bytes;
}

TEST_F(ExportTest, HoldsEveryParameterUnderItsOwnNameBitForBit) {
  const v1::CheckpointManifest manifest = Checkpoint();
  const absl::StatusOr<FileSums> sums =
      ExportWeights(directory_, manifest, kernels::DType::kFloat32, out_, "w.safetensors");
  ASSERT_TRUE(sums.ok()) << sums.status();
  const v1::JobDefinition& job = manifest.registration().definition();
  for (int id = 0; id < job.parameters_size(); ++id) {
    Tensor tensor;
    const std::string bytes = BytesOf(out_, "w.safetensors", job.parameters(id).name(), &tensor);
    EXPECT_EQ(bytes, TinyBytes(10, static_cast<uint32_t>(id), "weight", v1::STATE_DTYPE_FLOAT32, 0,
                               bytes.size() / 4));
    EXPECT_EQ(tensor.type, TensorType::kFloat32);
    EXPECT_EQ(tensor.shape, std::vector<uint64_t>(job.parameters(id).shape().begin(),
                                                  job.parameters(id).shape().end()));
  }
  EXPECT_EQ(out_.List().value(), std::vector<std::string>{"w.safetensors"});
  EXPECT_EQ(out_.Open("w.safetensors").value()->Size().value(), sums->num_bytes);
}

// Weights are rounded to the nearest bfloat16 ([M6]).
TEST_F(ExportTest, RoundsToTheNearestBFloat16) {
  const v1::CheckpointManifest manifest = Checkpoint();
  ASSERT_TRUE(
      ExportWeights(directory_, manifest, kernels::DType::kBFloat16, out_, "w.safetensors").ok());
  Tensor tensor;
  const std::string bytes = BytesOf(out_, "w.safetensors", "h.b", &tensor);
  EXPECT_EQ(tensor.type, TensorType::kBFloat16);
  const std::string masters = TinyBytes(10, 1, "weight", v1::STATE_DTYPE_FLOAT32, 0, 70);
  for (size_t i = 0; i < 70; ++i) {
    float master = 0;
    std::memcpy(&master, masters.data() + 4 * i, 4);
    const float rounded = kernels::RoundTo(kernels::DType::kBFloat16, master);
    uint32_t bits = 0;
    std::memcpy(&bits, &rounded, 4);
    uint16_t stored = 0;
    std::memcpy(&stored, bytes.data() + 2 * i, 2);
    EXPECT_EQ(stored, bits >> 16) << i;
  }
}

TEST_F(ExportTest, LeavesNothingOfADamagedCheckpoint) {
  const v1::CheckpointManifest manifest = Checkpoint();
  const v1::CheckpointFile& last = manifest.files(manifest.files_size() - 1);
  ASSERT_TRUE(disk_.FlipBit(last.name(), 8 * last.size() - 1).ok());
  const absl::Status status =
      ExportWeights(directory_, manifest, kernels::DType::kFloat32, out_, "w.safetensors").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(status.message().find(last.name()), absl::string_view::npos) << status;
  EXPECT_TRUE(out_.List().value().empty());
}

// Infinity is refused, and so is the largest float32 if rounding to bfloat16 makes it infinity.
TEST_F(ExportTest, WritesNoWeightThatIsNotFinite) {
  TinyShards shards;
  shards.role = "weight";
  shards.begin = std::string("\x00\x00\x80\xff", 4);
  const v1::CheckpointManifest infinite = WriteCheckpoint(directory_, "inf", 10, shards).value();
  shards.begin = "\xff\xff\x7f\x7f";
  const v1::CheckpointManifest large = WriteCheckpoint(directory_, "large", 11, shards).value();
  EXPECT_EQ(
      ExportWeights(directory_, infinite, kernels::DType::kFloat32, out_, "w").status().message(),
      "parameter 'h.b': element 0 is -inf, must be finite as float32: export an earlier "
      "checkpoint");
  EXPECT_EQ(
      ExportWeights(directory_, large, kernels::DType::kBFloat16, out_, "w").status().message(),
      "parameter 'h.b': element 0 is 3.40282e+38, must be finite as bfloat16: export as float32");
  EXPECT_TRUE(out_.List().value().empty());
  EXPECT_TRUE(ExportWeights(directory_, large, kernels::DType::kFloat32, out_, "w").ok());
}

TEST_F(ExportTest, ReplacesNoFile) {
  ASSERT_TRUE(out_.Create("w.safetensors").ok());
  const absl::Status status =
      ExportWeights(directory_, Checkpoint(), kernels::DType::kFloat32, out_, "w.safetensors")
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(out_.List().value().size(), 1u);
}

TEST_F(ExportTest, NamesWhatAKilledExportHasLeft) {
  ASSERT_TRUE(out_.Create("w.safetensors.tmp").ok());
  const absl::Status status =
      ExportWeights(directory_, Checkpoint(), kernels::DType::kFloat32, out_, "w.safetensors")
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_NE(status.message().find("/w.safetensors.tmp is there: another export is writing it"),
            absl::string_view::npos)
      << status;
}

TEST_F(ExportTest, WritesNoOtherElementType) {
  const absl::Status status =
      ExportWeights(directory_, Checkpoint(), kernels::DType::kFloat16, out_, "w.safetensors")
          .status();
  EXPECT_EQ(status.message(), "dtype of the export is float16, must be float32 or bfloat16");
}

}  // namespace
}  // namespace kaon::checkpoint
