#include "server/checkpoint/safetensors/safetensors_writer.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "tests/server/checkpoint/safetensors/memory_file.h"

namespace kaon::checkpoint {
namespace {

class SafetensorsWriterTest : public testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<SafetensorsWriter>> Create() {
    auto file = std::make_unique<MemoryFile>(&bytes_);
    memory_ = file.get();
    return SafetensorsWriter::Create(
        std::move(file), {{"job", "tiny"}},
        {{"b", TensorType::kUint8, {3}, 0, 0}, {"a", TensorType::kFloat32, {2}, 0, 0}});
  }

  std::string bytes_;
  MemoryFile* memory_ = nullptr;
};

TEST_F(SafetensorsWriterTest, WritesHeaderAndTensorsInTheOrderItSays) {
  const std::unique_ptr<SafetensorsWriter> writer = std::move(Create()).value();
  ASSERT_EQ(writer->tensors().size(), 2u);
  EXPECT_EQ(writer->tensors()[0].name, "a");
  EXPECT_EQ(writer->first_byte(), 4096u);
  for (const absl::string_view piece : {"0123", "4", "567", "", "xyz"}) {
    ASSERT_TRUE(writer->Append(piece).ok());
  }
  const absl::StatusOr<FileSums> sums = writer->Finish();
  ASSERT_TRUE(sums.ok()) << sums.status();
  EXPECT_EQ(memory_->syncs(), 1);
  const std::string json =
      R"({"__metadata__":{"job":"tiny"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
      R"("b":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}})";
  const std::string expected = std::string("\xf8\x0f\0\0\0\0\0\0", 8) + json +
                               std::string(4096 - 8 - json.size(), ' ') + "01234567xyz";
  EXPECT_EQ(bytes_, expected);
  EXPECT_EQ(sums->num_bytes, expected.size());
  EXPECT_EQ(sums->sha256, Sha256(expected));
  EXPECT_EQ(sums->fragment_crc32c.size(), 1u);
}

TEST_F(SafetensorsWriterTest, RefusesTooManyBytesAndTooFew) {
  const std::unique_ptr<SafetensorsWriter> writer = std::move(Create()).value();
  ASSERT_TRUE(writer->Append("0123456789").ok());
  const absl::Status many = writer->Append("ab");
  EXPECT_EQ(many.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(many.message(), "file f: 2 bytes appended, its tensors lack 1");
  const absl::Status few = writer->Finish().status();
  EXPECT_EQ(few.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(few.message(), "file f has 4106 of its 4107 bytes");
  ASSERT_TRUE(writer->Append("a").ok());
  EXPECT_TRUE(writer->Finish().ok());
}

TEST_F(SafetensorsWriterTest, GoesOnWhereAFullDiskStoppedIt) {
  const std::unique_ptr<SafetensorsWriter> writer = std::move(Create()).value();
  ASSERT_TRUE(writer->Append("0123").ok());
  memory_->SetCapacity(bytes_.size());
  EXPECT_EQ(writer->Append("4567xyz").code(), absl::StatusCode::kResourceExhausted);
  memory_->SetCapacity(SIZE_MAX);
  ASSERT_TRUE(writer->Append("4567xyz").ok());
  EXPECT_EQ(writer->Finish()->sha256, Sha256(bytes_));
  EXPECT_EQ(bytes_.substr(4096), "01234567xyz");
}

TEST_F(SafetensorsWriterTest, RefusesTensorsThatCannotBeRead) {
  EXPECT_EQ(SafetensorsWriter::Create(std::make_unique<MemoryFile>(&bytes_), {},
                                      {{"a", TensorType::kFloat32, {UINT64_MAX}, 0, 0}})
                .status()
                .message(),
            "shape [18446744073709551615] of F32 has more than 2^64-1 bytes");
  EXPECT_TRUE(bytes_.empty());
}

}  // namespace
}  // namespace kaon::checkpoint
