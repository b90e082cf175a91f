#include "server/checkpoint/imported_tensors.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/dtype.h"
#include "server/checkpoint/content_digest.h"
#include "server/checkpoint/export.h"
#include "server/checkpoint/import.h"
#include "server/checkpoint/safetensors/little_endian.h"
#include "server/checkpoint/safetensors/safetensors_writer.h"
#include "tests/server/checkpoint/tiny_checkpoint.h"
#include "tests/simulation/disk/simulated_disk.h"

namespace kaon::checkpoint {
namespace {

constexpr uint64_t kUpdates[] = {7, 9, 3};

// The value is exact in bfloat16. Groups of 32 have one sign each, so int8 keeps it nearly.
float ValueOf(uint64_t element) { return 0.5f + static_cast<float>(element % 3); }

class ImportedTensorsTest : public testing::Test {
 protected:
  // Weights and state of every parameter but the frozen one.
  ImportedTensorsTest() {
    const v1::RegisterBody registration = TinyRegistration();
    const std::vector<StateTensor> states = StateTensorsOf(registration).value();
    for (const StateTensor& state : states) {
      const v1::ParameterSpec& parameter = job_.parameters(static_cast<int>(state.parameter_id));
      Tensor tensor;
      tensor.name = state.role == kWeightRole ? parameter.name() : StateName(state.role, parameter);
      tensor.shape.assign(parameter.shape().begin(), parameter.shape().end());
      std::string bytes;
      for (uint64_t i = 0; i < state.num_elements; ++i) AppendFloat(ValueOf(i), bytes);
      Put(tensor, bytes);
    }
    for (int id = 0; id < 3; ++id) PutUpdates(id, kUpdates[id]);
  }

  static void AppendFloat(float value, std::string& bytes) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }

  void Put(const Tensor& tensor, const std::string& bytes) {
    tensors_[tensor.name] = tensor;
    bytes_[tensor.name] = bytes;
  }

  void PutUpdates(int id, uint64_t updates) {
    Tensor tensor;
    tensor.name = StateName(kUpdatesRole, job_.parameters(id));
    tensor.type = TensorType::kInt64;
    Put(tensor, LittleEndian64(updates));
  }

  absl::StatusOr<v1::CheckpointManifest> Import() {
    std::vector<Tensor> tensors;
    for (const auto& [name, tensor] : tensors_) tensors.push_back(tensor);
    auto writer = SafetensorsWriter::Create(std::move(disk_.Create("in")).value(), metadata_,
                                            tensors, kExportedFiles)
                      .value();
    for (const Tensor& tensor : writer->tensors()) {
      EXPECT_TRUE(writer->Append(bytes_.at(tensor.name)).ok());
    }
    EXPECT_TRUE(writer->Finish().ok());
    return ImportWeights(*disk_.Open("in").value(), job_, "start", directory_);
  }

  // Expects ValueOf times `factor` in Muon's buffer. SGD's is a sum in torch as well.
  void ExpectBuffers(const v1::CheckpointManifest& manifest, float factor) {
    ASSERT_TRUE(ExportState(directory_, manifest, disk_, "buffers").ok());
    const std::unique_ptr<disk::File> file = disk_.Open("buffers").value();
    const auto reader = SafetensorsReader::Open(*file, kImportedFiles).value();
    const std::pair<const char*, float> factors[] = {{"momentum_buffer:h.w", factor},
                                                     {"momentum_buffer:o.w", 1.f}};
    for (const auto& [name, expected] : factors) {
      float values[24];
      ASSERT_TRUE(ReadFloats(*reader, **reader->Find(name), 0, absl::MakeSpan(values)).ok());
      for (size_t i = 0; i < 24; ++i) EXPECT_FLOAT_EQ(values[i], expected * ValueOf(i)) << name;
    }
  }

  std::string ImportError() { return std::string(Import().status().message()); }

  simulation::SimulatedDirectory disk_{"in", 1};
  simulation::SimulatedDirectory checkpoints_{"checkpoints", 2};
  CheckpointDirectory directory_{checkpoints_};
  v1::JobDefinition job_ = TinyRegistration().definition();
  std::map<std::string, std::string> metadata_;
  std::map<std::string, Tensor> tensors_;
  std::map<std::string, std::string> bytes_;
};

TEST_F(ImportedTensorsTest, ACheckpointHasTheStateAndTheUpdatesOfTheFile) {
  const absl::StatusOr<v1::CheckpointManifest> manifest = Import();
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_TRUE(directory_.Verify("start").ok());
  EXPECT_EQ(CheckDigests(directory_, *manifest), absl::OkStatus());
  EXPECT_EQ(manifest->step(), 0u);
  EXPECT_EQ(manifest->last_record().decision().applied_updates(), 9u);
  for (int id = 0; id < 3; ++id) {
    EXPECT_EQ(manifest->parameters(id).updates_applied(), kUpdates[id]);
  }
  EXPECT_EQ(manifest->parameters(3).updates_applied(), 0u);
  ASSERT_TRUE(ExportState(directory_, *manifest, disk_, "out").ok());
  const std::unique_ptr<disk::File> file = disk_.Open("out").value();
  const auto reader = SafetensorsReader::Open(*file, kImportedFiles).value();
  ASSERT_EQ(reader->header().tensors.size(), tensors_.size());
  for (const Tensor& tensor : reader->header().tensors) {
    ASSERT_EQ(tensors_.count(tensor.name), 1u) << tensor.name;
    if (tensor.type == TensorType::kInt64) {
      std::string bytes(8, '\0');
      ASSERT_TRUE(reader->Read(tensor, 0, absl::MakeSpan(bytes)).ok());
      EXPECT_EQ(bytes, bytes_[tensor.name]) << tensor.name;
      continue;
    }
    std::vector<float> values((tensor.end - tensor.begin) / sizeof(float));
    ASSERT_TRUE(ReadFloats(*reader, tensor, 0, absl::MakeSpan(values)).ok());
    // Half of the scale of a group with 2.5 ([Q1]).
    const float tolerance = tensor.name == "momentum_buffer:h.w" ? 0.5f * 2.5f / 126 : 0;
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_NEAR(values[i], ValueOf(i), tolerance) << tensor.name << " " << i;
    }
  }
  EXPECT_NE(reader->header().metadata.at("registration").find("\"rule\":\"RULE_ADAMW\""),
            std::string::npos);
}

// Except for int8, whose scale is chosen again.
TEST_F(ImportedTensorsTest, AnExportComesBackBitForBit) {
  job_.mutable_groups(0)->set_momentum_dtype(v1::STATE_DTYPE_FLOAT32);
  const v1::CheckpointManifest first = Import().value();
  ASSERT_TRUE(ExportState(directory_, first, disk_, "out").ok());
  const absl::StatusOr<v1::CheckpointManifest> second =
      ImportWeights(*disk_.Open("out").value(), job_, "second", directory_);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->state_digest(), first.state_digest());
}

TEST_F(ImportedTensorsTest, AParameterWithoutStateHasZerosAndNoUpdate) {
  for (const char* role : {"exp_avg", "exp_avg_sq", "max_exp_avg_sq", kUpdatesRole}) {
    tensors_.erase(StateName(role, job_.parameters(1)));
  }
  const absl::StatusOr<v1::CheckpointManifest> manifest = Import();
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(manifest->parameters(0).updates_applied(), 7u);
  EXPECT_EQ(manifest->parameters(1).updates_applied(), 0u);
  EXPECT_EQ(CheckDigests(directory_, *manifest), absl::OkStatus());
}

// The job's form is ema with momentum 0.95 ([M2]).
TEST_F(ImportedTensorsTest, MuonsMomentumIsConvertedToTheFormOfTheJob) {
  job_.mutable_groups(0)->set_momentum_dtype(v1::STATE_DTYPE_FLOAT32);
  metadata_["momentum_form"] = "sum";
  const absl::StatusOr<v1::CheckpointManifest> manifest = Import();
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  ExpectBuffers(*manifest, 0.05f);
  metadata_["momentum_form"] = "mean";
  ASSERT_TRUE(disk_.Remove("in").ok());
  EXPECT_EQ(ImportError(), "file in/in: metadata momentum_form is 'mean', must be ema or sum");
}

// A sum is 1 / (1 - 0.95) of an average.
TEST_F(ImportedTensorsTest, AJobOfTheOtherFormTakesAnExport) {
  job_.mutable_groups(0)->set_momentum_dtype(v1::STATE_DTYPE_FLOAT32);
  const v1::CheckpointManifest first = Import().value();
  ASSERT_TRUE(ExportState(directory_, first, disk_, "averages").ok());
  job_.mutable_groups(0)->mutable_muon()->set_momentum_form(v1::MOMENTUM_FORM_SUM);
  const absl::StatusOr<v1::CheckpointManifest> second =
      ImportWeights(*disk_.Open("averages").value(), job_, "second", directory_);
  ASSERT_TRUE(second.ok()) << second.status();
  ExpectBuffers(*second, 20);
}

// Nothing says the form of each buffer then.
TEST_F(ImportedTensorsTest, AnExportOfBothFormsNamesNone) {
  *job_.add_groups() = job_.groups(0);
  job_.mutable_groups(3)->set_name("sums");
  job_.mutable_groups(3)->mutable_muon()->set_momentum_form(v1::MOMENTUM_FORM_SUM);
  const v1::CheckpointManifest manifest = Import().value();
  ASSERT_TRUE(ExportState(directory_, manifest, disk_, "out").ok());
  const std::unique_ptr<disk::File> file = disk_.Open("out").value();
  const auto reader = SafetensorsReader::Open(*file, kImportedFiles).value();
  EXPECT_EQ(reader->header().metadata.count("momentum_form"), 0u);
}

TEST_F(ImportedTensorsTest, NamesStateThatIsIncompleteOrDoesNotFit) {
  tensors_.erase("exp_avg:h.b");
  tensors_.erase("updates_applied:h.b");
  tensors_["updates_applied:o.w"].type = TensorType::kUint64;
  tensors_["momentum_buffer:o.w"].shape = {6, 4};
  Tensor unknown;
  unknown.name = "exp_avg:h.w";
  Put(unknown, std::string(4, '\0'));
  EXPECT_EQ(ImportError(),
            "file in/in: parameter 'h.b' has some state, but no updates_applied, exp_avg; tensor "
            "'momentum_buffer:o.w' has shape [6, 4], the parameter [4, 6]; tensor "
            "'updates_applied:o.w' must be a scalar of type I64; tensor 'exp_avg:h.w' is no "
            "parameter of the job");
  EXPECT_TRUE(checkpoints_.List().value().empty());
}

TEST_F(ImportedTensorsTest, NamesAValueThatNoStepMakes) {
  std::string& squares = bytes_["exp_avg_sq:h.b"];
  const std::string good = squares;
  const std::pair<float, const char*> values[] = {
      {-1.f, "element 0 is -1, must be at least 0"},
      {std::numeric_limits<float>::infinity(), "element 0 is inf, must be finite"}};
  for (const auto& [value, error] : values) {
    std::memcpy(squares.data(), &value, sizeof(value));
    EXPECT_EQ(ImportError(), std::string("tensor 'exp_avg_sq:h.b': ") + error);
    ASSERT_TRUE(disk_.Remove("in").ok());
  }
  squares = good;
  PutUpdates(0, UINT64_MAX);
  EXPECT_EQ(ImportError(), "tensor 'updates_applied:h.w' is -1, must be 0 .. 2^62");
  EXPECT_TRUE(checkpoints_.List().value().empty());
}

}  // namespace
}  // namespace kaon::checkpoint
