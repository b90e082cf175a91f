#include "server/journal/segment_reader.h"

#include <gtest/gtest.h>

#include <string>

#include "proto/crc32c.h"
#include "tests/server/journal/journal_files.h"

namespace kaon::journal {
namespace {

using Kind = SegmentReader::Kind;

constexpr uint64_t kDirectory = 0x77;

std::string FrameOf(uint64_t sequence, uint64_t durable, const std::string& payload) {
  FrameHeader header;
  header.type = FrameType::kPromise;
  header.directory = kDirectory;
  header.sequence = sequence;
  header.durable_sequence = durable;
  DescribePayload(payload, header);
  const EncodedHeader encoded = EncodeFrameHeader(header);
  return std::string(encoded.data(), encoded.size()) + payload +
         std::string(FramePadding(header.payload_bytes));
}

class SegmentReaderTest : public testing::Test {
 protected:
  SegmentReader& Open(const std::string& contents) {
    WriteFile(directory_->path() + "/journal-1", contents);
    file_ = std::move(directory_->Open("journal-1")).value();
    return reader_.emplace(*file_, contents.size(), 0);
  }

  const std::unique_ptr<disk::PosixDirectory> directory_ = TemporaryDirectory();
  std::unique_ptr<disk::File> file_;
  std::optional<SegmentReader> reader_;
};

TEST_F(SegmentReaderTest, NamesSortAsNumbersDo) {
  EXPECT_EQ(SegmentName(0x1f), "journal-000000000000001f");
  EXPECT_EQ(ParseSegmentName("journal-000000000000001f"), 0x1fu);
  EXPECT_EQ(ParseSegmentName(SegmentName(~uint64_t{0})), ~uint64_t{0});
  for (const char* name : {"journal-000000000000001F", "journal-00000000000001f", "identity",
                           "journal-000000000000001f.tmp", "", "journal-"}) {
    EXPECT_FALSE(ParseSegmentName(name).has_value()) << name;
  }
}

TEST_F(SegmentReaderTest, ReadsFramesOfAnySizeInOrder) {
  const std::string large(3 << 20, 'x');
  SegmentReader& reader = Open(FrameOf(1, 0, "") + FrameOf(2, 0, large) + FrameOf(3, 0, "small"));
  for (const std::string& payload : {std::string(), large, std::string("small")}) {
    const absl::StatusOr<SegmentReader::Found> found = reader.Read();
    ASSERT_TRUE(found.ok()) << found.status();
    ASSERT_EQ(found->kind, Kind::kFrame) << found->why;
    EXPECT_TRUE(found->frame.payload == payload);
  }
  EXPECT_EQ(reader.offset(), reader.size());
  EXPECT_EQ(reader.Read()->kind, Kind::kEnd);
}

TEST_F(SegmentReaderTest, StopsWhereTheFileEndsWithinAFrame) {
  const std::string frames = FrameOf(1, 0, "") + FrameOf(2, 0, std::string(1000, 'x'));
  for (size_t size = 513; size < frames.size(); size += 37) {
    SegmentReader& reader = Open(frames.substr(0, size));
    EXPECT_EQ(reader.Read()->kind, Kind::kFrame);
    EXPECT_EQ(reader.Read()->kind, Kind::kUnwritten) << size;
    EXPECT_EQ(reader.offset(), 512u);
  }
}

TEST_F(SegmentReaderTest, TellsDamageFromWhatWasNotWritten) {
  std::string frames = FrameOf(1, 0, std::string(1000, 'x'));
  frames[600] ^= 1;
  absl::StatusOr<SegmentReader::Found> found = Open(frames).Read();
  EXPECT_EQ(found->kind, Kind::kDamaged);
  EXPECT_NE(found->why.message().find("payload CRC"), absl::string_view::npos) << found->why;
  frames.replace(512, 512, std::string(512, '\0'));
  EXPECT_EQ(Open(frames).Read()->kind, Kind::kUnwritten);
  EXPECT_EQ(Open(std::string(700, 'x')).Read()->kind, Kind::kDamaged);
}

TEST_F(SegmentReaderTest, FindsWhatLaterFramesOfTheSameDirectorySayWasDurable) {
  const std::string hole(512, '\0');
  const std::string far((1 << 20) + 512, '\0');
  EXPECT_EQ(*Open(hole + FrameOf(5, 3, "") + FrameOf(6, 4, "x") + hole).HighestDurable(kDirectory),
            4u);
  EXPECT_EQ(*Open(hole + far + FrameOf(5, 3, "")).HighestDurable(kDirectory), 3u);
  EXPECT_EQ(*Open(hole + FrameOf(5, 3, "")).HighestDurable(kDirectory + 1), 0u);
  EXPECT_EQ(*Open(hole).HighestDurable(kDirectory), 0u);
}

TEST_F(SegmentReaderTest, RefusesAnotherVersionNamingTheFile) {
  std::string frame = FrameOf(1, 0, "");
  frame[4] = 2;
  const uint32_t crc = proto::Crc32c(frame.data(), kFrameHeaderBytes - 4);
  frame.replace(kFrameHeaderBytes - 4, 4, reinterpret_cast<const char*>(&crc), 4);
  const absl::Status status = Open(frame).Read().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(), file_->path() + " at offset 0: journal version 2 read, expecting 1");
}

}  // namespace
}  // namespace kaon::journal
