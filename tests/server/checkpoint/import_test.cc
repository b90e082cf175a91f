#include "server/checkpoint/import.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "kernels/dtype.h"
#include "kernels/reduce/digest.h"
#include "server/checkpoint/checkpoint_reader.h"
#include "server/checkpoint/content_digest.h"
#include "server/checkpoint/export.h"
#include "server/checkpoint/safetensors/safetensors_writer.h"
#include "server/checkpoint/state_tensors.h"
#include "tests/server/checkpoint/tiny_checkpoint.h"
#include "tests/simulation/disk/simulated_disk.h"

namespace kaon::checkpoint {
namespace {

float WeightOf(const std::string& name, uint64_t element) {
  return static_cast<float>(name.size()) + 0.5f * static_cast<float>(element % 7) - 1;
}

class ImportTest : public testing::Test {
 protected:
  ImportTest() {
    for (const v1::ParameterSpec& parameter : job_.parameters()) AddTensor(parameter);
  }

  void AddTensor(const v1::ParameterSpec& parameter) {
    Tensor& tensor = tensors_.emplace_back();
    tensor.name = parameter.name();
    tensor.shape.assign(parameter.shape().begin(), parameter.shape().end());
  }

  // A file of tensors_, each with WeightOf.
  absl::StatusOr<v1::CheckpointManifest> Import(const std::string& id = "start") {
    auto writer = SafetensorsWriter::Create(std::move(disk_.Create("in.safetensors")).value(), {},
                                            tensors_, kExportedFiles)
                      .value();
    for (const Tensor& tensor : writer->tensors()) {
      std::vector<float> values(TensorBytes(tensor.type, tensor.shape).value() /
                                SizeOf(tensor.type));
      for (size_t i = 0; i < values.size(); ++i) values[i] = WeightOf(tensor.name, i);
      if (tensor.name == spoiled_) values.back() = spoil_;
      const auto dtype = tensor.type == TensorType::kFloat32    ? kernels::DType::kFloat32
                         : tensor.type == TensorType::kBFloat16 ? kernels::DType::kBFloat16
                                                                : kernels::DType::kFloat16;
      std::string bytes(values.size() * kernels::SizeOf(dtype), '\0');
      kernels::FromFloat(dtype, values, reinterpret_cast<std::byte*>(bytes.data()));
      EXPECT_TRUE(writer->Append(bytes).ok());
    }
    EXPECT_TRUE(writer->Finish().ok());
    const std::unique_ptr<disk::File> file = disk_.Open("in.safetensors").value();
    return ImportWeights(*file, job_, id, directory_);
  }

  simulation::SimulatedDirectory disk_{"in", 1};
  simulation::SimulatedDirectory checkpoints_{"checkpoints", 2};
  CheckpointDirectory directory_{checkpoints_};
  v1::JobDefinition job_ = TinyRegistration().definition();
  // Tensors of every parameter.
  std::vector<Tensor> tensors_;
  // The tensor whose last element differs from WeightOf.
  std::string spoiled_;
  float spoil_ = 0;
};

TEST_F(ImportTest, MakesAGoodCheckpointOfStepZero) {
  tensors_[1].type = TensorType::kBFloat16;
  tensors_[2].type = TensorType::kFloat16;
  const absl::StatusOr<v1::CheckpointManifest> made = Import();
  ASSERT_TRUE(made.ok()) << made.status();
  const absl::StatusOr<v1::CheckpointManifest> manifest = directory_.Verify("start");
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  EXPECT_EQ(manifest->timeline(), 1u);
  EXPECT_EQ(manifest->position(), 1u);
  EXPECT_EQ(manifest->step(), 0u);
  CheckpointReader reader(directory_, *manifest);
  uint64_t weights = 0;
  const std::vector<StateTensor> states = StateTensorsOf(manifest->registration()).value();
  for (const StateTensor& state : states) {
    std::string bytes(StateBytes(state.dtype, state.num_elements), 'x');
    ASSERT_TRUE(
        reader.Read(state.parameter_id, state.role, 0, state.num_elements, absl::MakeSpan(bytes))
            .ok());
    if (state.role != "weight") {
      EXPECT_EQ(bytes, std::string(bytes.size(), '\0')) << state.role;
      continue;
    }
    std::vector<float> values(state.num_elements);
    std::memcpy(values.data(), bytes.data(), bytes.size());
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(values[i], WeightOf(tensors_[state.parameter_id].name, i));
    }
    weights += kernels::TensorDigest(state.parameter_id, kernels::kWeightSlot, values);
  }
  EXPECT_EQ(manifest->weights_digest(), weights);
  EXPECT_EQ(CheckDigests(directory_, *manifest), absl::OkStatus());
}

TEST_F(ImportTest, BeginsLikeAJobThatWasJustRegistered) {
  const v1::CheckpointManifest manifest = Import().value();
  const v1::StepDecision& decision = manifest.last_record().decision();
  EXPECT_EQ(decision.outcome(), v1::OUTCOME_APPLY);
  EXPECT_EQ(decision.next_loss_scale(), 1);
  EXPECT_EQ(decision.applied_updates(), 0u);
  for (const v1::CheckpointParameter& counted : manifest.parameters()) {
    EXPECT_EQ(counted.updates_applied(), 0u);
  }
}

TEST_F(ImportTest, TakesBackWhatWasExported) {
  const v1::CheckpointManifest first = Import("first").value();
  simulation::SimulatedDirectory out("out", 3);
  ASSERT_TRUE(ExportWeights(directory_, first, kernels::DType::kFloat32, out, "w").ok());
  const std::unique_ptr<disk::File> file = out.Open("w").value();
  const absl::StatusOr<v1::CheckpointManifest> second =
      ImportWeights(*file, job_, "second", directory_);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->weights_digest(), first.weights_digest());
  EXPECT_EQ(second->state_digest(), first.state_digest());
}

// So many names and shapes exceed the 1 MiB that a header of ours may have.
TEST_F(ImportTest, TakesBackAnExportOfTenThousandParameters) {
  for (int i = 0; i < 10000; ++i) {
    v1::ParameterSpec& parameter = *job_.add_parameters();
    parameter.set_name(absl::StrFormat("model.layers.%05d.post_attention_layernorm.weight", i));
    parameter.add_shape(1);
    parameter.set_dtype(v1::DTYPE_FLOAT32);
    parameter.set_frozen(true);
    AddTensor(parameter);
  }
  const absl::StatusOr<v1::CheckpointManifest> first = Import("first");
  ASSERT_TRUE(first.ok()) << first.status();
  simulation::SimulatedDirectory out("out", 3);
  const absl::StatusOr<FileSums> sums =
      ExportWeights(directory_, *first, kernels::DType::kFloat32, out, "w");
  ASSERT_TRUE(sums.ok()) << sums.status();
  const std::unique_ptr<disk::File> file = out.Open("w").value();
  const absl::StatusOr<v1::CheckpointManifest> second =
      ImportWeights(*file, job_, "second", directory_);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->weights_digest(), first->weights_digest());
}

// A file may hold one tensor of a tie, or all; those present must be equal.
TEST_F(ImportTest, FillsTiedParametersFromAnyOfThem) {
  v1::ParameterSpec& copy = *job_.add_parameters();
  copy = job_.parameters(0);
  copy.set_name("a-copy");
  copy.set_tied_to("h.w");
  const int id = job_.parameters_size() - 1;
  const auto weights_of = [&](const v1::CheckpointManifest& manifest, int parameter) {
    std::string bytes(size_t{4} * 8 * 12, '\0');
    CheckpointReader reader(directory_, manifest);
    EXPECT_TRUE(
        reader.Read(static_cast<uint32_t>(parameter), "weight", 0, 8 * 12, absl::MakeSpan(bytes))
            .ok());
    return bytes;
  };
  const absl::StatusOr<v1::CheckpointManifest> by_original = Import("by-original");
  ASSERT_TRUE(by_original.ok()) << by_original.status();
  EXPECT_EQ(weights_of(*by_original, id), weights_of(*by_original, 0));
  ASSERT_TRUE(disk_.Remove("in.safetensors").ok());
  AddTensor(copy);
  EXPECT_EQ(Import("both").status().message(),
            "tensor 'a-copy': element 0 is 5, must be 2 as in tensor 'h.w', which it is tied to");
  ASSERT_TRUE(disk_.Remove("in.safetensors").ok());
  tensors_.erase(tensors_.begin());
  const absl::StatusOr<v1::CheckpointManifest> by_copy = Import("by-copy");
  ASSERT_TRUE(by_copy.ok()) << by_copy.status();
  EXPECT_EQ(weights_of(*by_copy, 0), weights_of(*by_copy, id));
  EXPECT_EQ(CheckDigests(directory_, *by_copy), absl::OkStatus());
}

TEST_F(ImportTest, NamesEveryTensorThatDoesNotFit) {
  tensors_[0].shape = {12, 8};
  tensors_[1].name = "h.bias";
  tensors_[3].type = TensorType::kInt64;
  tensors_[3].shape = {0};
  const absl::Status status = Import().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "file in/in.safetensors: tensor 'h.w' has shape [12, 8], the parameter [8, 12]; tensor "
            "'h.b' is missing; tensor 'table' is I64, must be F32, F16 or BF16; tensor 'h.bias' is "
            "no parameter of the job");
  EXPECT_TRUE(checkpoints_.List().value().empty());
}

TEST_F(ImportTest, NamesTheWeightThatIsNotFiniteAndLeavesNothing) {
  spoiled_ = "o.w";
  spoil_ = std::numeric_limits<float>::infinity();
  const absl::Status status = Import().status();
  EXPECT_EQ(status.message(), "tensor 'o.w': element 23 is inf, must be finite");
  EXPECT_TRUE(checkpoints_.List().value().empty());
}

TEST_F(ImportTest, ReplacesNoCheckpoint) {
  ASSERT_TRUE(WriteCheckpoint(directory_, "start", 10).ok());
  EXPECT_EQ(Import("start").status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(directory_.Verify("start").ok());
}

TEST_F(ImportTest, RefusesABadIdAndABadDefinition) {
  EXPECT_EQ(Import("../up").status().code(), absl::StatusCode::kInvalidArgument);
  v1::JobDefinition job = job_;
  job.set_world_size(0);
  const std::unique_ptr<disk::File> file = disk_.Open("in.safetensors").value();
  const absl::Status status = ImportWeights(*file, job, "start", directory_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("world_size"), absl::string_view::npos) << status;
}

}  // namespace
}  // namespace kaon::checkpoint
