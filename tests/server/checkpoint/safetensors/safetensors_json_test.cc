#include "server/checkpoint/safetensors/safetensors_json.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace kaon::checkpoint {
namespace {

std::string Refusal(absl::string_view json) {
  const absl::StatusOr<SafetensorsHeader> header = ParseHeaderJson("f", json);
  EXPECT_EQ(header.status().code(), absl::StatusCode::kInvalidArgument) << json;
  return std::string(header.status().message());
}

TEST(SafetensorsJsonTest, ReadsTensorsInAnyOrderOfTheirFields) {
  const absl::StatusOr<SafetensorsHeader> header =
      ParseHeaderJson("f", R"({"b":{"data_offsets":[6,8],"dtype":"BF16","shape":[]},)"
                           R"( "__metadata__":{"format":"pt","k":""}, )"
                           R"("a\u00e9":{"dtype":"F32","shape":[2,0],"data_offsets":[0,6]}}  )");
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->metadata, (std::map<std::string, std::string>{{"format", "pt"}, {"k", ""}}));
  const std::vector<Tensor> expected = {{"b", TensorType::kBFloat16, {}, 6, 8},
                                        {"a\xc3\xa9", TensorType::kFloat32, {2, 0}, 0, 6}};
  EXPECT_EQ(header->tensors, expected);
}

TEST(SafetensorsJsonTest, ReadsWhatItWrites) {
  const std::map<std::string, std::string> metadata = {{"job", "a \"b\"\n"}, {"step", "7"}};
  const std::vector<Tensor> tensors = {{"x\\y", TensorType::kUint64, {3}, 0, 24},
                                       {"\xce\xb1", TensorType::kInt8, {}, 24, 25}};
  const absl::StatusOr<SafetensorsHeader> header =
      ParseHeaderJson("f", FormatHeaderJson(metadata, tensors));
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->metadata, metadata);
  EXPECT_EQ(header->tensors, tensors);
  EXPECT_EQ(FormatHeaderJson({}, {}), "{}");
}

TEST(SafetensorsJsonTest, RefusesWhatIsNoHeader) {
  EXPECT_EQ(Refusal("5"), "file f: header is 5, expecting an object");
  EXPECT_EQ(Refusal("[]"), "file f: header is an array, expecting an object");
  EXPECT_EQ(Refusal(R"({"a":null})"), "file f: header: tensor 'a' is null, expecting an object");
  EXPECT_EQ(Refusal(R"({"a":[{}]})"),
            "file f: header: tensor 'a' is an array, expecting an object");
  for (const absl::string_view json :
       {"", "{", "{}}", "{} x", R"({"a":})", "{\"a\xff\":1}", R"({"\ud800":{}})"}) {
    EXPECT_NE(Refusal(json).find("file f: header: byte "), std::string::npos) << Refusal(json);
  }
}

TEST(SafetensorsJsonTest, NamesTensorFieldAndBothValues) {
  const std::string begin = "file f: header: tensor 'a': field ";
  EXPECT_EQ(Refusal(R"({"a":{"dtype":"F64"}})"),
            begin + "'dtype' is 'F64', expecting one of F32 BF16 F16 I8 U8 I64 U64");
  EXPECT_EQ(Refusal(R"({"a":{"dtype":1}})"), begin + "'dtype' is 1, expecting a string");
  EXPECT_EQ(Refusal(R"({"a":{"dtype":["F32"]}})"),
            begin + "'dtype' is an array, expecting a string");
  EXPECT_EQ(Refusal(R"({"a":{"shape":4}})"),
            begin + "'shape' is 4, expecting an array of integers");
  EXPECT_EQ(Refusal(R"({"a":{"shape":"4"}})"),
            begin + "'shape' is '4', expecting an array of integers");
  EXPECT_EQ(Refusal(R"({"a":{"shape":{"b":1}}})"),
            begin + "'shape' is an object, expecting an array of integers");
  for (const char* number :
       {"-1", "1.0", "18446744073709551616", "1e3", "-0", "true", "\"1\"", "[]"}) {
    EXPECT_NE(Refusal(absl::StrCat(R"({"a":{"shape":[)", number, "]}}")).find("'shape' contains "),
              std::string::npos)
        << number;
  }
  EXPECT_EQ(Refusal(R"({"a":{"data_offsets":[1,2,3]}})"),
            begin + "'data_offsets' has more than 2 numbers");
  EXPECT_EQ(Refusal(R"({"a":{"dtype":"F32","shape":[],"data_offsets":[1]}})"),
            begin + "'data_offsets' has 1 numbers, expecting 2");
  EXPECT_EQ(Refusal(R"({"a":{"dtype":"F32","shape":[]}})"), begin + "'data_offsets' is missing");
  EXPECT_EQ(Refusal(R"({"a":{"dtype":"F32","data_offsets":[0,4]}})"), begin + "'shape' is missing");
  EXPECT_EQ(Refusal(R"({"a":{"shape":[],"data_offsets":[0,4]}})"), begin + "'dtype' is missing");
  EXPECT_EQ(Refusal(R"({"a":{"strides":[1]}})"),
            begin + "'strides' is unknown, expecting dtype, shape and data_offsets");
  EXPECT_EQ(Refusal(R"({"__metadata__":{"k":1}})"),
            "file f: header: tensor '__metadata__': field 'k' is 1, expecting a string");
}

TEST(SafetensorsJsonTest, RefusesWhatIsThereTwice) {
  const std::string a = R"("a":{"dtype":"I8","shape":[],"data_offsets":[0,1]})";
  EXPECT_EQ(Refusal("{" + a + "," + a + "}"), "file f: header: tensor 'a' is there twice");
  // Spelled otherwise, the same name.
  EXPECT_EQ(Refusal("{" + a + R"(,"\u0061":{}})"), "file f: header: tensor 'a' is there twice");
  EXPECT_EQ(Refusal(R"({"a":{"shape":[],"shape":[]}})"),
            "file f: header: tensor 'a': field 'shape' is there twice");
  EXPECT_EQ(Refusal(R"({"__metadata__":{"k":"1","k":"1"}})"),
            "file f: header: tensor '__metadata__': field 'k' is there twice");
  EXPECT_EQ(Refusal(R"({"__metadata__":{},"__metadata__":{}})"),
            "file f: header: tensor '__metadata__' is there twice");
}

// Deep or long input costs no more than its own length, and no message grows with it.
TEST(SafetensorsJsonTest, DepthAndLengthAreBounded) {
  const size_t many = 1 << 20;
  EXPECT_LT(Refusal(std::string(many, '[')).size(), 500u);
  std::string deep = "{\"a\":";
  for (size_t i = 0; i < many; ++i) deep += "{\"a\":";
  EXPECT_LT(Refusal(deep).size(), 500u);
  EXPECT_LT(Refusal("{\"" + std::string(many, 'x') + "\":1}").size(), 500u);
  EXPECT_LT(Refusal("{\"a\":{\"dtype\":\"" + std::string(many, 'x') + "\"}}").size(), 500u);
  EXPECT_LT(Refusal("{\"a\":" + std::string(many, '\x01') + "}").size(), 2000u);
  std::string shape = "{\"a\":{\"shape\":[1";
  for (size_t i = 0; i < kMaxDimensions; ++i) shape += ",1";
  EXPECT_EQ(Refusal(shape + "]}}"),
            "file f: header: tensor 'a': field 'shape' has more than 32 numbers");
}

}  // namespace
}  // namespace kaon::checkpoint
