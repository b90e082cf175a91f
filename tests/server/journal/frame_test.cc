#include "server/journal/frame.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "proto/crc32c.h"

namespace kaon::journal {
namespace {

FrameHeader Header(FrameType type = FrameType::kGradient) {
  FrameHeader header;
  header.type = type;
  header.directory = 0x1122334455667788;
  header.sequence = 41;
  header.durable_sequence = 39;
  header.timeline = 3;
  header.position = 7;
  header.generation = 9;
  header.offset = 262144;
  header.parameter_id = 5;
  header.chain = 0xdeadbeef;
  return header;
}

std::string Encode(FrameHeader header, const std::string& payload) {
  DescribePayload(payload, header);
  const EncodedHeader encoded = EncodeFrameHeader(header);
  std::string bytes(encoded.data(), encoded.size());
  bytes += payload;
  bytes += std::string(FramePadding(header.payload_bytes));
  return bytes;
}

// Sets a number in an encoded header and makes its CRC right again.
template <typename T>
std::string With(std::string bytes, size_t at, T value) {
  std::memcpy(&bytes[at], &value, sizeof(value));
  const uint32_t crc = proto::Crc32c(bytes.data(), kFrameHeaderBytes - 4);
  std::memcpy(&bytes[kFrameHeaderBytes - 4], &crc, sizeof(crc));
  return bytes;
}

std::string Payload(size_t size) {
  std::string payload(size, '\0');
  for (size_t i = 0; i < size; ++i) payload[i] = static_cast<char>(i % 251 + 1);
  return payload;
}

TEST(FrameTest, GivesBackWhatWasEncoded) {
  const std::string payload = Payload(4000);
  const std::string bytes = Encode(Header(), payload);
  EXPECT_EQ(bytes.size(), 4608u);
  const absl::StatusOr<Frame> frame = DecodeFrame(bytes);
  ASSERT_TRUE(frame.ok()) << frame.status();
  EXPECT_EQ(frame->payload, payload);
  EXPECT_EQ(frame->header.type, FrameType::kGradient);
  EXPECT_EQ(frame->header.directory, 0x1122334455667788u);
  EXPECT_EQ(frame->header.sequence, 41u);
  EXPECT_EQ(frame->header.durable_sequence, 39u);
  EXPECT_EQ(frame->header.timeline, 3u);
  EXPECT_EQ(frame->header.position, 7u);
  EXPECT_EQ(frame->header.generation, 9u);
  EXPECT_EQ(frame->header.offset, 262144u);
  EXPECT_EQ(frame->header.parameter_id, 5u);
  EXPECT_EQ(frame->header.payload_bytes, 4000u);
  EXPECT_EQ(frame->header.payload_crc, proto::Crc32c(payload.data(), payload.size()));
  EXPECT_EQ(frame->header.chain, 0xdeadbeefu);
}

// The table of docs/formats.md.
TEST(FrameTest, LiesAsTheFormatsPageSays) {
  const std::string bytes = Encode(Header(), Payload(8));
  const auto hex = [&](size_t at, size_t size) {
    std::string text;
    for (size_t i = 0; i < size; ++i) {
      char digits[3];
      snprintf(digits, sizeof(digits), "%02x", static_cast<unsigned char>(bytes[at + i]));
      text += digits;
    }
    return text;
  };
  EXPECT_EQ(hex(0, 8), "4b414a9101000600");
  EXPECT_EQ(hex(8, 16), "88776655443322112900000000000000");
  EXPECT_EQ(hex(24, 16), "27000000000000000300000000000000");
  EXPECT_EQ(hex(40, 16), "07000000000000000900000000000000");
  EXPECT_EQ(hex(56, 16), "00000400000000000500000008000000");
  EXPECT_EQ(hex(72, 4), "00000000");
  EXPECT_EQ(hex(80, 4), "efbeadde");
  EXPECT_EQ(hex(84, 40), std::string(80, '0'));
  EXPECT_EQ(hex(128, 8), "0102030405060708");
  EXPECT_EQ(bytes.size(), 512u);
}

TEST(FrameTest, FillsWholeSectors) {
  for (const uint32_t size : {0u, 1u, 383u, 384u, 385u, 896u, 897u, kMaxGradientBytes}) {
    EXPECT_EQ(FrameBytes(size) % kSectorBytes, 0u);
    EXPECT_EQ(FrameBytes(size), kFrameHeaderBytes + size + FramePadding(size).size());
    EXPECT_LT(FramePadding(size).size(), kSectorBytes);
  }
  EXPECT_EQ(FrameBytes(384), 512u);
  EXPECT_EQ(FrameBytes(385), 1024u);
}

TEST(FrameTest, FindsEveryFlippedBit) {
  const std::string bytes = Encode(Header(), Payload(600));
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    std::string flipped = bytes;
    flipped[bit / 8] ^= static_cast<char>(1 << bit % 8);
    const absl::StatusOr<Frame> frame = DecodeFrame(flipped);
    EXPECT_EQ(frame.status().code(), absl::StatusCode::kDataLoss) << bit;
    EXPECT_FALSE(MayBeUnwritten(flipped)) << bit;
  }
}

TEST(FrameTest, RefusesEveryLengthButItsOwn) {
  const std::string bytes = Encode(Header(), Payload(600));
  for (size_t size = 0; size <= bytes.size() + 1; ++size) {
    std::string cut = bytes;
    cut.resize(size);
    EXPECT_EQ(DecodeFrame(cut).ok(), size == bytes.size()) << size;
    EXPECT_EQ(MayBeUnwritten(cut), size < bytes.size()) << size;
  }
}

TEST(FrameTest, NamesBothVersionsOfAnIntactHeader) {
  const std::string bytes = With<uint16_t>(Encode(Header(), Payload(8)), 4, 2);
  const absl::Status status = DecodeFrameHeader(bytes).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(), "journal version 2 read, expecting 1");
}

TEST(FrameTest, RefusesFieldsOutOfRangeBeforeTheyAreUsed) {
  const std::string gradient = Encode(Header(), Payload(8));
  const std::string promise = Encode(Header(FrameType::kPromise), Payload(32));
  EXPECT_EQ(DecodeFrameHeader(With<uint16_t>(gradient, 6, 0)).status().message(),
            "frame type 0 is unknown");
  EXPECT_EQ(DecodeFrameHeader(With<uint16_t>(gradient, 6, 10)).status().message(),
            "frame type 10 is unknown");
  EXPECT_EQ(DecodeFrameHeader(With<uint32_t>(gradient, 68, (1 << 20) + 4)).status().message(),
            "payload of 1048580 bytes, at most 1048576");
  EXPECT_EQ(DecodeFrameHeader(With<uint32_t>(gradient, 68, 6)).status().message(),
            "payload of 6 bytes is no number of float32");
  EXPECT_EQ(DecodeFrameHeader(With<uint32_t>(promise, 68, ~uint32_t{0})).status().message(),
            "payload of 4294967295 bytes, at most 134217728");
  EXPECT_EQ(DecodeFrameHeader(With<char>(gradient, 90, 1)).status().message(),
            "reserved bytes of the frame header are not zero");
}

TEST(FrameTest, TellsZerosThatWereWrittenFromSectorsThatWereNot) {
  // An embedding's gradient: sectors 1 and 3 are zero, 2 is not.
  std::string payload = Payload(384 + 4 * 512);
  std::memset(&payload[384], 0, 512);
  std::memset(&payload[384 + 2 * 512], 0, 512);
  const std::string bytes = Encode(Header(), payload);
  ASSERT_TRUE(DecodeFrame(bytes).ok());
  EXPECT_EQ(DecodeFrame(bytes)->header.zero_sectors, 2u);
  for (size_t sector = 0; sector < 5; ++sector) {
    std::string torn = bytes;
    std::memset(&torn[sector * 512], 0, 512);
    EXPECT_EQ(DecodeFrame(torn).ok(), torn == bytes);
    EXPECT_EQ(MayBeUnwritten(torn), torn != bytes) << sector;
    std::string flipped = bytes;
    flipped[sector * 512 + 200] ^= 1;
    EXPECT_FALSE(DecodeFrame(flipped).ok());
    EXPECT_FALSE(MayBeUnwritten(flipped)) << sector;
  }
}

TEST(FrameTest, AFileThatEndsOrIsZeroIsUnwritten) {
  EXPECT_TRUE(MayBeUnwritten(""));
  EXPECT_TRUE(MayBeUnwritten(std::string(512, '\0')));
  EXPECT_TRUE(MayBeUnwritten(std::string(4096, '\0')));
  EXPECT_FALSE(MayBeUnwritten(std::string(512, 'x')));
}

}  // namespace
}  // namespace kaon::journal
