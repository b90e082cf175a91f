#include "server/checkpoint/manifest_file.h"

#include <google/protobuf/stubs/logging.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "server/checkpoint/safetensors/fragment_sums.h"
#include "server/checkpoint/safetensors/little_endian.h"
#include "tests/server/checkpoint/tiny_checkpoint.h"

namespace kaon::checkpoint {
namespace {

constexpr char kLine[] = "kaon checkpoint 2\n";

v1::CheckpointManifest SomeManifest() {
  v1::CheckpointManifest manifest;
  manifest.set_id("a-1");
  manifest.set_job("tiny");
  *manifest.mutable_registration() = TinyRegistration();
  manifest.add_files()->set_size(5);
  return manifest;
}

// Frames a message with the right digest, whatever its content is.
std::string Framed(const std::string& message) {
  const std::string bytes = kLine + LittleEndian64(message.size()) + message;
  return bytes + Sha256(bytes);
}

TEST(ManifestFileTest, ReadsWhatItWrites) {
  const v1::CheckpointManifest manifest = SomeManifest();
  const absl::StatusOr<std::string> bytes = FormatManifest(manifest);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_EQ(*bytes, Framed(manifest.SerializeAsString()));
  const absl::StatusOr<v1::CheckpointManifest> read = ParseManifest("m", *bytes);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->SerializeAsString(), manifest.SerializeAsString());
}

// P9: 100 % of single flipped bits, of cuts and of additions.
TEST(ManifestFileTest, FindsEveryFlipAndCut) {
  const std::string whole = *FormatManifest(SomeManifest());
  for (size_t size = 0; size < whole.size(); ++size) {
    const absl::Status status = ParseManifest("m", whole.substr(0, size)).status();
    ASSERT_EQ(status.code(), absl::StatusCode::kDataLoss) << size << ": " << status;
    ASSERT_NE(status.message().find("manifest m: "), absl::string_view::npos);
  }
  EXPECT_EQ(ParseManifest("m", whole + "x").status().code(), absl::StatusCode::kDataLoss);
  for (size_t bit = 0; bit < whole.size() * 8; ++bit) {
    std::string flipped = whole;
    flipped[bit / 8] ^= static_cast<char>(1 << bit % 8);
    ASSERT_FALSE(ParseManifest("m", flipped).ok()) << bit;
  }
}

TEST(ManifestFileTest, NamesBothValues) {
  const auto refusal = [](const std::string& bytes) { return ParseManifest("m", bytes).status(); };
  EXPECT_EQ(refusal("kaon checkpoint 1\n...").code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(refusal("kaon checkpoint 1\n...").message(),
            "manifest m: begins with the line 'kaon checkpoint 1', expecting 'kaon checkpoint 2'");
  EXPECT_EQ(refusal("\x7fLF...\n").message(),
            "manifest m: begins with the line '\\x7fLF...', expecting 'kaon checkpoint 2'");
  EXPECT_EQ(refusal("kaon checkpoint 2").message(),
            "manifest m: is 17 bytes long, expecting at least 58");
  EXPECT_EQ(refusal(kLine + LittleEndian64(7) + std::string(38, 'x')).message(),
            "manifest m: its message is 7 bytes long, there are 6, and at most 134217728 are "
            "allowed");
  EXPECT_EQ(refusal(Framed("\xff\xff")).message(), "manifest m: its message cannot be parsed");
}

// A later version's field may change the meaning of others, so this version refuses it.
TEST(ManifestFileTest, RefusesFieldsItDoesNotKnow) {
  v1::CheckpointManifest manifest = SomeManifest();
  // Field 1000, varint 5; in the manifest itself and deep inside.
  const absl::string_view field("\xc0\x3e\x05", 3);
  const absl::Status status =
      ParseManifest("m", Framed(manifest.SerializeAsString() + std::string(field))).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(), "manifest m: has 3 bytes of fields that this version does not know");
  v1::ParameterGroup group;
  ASSERT_TRUE(group.ParseFromString(std::string(field)));
  *manifest.mutable_registration()->mutable_definition()->add_groups() = group;
  EXPECT_EQ(ParseManifest("m", Framed(manifest.SerializeAsString())).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(ManifestFileTest, AnyBytesAreReadOrRefused) {
  // Strings that are no UTF-8 are refused aloud.
  const google::protobuf::LogSilencer silencer;
  const std::string message = SomeManifest().SerializeAsString();
  std::mt19937 random(20261121);
  for (int i = 0; i < 3000; ++i) {
    std::string changed = message;
    for (uint32_t n = 1 + random() % 4; n > 0; --n) {
      changed[random() % changed.size()] = static_cast<char>(random());
    }
    const auto read = ParseManifest("m", Framed(changed));
    EXPECT_TRUE(!read.ok() || FormatManifest(*read).ok());
  }
}

TEST(ManifestFileTest, IdsAreSafeAsNamesOfFiles) {
  for (const char* id : {"a", "0", "step-000042-k3", "-"}) EXPECT_TRUE(CheckId(id).ok()) << id;
  EXPECT_TRUE(CheckId(std::string(64, 'a')).ok());
  for (const std::string& id :
       {std::string(), std::string(65, 'a'), std::string("A"), std::string("a.b"),
        std::string("../x"), std::string("a/b"), std::string("a\0", 2), std::string("\xc3\xa9")}) {
    EXPECT_EQ(CheckId(id).code(), absl::StatusCode::kInvalidArgument) << id;
  }
  EXPECT_EQ(CheckId("A b").message(), "checkpoint id 'A b', expecting [a-z0-9-]{1,64}");
}

}  // namespace
}  // namespace kaon::checkpoint
