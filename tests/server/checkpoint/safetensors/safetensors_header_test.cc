#include "server/checkpoint/safetensors/safetensors_header.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace kaon::checkpoint {
namespace {

constexpr TensorType kF32 = TensorType::kFloat32;

std::string Entry(absl::string_view name, absl::string_view dtype, absl::string_view shape,
                  absl::string_view offsets) {
  return absl::StrCat("\"", name, "\":{\"dtype\":\"", dtype, "\",\"shape\":[", shape,
                      "],\"data_offsets\":[", offsets, "]}");
}

absl::StatusOr<SafetensorsHeader> Parse(const std::string& json, uint64_t data_bytes) {
  return ParseHeader("f", json, kLengthBytes + json.size() + data_bytes, kImportedFiles);
}

std::string Refusal(const std::string& json, uint64_t data_bytes) {
  const absl::Status status = Parse(json, data_bytes).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(SafetensorsHeaderTest, TakesTensorsOfAnImportInAnyOrder) {
  const std::string json = "{" + Entry("b", "F32", "2", "4,12") + "," +
                           Entry("none", "F32", "0,7", "4,4") + "," + Entry("a", "U8", "4", "0,4") +
                           "}";
  const absl::StatusOr<SafetensorsHeader> header = Parse(json, 12);
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->first_byte, kLengthBytes + json.size());
  ASSERT_EQ(header->tensors.size(), 3u);
  EXPECT_EQ(header->tensors[0].name, "a");
  EXPECT_EQ(header->tensors[1].name, "none");
  EXPECT_EQ(header->tensors[2].name, "b");
  EXPECT_TRUE(Parse("{}", 0).ok());
}

TEST(SafetensorsHeaderTest, RefusesOverlapHoleAndBytesBeyond) {
  EXPECT_EQ(
      Refusal("{" + Entry("a", "F32", "2", "0,8") + "," + Entry("b", "F32", "1", "4,8") + "}", 8),
      "file f: tensor 'b': begins at 4, inside tensor 'a', which ends at 8");
  EXPECT_EQ(
      Refusal("{" + Entry("a", "F32", "1", "0,4") + "," + Entry("b", "F32", "1", "8,12") + "}", 12),
      "file f: tensor 'b': begins at 8, expecting 4: bytes between belong to no tensor");
  EXPECT_EQ(Refusal("{" + Entry("a", "F32", "1", "1,5") + "}", 5),
            "file f: tensor 'a': begins at 1, expecting 0: bytes between belong to no tensor");
  EXPECT_EQ(Refusal("{" + Entry("a", "F32", "2", "0,8") + "}", 4),
            "file f: tensor 'a': field data_offsets is [0,8], expecting a range in [0,4]");
  EXPECT_EQ(Refusal("{" + Entry("a", "F32", "2", "8,0") + "}", 8),
            "file f: tensor 'a': field data_offsets is [8,0], expecting a range in [0,8]");
  EXPECT_EQ(Refusal("{" + Entry("a", "F32", "1", "0,4") + "}", 7),
            "file f: its data is 7 bytes long, but the last tensor ends at 4");
  EXPECT_EQ(Refusal("{}", 1), "file f: its data is 1 bytes long, but the last tensor ends at 0");
}

TEST(SafetensorsHeaderTest, RefusesASizeThatIsNotShapeTimesType) {
  EXPECT_EQ(
      Refusal("{" + Entry("a", "BF16", "2,3", "0,16") + "}", 16),
      "file f: tensor 'a': field data_offsets spans 16 bytes, but shape [2,3] of BF16 has 12");
  // 2^62 * 4 is 0 in 64 bits.
  EXPECT_EQ(Refusal("{" + Entry("a", "F32", "4611686018427387904", "0,0") + "}", 0),
            "file f: tensor 'a': shape [4611686018427387904] of F32 has more than 2^64-1 bytes");
  EXPECT_EQ(Refusal("{" + Entry("a", "I8", "4294967296,4294967296", "0,0") + "}", 0),
            "file f: tensor 'a': shape [4294967296,4294967296] of I8 has more than 2^64-1 bytes");
  EXPECT_EQ(*TensorBytes(kF32, {4294967296, 4294967296, 0}), 0u);
  EXPECT_EQ(*TensorBytes(TensorType::kUint64, {}), 8u);
}

TEST(SafetensorsHeaderTest, RefusesALengthBeyondTheFileOrTheLimit) {
  const auto refusal = [](const std::string& prefix, uint64_t file_bytes) {
    return std::string(ParseHeaderLength("f", prefix, file_bytes, kOurFiles).status().message());
  };
  EXPECT_EQ(refusal("1234567", 7),
            "file f: is 7 bytes long, expecting the 8 bytes of the header's length");
  EXPECT_EQ(refusal(std::string("\x05\0\0\0\0\0\0\0", 8), 12),
            "file f: its header is 5 bytes long, but only 4 bytes follow");
  EXPECT_EQ(refusal(std::string(8, '\xff'), UINT64_MAX),
            "file f: its header is 18446744073709551615 bytes long, expecting at most 1048576");
  EXPECT_EQ(*ParseHeaderLength("f", std::string("\0\0\x10\0\0\0\0\0", 8), 1 << 21, kOurFiles),
            1u << 20);
  EXPECT_FALSE(
      ParseHeaderLength("f", std::string("\1\0\x10\0\0\0\0\0", 8), 1 << 21, kOurFiles).ok());
  EXPECT_TRUE(
      ParseHeaderLength("f", std::string("\1\0\x10\0\0\0\0\0", 8), 1 << 21, kImportedFiles).ok());
}

TEST(SafetensorsHeaderTest, RefusesWhatDoesNotBeginWithABrace) {
  EXPECT_EQ(Refusal(" {}", 0), "file f: its header begins with ' ', expecting '{'");
  EXPECT_EQ(Refusal("\xef\xbb\xbf{}", 0), "file f: its header begins with '\\xef', expecting '{'");
  EXPECT_EQ(Refusal("", 0), "file f: its header begins with '', expecting '{'");
}

TEST(SafetensorsHeaderTest, LaysOutLargerElementsFirst) {
  const absl::StatusOr<std::vector<Tensor>> tensors =
      LayOut({{"b8", TensorType::kUint8, {3}, 0, 0},
              {"f", kF32, {2}, 0, 0},
              {"a16", TensorType::kBFloat16, {5}, 0, 0},
              {"e", kF32, {}, 0, 0},
              {"n", TensorType::kInt64, {1}, 0, 0}});
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  const std::vector<Tensor> expected = {{"n", TensorType::kInt64, {1}, 0, 8},
                                        {"e", kF32, {}, 8, 12},
                                        {"f", kF32, {2}, 12, 20},
                                        {"a16", TensorType::kBFloat16, {5}, 20, 30},
                                        {"b8", TensorType::kUint8, {3}, 30, 33}};
  EXPECT_EQ(*tensors, expected);
  EXPECT_EQ(LayOut({{"a", TensorType::kUint8, {uint64_t{1} << 63}, 0, 0},
                    {"b", TensorType::kUint8, {uint64_t{1} << 63}, 0, 0}})
                .status()
                .message(),
            "tensor 'b' of 9223372036854775808 bytes begins at 9223372036854775808: ends beyond "
            "2^64-1");
}

TEST(SafetensorsHeaderTest, OurHeadersAreAlignedAndReadBack) {
  for (const size_t name_bytes : {1, 3900, 3950, 4000, 4032, 4033, 4034, 4096}) {
    const std::vector<Tensor> tensors =
        *LayOut({{std::string(name_bytes, 'x'), kF32, {3}, 0, 0}, {"y", kF32, {}, 0, 0}});
    const absl::StatusOr<std::string> header = FormatHeader("f", {{"step", "3"}}, tensors);
    ASSERT_TRUE(header.ok()) << header.status();
    EXPECT_EQ(header->size() % kDataAlignment, 0u);
    EXPECT_EQ(*ParseHeaderLength("f", *header, header->size(), kOurFiles),
              header->size() - kLengthBytes);
    const absl::StatusOr<SafetensorsHeader> read =
        ParseHeader("f", header->substr(kLengthBytes), header->size() + 16, kOurFiles);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->tensors, tensors);
    EXPECT_EQ(read->first_byte, header->size());
    EXPECT_EQ(read->metadata.at("step"), "3");
  }
}

TEST(SafetensorsHeaderTest, RefusesToWriteWhatCouldNotBeRead) {
  const auto refusal = [](std::vector<Tensor> tensors) {
    return std::string(FormatHeader("f", {}, *LayOut(std::move(tensors))).status().message());
  };
  EXPECT_EQ(refusal({{"a", kF32, {}, 0, 0}, {"a", kF32, {}, 0, 0}}),
            "file f: header: tensor 'a' is there twice");
  EXPECT_EQ(refusal({{"\xff", kF32, {}, 0, 0}}),
            "file f: a name is no UTF-8, or is __metadata__, which is no tensor's");
  EXPECT_FALSE(refusal({{"__metadata__", kF32, {}, 0, 0}}).empty());
  EXPECT_EQ(refusal({{std::string(1 << 20, 'a'), kF32, {}, 0, 0}}),
            "file f: its header is 1052664 bytes long, expecting at most 1048576");
  EXPECT_FALSE(FormatHeader("f", {{"k", "\xc3"}}, {}).ok());
}

TEST(SafetensorsHeaderTest, OurFilesHaveOneOrderAndAlignment) {
  const std::string a = Entry("a", "F32", "1", "0,4");
  const std::string b = Entry("b", "U8", "4", "4,8");
  const auto parse = [](std::string json) {
    json.resize(kDataAlignment - kLengthBytes, ' ');
    return ParseHeader("f", json, kDataAlignment + 8, kOurFiles).status();
  };
  EXPECT_TRUE(parse("{" + a + "," + b + "}").ok());
  EXPECT_EQ(parse("{" + b + "," + a + "}").message(),
            "file f: tensor 'a': comes after tensor 'b', expecting larger elements first, then "
            "names in order");
  const std::string json = "{" + a + "," + b + "}";
  EXPECT_EQ(ParseHeader("f", json, kLengthBytes + json.size() + 8, kOurFiles).status().message(),
            absl::StrCat("file f: its data begins at byte ", json.size() + 8,
                         ", expecting a multiple of 4096"));
}

// For any tensors, every byte of the data belongs to one of them. All but the first of each element
// size begin aligned.
TEST(SafetensorsHeaderTest, AnyLayoutReadsBack) {
  std::mt19937 random(20261121);
  constexpr TensorType kTypes[] = {kF32,
                                   TensorType::kBFloat16,
                                   TensorType::kFloat16,
                                   TensorType::kInt8,
                                   TensorType::kUint8,
                                   TensorType::kInt64,
                                   TensorType::kUint64};
  for (int round = 0; round < 300; ++round) {
    std::vector<Tensor> tensors;
    for (uint32_t i = random() % 20; i > 0; --i) {
      Tensor tensor{absl::StrCat("t", i), kTypes[random() % 7], {}, 0, 0};
      for (uint32_t d = random() % 4; d > 0; --d) tensor.shape.push_back(random() % 6);
      tensors.push_back(tensor);
    }
    std::shuffle(tensors.begin(), tensors.end(), random);
    const std::vector<Tensor> laid_out = *LayOut(tensors);
    for (const Tensor& tensor : laid_out) EXPECT_EQ(tensor.begin % SizeOf(tensor.type), 0u);
    const std::string header = *FormatHeader("f", {}, laid_out);
    const uint64_t size = header.size() + (laid_out.empty() ? 0 : laid_out.back().end);
    EXPECT_EQ(ParseHeader("f", header.substr(kLengthBytes), size, kOurFiles)->tensors, laid_out);
    EXPECT_EQ(ParseHeader("f", header.substr(kLengthBytes), size, kImportedFiles)->tensors.size(),
              laid_out.size());
  }
}

}  // namespace
}  // namespace kaon::checkpoint
