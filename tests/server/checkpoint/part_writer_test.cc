#include "server/checkpoint/part_writer.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/checkpoint/safetensors/safetensors_reader.h"
#include "server/checkpoint/state_tensors.h"
#include "tests/server/checkpoint/tiny_checkpoint.h"
#include "tests/simulation/disk/simulated_disk.h"

namespace kaon::checkpoint {
namespace {

class PartWriterTest : public testing::Test {
 protected:
  // Writes `tensors` of `job` as shard 0 of 1, every byte 'x'.
  absl::StatusOr<v1::CheckpointPart> Write(const v1::JobDefinition& job,
                                           std::vector<v1::CheckpointTensor> tensors,
                                           uint64_t max_tensors_per_file) {
    PartWriter::Options options;
    options.id = "c1";
    options.part.set_num_shards(1);
    options.max_tensors_per_file = max_tensors_per_file;
    absl::StatusOr<std::unique_ptr<PartWriter>> writer =
        PartWriter::Create(directory_, job, options, std::move(tensors));
    if (!writer.ok()) return writer.status();
    while (const v1::CheckpointTensor* tensor = (*writer)->tensor()) {
      const std::string bytes(StateBytes(tensor->dtype(), tensor->num_elements()), 'x');
      const absl::Status status = (*writer)->Append(bytes);
      if (!status.ok()) return status;
    }
    return (*writer)->Finish();
  }

  simulation::SimulatedDirectory disk_{"disk", 1};
  CheckpointDirectory directory_{disk_};
};

TEST_F(PartWriterTest, ReportsWhereEachTensorLies) {
  const absl::StatusOr<v1::CheckpointPart> part = WritePart(directory_, "c1", 10, 1, {2, 32, 3});
  ASSERT_TRUE(part.ok()) << part.status();
  ASSERT_GT(part->files_size(), 1);
  EXPECT_EQ(part->shard(), 1u);
  int tensors = 0;
  for (int i = 0; i < part->files_size(); ++i) {
    EXPECT_EQ(part->files(i).name(), CheckpointDirectory::FileName("c1", 1, 2, i));
    EXPECT_EQ(part->files(i).backend(), "cpu");
    const auto file = directory_.Open(part->files(i));
    ASSERT_TRUE(file.ok()) << file.status();
    const auto reader = SafetensorsReader::Open(**file, kOurFiles);
    ASSERT_TRUE(reader.ok()) << reader.status();
    EXPECT_LE((*reader)->header().tensors.size(), 3u);
    EXPECT_EQ((*reader)->header().metadata.at("checkpoint"), "c1");
    EXPECT_EQ((*reader)->header().metadata.at("position"), "10");
    for (const v1::CheckpointTensor& tensor : part->tensors()) {
      if (tensor.file() != static_cast<uint32_t>(i)) continue;
      const std::string expected =
          TinyBytes(10, tensor.parameter_id(), tensor.role(), tensor.dtype(),
                    tensor.first_element(), tensor.num_elements());
      std::string read(expected.size(), '\0');
      ASSERT_TRUE((*file)->Read(tensor.offset(), read.size(), read.data()).ok());
      EXPECT_EQ(read, expected);
      ++tensors;
    }
  }
  EXPECT_EQ(tensors, part->tensors_size());
  EXPECT_EQ(static_cast<size_t>(tensors), TinyTensors(1, 2, 32).size());
}

// The files of a reported part survive the worst power cut.
TEST_F(PartWriterTest, EverythingItReportsIsDurable) {
  const absl::StatusOr<v1::CheckpointPart> part = WritePart(directory_, "c1", 10, 0, {1, 32, 4});
  ASSERT_TRUE(part.ok()) << part.status();
  const std::unique_ptr<simulation::SimulatedDirectory> left = disk_.DurableCopy();
  CheckpointDirectory directory(*left);
  for (const v1::CheckpointFile& file : part->files()) {
    const auto opened = directory.Open(file);
    ASSERT_TRUE(opened.ok()) << opened.status();
    EXPECT_TRUE((*opened)->Verify().ok());
  }
}

// Names of 512 bytes: a header of 1 MiB ends long before the limit of tensors is reached.
TEST_F(PartWriterTest, BeginsANewFileBeforeAHeaderIsTooLong) {
  v1::JobDefinition job;
  std::vector<v1::CheckpointTensor> tensors;
  for (uint32_t i = 0; i < 3000; ++i) {
    v1::ParameterSpec& parameter = *job.add_parameters();
    parameter.set_name(absl::StrCat(std::string(500, '"'), i));
    parameter.add_shape(1);
    v1::CheckpointTensor& tensor = tensors.emplace_back();
    tensor.set_parameter_id(i);
    tensor.set_role(kWeightRole);
    tensor.set_dtype(v1::STATE_DTYPE_FLOAT32);
    tensor.set_num_elements(1);
  }
  const absl::StatusOr<v1::CheckpointPart> part = Write(job, tensors, 100000);
  ASSERT_TRUE(part.ok()) << part.status();
  EXPECT_EQ(part->tensors_size(), 3000);
  EXPECT_GT(part->files_size(), 1);
  EXPECT_LT(part->files_size(), 10);
}

TEST_F(PartWriterTest, RefusesTensorsItCannotWrite) {
  const v1::JobDefinition job = TinyRegistration().definition();
  std::vector<v1::CheckpointTensor> tensors = TinyTensors(0, 1, 1 << 20);
  tensors.push_back(tensors[0]);
  EXPECT_EQ(Write(job, tensors, 100).status().message(),
            "file disk/c1.shard-00000-of-00001.0000.safetensors: header: tensor "
            "'momentum_buffer:h.w' is there twice");
  tensors.back().set_parameter_id(4);
  EXPECT_EQ(Write(job, tensors, 100).status().message(),
            "tensor of parameter_id 4, the job has 4 parameters");
}

TEST_F(PartWriterTest, RefusesTooManyBytesAndTooFew) {
  const v1::JobDefinition job = TinyRegistration().definition();
  PartWriter::Options options;
  options.id = "c1";
  options.part.set_num_shards(1);
  const auto writer =
      PartWriter::Create(directory_, job, options, {TinyTensors(0, 1, 1 << 20)[0]}).value();
  EXPECT_TRUE(writer->Append("").ok());
  EXPECT_EQ(writer->Append(std::string(103, 'x')).message(),
            "parameter 'h.w' 'momentum_buffer': 103 bytes appended, it lacks 102");
  ASSERT_TRUE(writer->Append("ab").ok());
  EXPECT_EQ(writer->Finish().status().message(),
            "parameter 'h.w' 'momentum_buffer': has 2 of its 102 bytes");
  ASSERT_TRUE(writer->Append(std::string(100, 'x')).ok());
  EXPECT_EQ(writer->tensor(), nullptr);
  EXPECT_EQ(writer->Append("x").message(),
            "part of shard 0: 1 bytes appended, every tensor has its bytes");
  EXPECT_TRUE(writer->Finish().ok());
}

// The disk is full from the header of the first file on, so no part is reported.
TEST_F(PartWriterTest, LeavesNoFileBehindThatItCannotBegin) {
  disk_.SetFreeBytes(100);
  EXPECT_EQ(Write(TinyRegistration().definition(), TinyTensors(0, 1, 1 << 20), 100).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(disk_.List()->empty());
}

TEST_F(PartWriterTest, DiscardsTheFilesThatItMade) {
  PartWriter::Options options;
  options.id = "c1";
  options.attempt = 0x12;
  options.part.set_num_shards(1);
  options.max_tensors_per_file = 1;
  // These files belong to another writer.
  ASSERT_TRUE(WritePart(directory_, "c1", 10, 0, TinyShards()).ok());
  const std::vector<std::string> before = *disk_.List();
  const v1::JobDefinition job = TinyRegistration().definition();
  const auto writer =
      PartWriter::Create(directory_, job, options, TinyTensors(0, 1, 1 << 20)).value();
  const v1::CheckpointTensor& first = *writer->tensor();
  const std::string bytes(StateBytes(first.dtype(), first.num_elements()), 'x');
  ASSERT_TRUE(writer->Append(bytes).ok());
  EXPECT_EQ(disk_.List()->size(), before.size() + 2);
  EXPECT_TRUE(disk_.Open("c1.0000000000000012.shard-00000-of-00001.0001.safetensors").ok());
  writer->Discard();
  EXPECT_EQ(*disk_.List(), before);
}

TEST_F(PartWriterTest, AShardWithoutTensorsWritesNoFile) {
  const auto part = Write(TinyRegistration().definition(), {}, 10);
  ASSERT_TRUE(part.ok()) << part.status();
  EXPECT_EQ(part->files_size(), 0);
}

}  // namespace
}  // namespace kaon::checkpoint
