#include "server/checkpoint/manifest.h"

#include <google/protobuf/stubs/logging.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "tests/server/checkpoint/tiny_checkpoint.h"
#include "tests/simulation/disk/simulated_disk.h"

namespace kaon::checkpoint {
namespace {

std::vector<v1::CheckpointPart> Parts(const TinyShards& shards) {
  simulation::SimulatedDirectory disk("disk", 1);
  CheckpointDirectory directory(disk);
  std::vector<v1::CheckpointPart> parts;
  for (uint32_t shard = 0; shard < shards.num_shards; ++shard) {
    parts.push_back(WritePart(directory, "c1", 10, shard, shards).value());
  }
  return parts;
}

v1::CheckpointManifest Build(const TinyShards& shards = {2, 32, 3}) {
  const auto manifest = BuildManifest(TinyFacts("c1", 10), Parts(shards));
  return manifest.value();
}

// Returns the error of a good manifest after `change`.
std::string Refusal(const std::function<void(v1::CheckpointManifest&)>& change) {
  v1::CheckpointManifest manifest = Build();
  change(manifest);
  const absl::Status status = CheckManifest(manifest);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message().substr(0, 17), "checkpoint 'c1': ") << status;
  return std::string(status.message().substr(std::min<size_t>(17, status.message().size())));
}

TEST(ManifestTest, IsTheSameStateForAnyNumberOfShards) {
  for (const TinyShards& shards :
       {TinyShards{1}, TinyShards{2}, TinyShards{3, 64}, TinyShards{5, 32, 2}}) {
    const v1::CheckpointManifest manifest = Build(shards);
    EXPECT_TRUE(CheckManifest(manifest).ok());
    EXPECT_EQ(manifest.id(), "c1");
    EXPECT_EQ(manifest.job(), "tiny");
    EXPECT_EQ(manifest.position(), 10u);
    EXPECT_EQ(manifest.step(), 8u);
    EXPECT_EQ(manifest.parameters_size(), 4);
    // Sums mod 2^64.
    EXPECT_EQ(manifest.weights_digest(),
              shards.num_shards * 10000u + shards.num_shards * (shards.num_shards - 1) / 2);
    EXPECT_EQ(manifest.state_digest(),
              0 - uint64_t{shards.num_shards} - shards.num_shards * (shards.num_shards - 1) / 2);
    for (int i = 1; i < manifest.files_size(); ++i) {
      EXPECT_LT(manifest.files(i - 1).name(), manifest.files(i).name());
    }
    EXPECT_EQ(manifest.files(0).name(),
              CheckpointDirectory::FileName("c1", 0, shards.num_shards, 0));
    EXPECT_EQ(manifest.files(0).build(), "test");
  }
}

TEST(ManifestTest, PartsMustBeAlikeAndComplete) {
  const auto refusal = [](const std::function<void(std::vector<v1::CheckpointPart>&)>& change) {
    std::vector<v1::CheckpointPart> parts = Parts({2, 32, 3});
    change(parts);
    const absl::Status status = BuildManifest(TinyFacts("c1", 10), parts).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_EQ(refusal([](auto& parts) { parts.pop_back(); }),
            "checkpoint 'c1': part 0: num_shards is 2, expecting 1");
  EXPECT_EQ(refusal([](auto& parts) { parts[1] = parts[0]; }),
            "checkpoint 'c1': part 1: shard is 0, expecting 1");
  EXPECT_EQ(refusal([](auto& parts) { parts[1].set_position(9); }),
            "checkpoint 'c1': part 1: position is 9, expecting 10");
  EXPECT_EQ(refusal([](auto& parts) { parts[1].set_timeline(2); }),
            "checkpoint 'c1': part 1: timeline is 2, expecting 1");
  EXPECT_EQ(refusal([](auto& parts) { parts[0].set_job("other"); }),
            "checkpoint 'c1': part 0: job is 'other', expecting 'tiny'");
  EXPECT_EQ(refusal([](auto& parts) { parts[0].mutable_tensors(0)->set_file(77); }).substr(0, 51),
            "checkpoint 'c1': part 0: a tensor of parameter_id 0");
  EXPECT_EQ(refusal([](auto& parts) { parts[1].mutable_parameters()->RemoveLast(); }),
            "checkpoint 'c1': number of parameters with counters is 3, expecting 4");
  EXPECT_EQ(refusal([](auto& parts) { parts.clear(); }).substr(0, 69),
            "checkpoint 'c1': parameter 'h.w' 'momentum_buffer': elements 0 to 96 ");
}

TEST(ManifestTest, EveryElementIsThereOnce) {
  EXPECT_EQ(Refusal([](auto& m) { m.mutable_tensors()->DeleteSubrange(1, 1); }),
            "parameter 'h.w' 'momentum_buffer': elements 32 to 64 are in no file");
  EXPECT_EQ(Refusal([](auto& m) { m.mutable_tensors()->DeleteSubrange(2, 1); }),
            "parameter 'h.w' 'momentum_buffer': elements 64 to 96 are in no file; what follows is "
            "parameter 'h.w' 'weight'");
  EXPECT_EQ(Refusal([](auto& m) { m.mutable_tensors()->RemoveLast(); }),
            "parameter 'table' 'weight': elements 0 to 5 are in no file; what follows is nothing");
  EXPECT_EQ(Refusal([](auto& m) { *m.add_tensors() = m.tensors(m.tensors_size() - 1); }),
            "parameter 'table' 'weight': a run begins at element 0, the one before it ends at 5");
  EXPECT_EQ(Refusal([](auto& m) { m.mutable_tensors(1)->set_first_element(31); }),
            "parameter 'h.w' 'momentum_buffer': a run begins at element 31, the one before it ends "
            "at 32");
  EXPECT_EQ(
      Refusal([](auto& m) { m.mutable_tensors(1)->set_num_elements(UINT64_MAX); }),
      "parameter 'h.w' 'momentum_buffer': a run of 18446744073709551615 elements from element "
      "32 on, of 96");
  EXPECT_EQ(Refusal([](auto& m) { m.mutable_tensors(1)->set_num_elements(0); }),
            "parameter 'h.w' 'momentum_buffer': a run of 0 elements from element 32 on, of 96");
  EXPECT_EQ(Refusal([](auto& m) { m.mutable_tensors(1)->set_num_elements(31); }),
            "parameter 'h.w' 'momentum_buffer': a run of groups ends at element 63, expecting a "
            "multiple of 32 or 96");
  EXPECT_EQ(Refusal([](auto& m) {
              *m.add_tensors() = m.tensors(0);
              m.mutable_tensors(m.tensors_size() - 1)->set_parameter_id(4);
            }),
            "parameter_id 4 'momentum_buffer': is no tensor of the job, or out of order");
  EXPECT_EQ(Refusal([](auto& m) { m.mutable_tensors()->SwapElements(0, 3); }).substr(0, 55),
            "parameter 'h.w' 'momentum_buffer': elements 0 to 96 are");
}

TEST(ManifestTest, EveryTensorIsWhatTheJobHas) {
  EXPECT_EQ(Refusal([](auto& m) { m.mutable_tensors(0)->set_dtype(v1::STATE_DTYPE_FLOAT32); }),
            "parameter 'h.w' 'momentum_buffer': dtype is STATE_DTYPE_FLOAT32, expecting "
            "STATE_DTYPE_INT8");
  EXPECT_EQ(
      Refusal([](auto& m) { m.mutable_tensors(0)->set_dtype(static_cast<v1::StateDType>(77)); }),
      "parameter 'h.w' 'momentum_buffer': dtype is 77, expecting STATE_DTYPE_INT8");
  EXPECT_EQ(
      Refusal([](auto& m) { m.mutable_tensors(0)->set_momentum_form(v1::MOMENTUM_FORM_SUM); }),
      "parameter 'h.w' 'momentum_buffer': momentum_form is MOMENTUM_FORM_SUM, expecting "
      "MOMENTUM_FORM_EMA");
  EXPECT_EQ(Refusal([](auto& m) { m.mutable_tensors(0)->set_role("exp_avg"); }).substr(0, 67),
            "parameter 'h.w' 'momentum_buffer': elements 0 to 96 are in no file;");
}

TEST(ManifestTest, EveryByteOfAFileBelongsToOneTensor) {
  EXPECT_EQ(Refusal([](auto& m) { m.mutable_tensors(0)->set_file(99); }).find("parameter"), 0u);
  EXPECT_NE(Refusal([](auto& m) {
              const int last = m.tensors_size() - 1;
              m.mutable_tensors(last)->set_offset(m.tensors(last).offset() + 4);
            }).find("expecting"),
            std::string::npos);
  EXPECT_NE(
      Refusal([](auto& m) { m.mutable_tensors(0)->set_offset(UINT64_MAX); }).find("expecting"),
      std::string::npos);
  EXPECT_NE(Refusal([](auto& m) {
              m.mutable_files(0)->set_size(m.files(0).size() + 1);
            }).find("but its last tensor ends at"),
            std::string::npos);
  EXPECT_EQ(Refusal([](auto& m) {
              v1::CheckpointFile& file = *m.add_files();
              file = m.files(0);
              file.set_name("c1.z");
            }),
            "file c1.z has " + std::to_string(Build().files(0).size()) +
                " bytes, but its last tensor ends at 0");
}

TEST(ManifestTest, FilesAreItsOwn) {
  EXPECT_EQ(Refusal([](auto& m) { m.mutable_files(0)->set_name("c2.x"); }),
            "file name 'c2.x', expecting 'c1.' and more of [a-z0-9.-], at most 128");
  EXPECT_NE(Refusal([](auto& m) { m.mutable_files(0)->set_name("c1./../x"); }).find("file name"),
            std::string::npos);
  EXPECT_NE(Refusal([](auto& m) {
              m.mutable_files(1)->set_name(m.files(0).name());
            }).find("expecting names in order, each once"),
            std::string::npos);
  EXPECT_NE(Refusal([](auto& m) { m.mutable_files(0)->set_size(0); }).find("has 0 bytes"),
            std::string::npos);
  EXPECT_NE(Refusal([](auto& m) {
              m.mutable_files(0)->set_sha256("short");
            }).find("length of sha256 is 5, expecting 32"),
            std::string::npos);
  EXPECT_NE(Refusal([](auto& m) {
              m.mutable_files(0)->add_fragment_crc32c(1);
            }).find("number of fragments is 2, expecting 1"),
            std::string::npos);
}

TEST(ManifestTest, FactsAgreeWithTheRecord) {
  EXPECT_EQ(Refusal([](auto& m) { m.set_step(9); }), "step of the last record is 8, expecting 9");
  EXPECT_EQ(Refusal([](auto& m) { m.set_position(11); }),
            "position of the last record is 10, expecting 11");
  EXPECT_EQ(Refusal([](auto& m) { m.set_timeline(2); }),
            "timeline of the last record is 1, expecting 2");
  EXPECT_EQ(Refusal([](auto& m) { m.set_job("other"); }),
            "job of the last record is 'tiny', expecting 'other'");
  EXPECT_EQ(
      Refusal([](auto& m) { m.mutable_registration()->mutable_definition()->set_name("other"); }),
      "job of the registration is 'other', expecting 'tiny'");
  EXPECT_EQ(Refusal([](auto& m) {
              m.set_timeline(0);
              m.mutable_last_record()->mutable_plan()->set_timeline(0);
            }),
            "timeline is 0, expecting 1 .. 2^62");
  // The timeline after it would be 0.
  EXPECT_EQ(Refusal([](auto& m) {
              m.set_timeline(UINT64_MAX);
              m.mutable_last_record()->mutable_plan()->set_timeline(UINT64_MAX);
            }),
            "timeline is 18446744073709551615, expecting 1 .. 2^62");
  EXPECT_EQ(Refusal([](auto& m) {
              m.set_position(UINT64_MAX);
              m.mutable_last_record()->mutable_plan()->set_position(UINT64_MAX);
            }),
            "position is 18446744073709551615, expecting 1 .. 2^62");
  EXPECT_EQ(Refusal([](auto& m) { m.set_step(UINT64_MAX); }),
            "step is 18446744073709551615, expecting 0 .. 2^62");
  EXPECT_EQ(Refusal([](auto& m) { m.mutable_parameters()->SwapElements(0, 1); }),
            "parameter_id of counter 0 is 1, expecting 0");
  v1::CheckpointManifest bad_id = Build();
  bad_id.set_id("../c1");
  EXPECT_FALSE(CheckManifest(bad_id).ok());
}

// Any manifest is accepted or refused. One that is accepted after a random change still holds every
// element exactly once.
TEST(ManifestTest, IsTotal) {
  // Strings that are no UTF-8 are refused aloud.
  const google::protobuf::LogSilencer silencer;
  const v1::CheckpointManifest good = Build();
  const std::string bytes = good.SerializeAsString();
  std::mt19937 random(20261121);
  int refused = 0;
  for (int i = 0; i < 2000; ++i) {
    std::string changed = bytes;
    changed[random() % changed.size()] = static_cast<char>(random());
    v1::CheckpointManifest manifest;
    if (!manifest.ParseFromString(changed) || !CheckManifest(manifest).ok()) ++refused;
  }
  EXPECT_GT(refused, 500);
  EXPECT_FALSE(CheckManifest(v1::CheckpointManifest()).ok());
}

TEST(ManifestTest, KeepsTheSumsOfAFile) {
  FragmentSums sums;
  sums.Extend(std::string(kFragmentBytes + 1, 'x'));
  const FileSums taken = sums.Finish();
  v1::CheckpointFile file;
  SetSums(taken, &file);
  const FileSums read = SumsOf(file);
  EXPECT_EQ(read.num_bytes, taken.num_bytes);
  EXPECT_EQ(read.sha256, taken.sha256);
  EXPECT_EQ(read.fragment_crc32c, taken.fragment_crc32c);
}

}  // namespace
}  // namespace kaon::checkpoint
