#include "server/checkpoint/safetensors/safetensors_reader.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "server/checkpoint/safetensors/little_endian.h"
#include "tests/server/checkpoint/safetensors/memory_file.h"

namespace kaon::checkpoint {
namespace {

// Returns a file as another program may write it: no padding, names in no order.
std::string Imported() {
  const std::string json = R"({"w":{"dtype":"F32","shape":[1,2],"data_offsets":[2,10]},)"
                           R"("b":{"dtype":"F16","shape":[],"data_offsets":[0,2]}})";
  return LittleEndian64(json.size()) + json + "hhwwwwWWWW";
}

TEST(SafetensorsReaderTest, ReadsRangesOfTensors) {
  std::string bytes = Imported();
  MemoryFile file(&bytes);
  const auto reader = SafetensorsReader::Open(file, kImportedFiles);
  ASSERT_TRUE(reader.ok()) << reader.status();
  const absl::StatusOr<const Tensor*> w = (*reader)->Find("w");
  ASSERT_TRUE(w.ok()) << w.status();
  EXPECT_EQ((*w)->shape, (std::vector<uint64_t>{1, 2}));
  std::string to(5, '\0');
  ASSERT_TRUE((*reader)->Read(**w, 3, absl::MakeSpan(to)).ok());
  EXPECT_EQ(to, "wWWWW");
  EXPECT_TRUE((*reader)->Read(**w, 8, {}).ok());
}

TEST(SafetensorsReaderTest, NamesWhatIsNotThere) {
  std::string bytes = Imported();
  MemoryFile file(&bytes);
  const auto reader = std::move(SafetensorsReader::Open(file, kImportedFiles)).value();
  EXPECT_EQ(reader->Find("v").status().message(), "file f has no tensor 'v'");
  EXPECT_EQ(reader->Find("v").status().code(), absl::StatusCode::kNotFound);
  const Tensor& w = **reader->Find("w");
  std::string to(5, '\0');
  EXPECT_EQ(reader->Read(w, 4, absl::MakeSpan(to)).message(),
            "file f: tensor 'w': 5 bytes from byte 4 on, it has 8");
  EXPECT_EQ(reader->Read(w, UINT64_MAX, absl::MakeSpan(to)).code(), absl::StatusCode::kOutOfRange);
  bytes.resize(bytes.size() - 1);
  const absl::Status cut = reader->Read(w, 3, absl::MakeSpan(to));
  EXPECT_EQ(cut.code(), absl::StatusCode::kDataLoss);
}

// Every prefix of a file, and the file with a byte more, is refused: none could be read whole.
TEST(SafetensorsReaderTest, RefusesEveryCut) {
  const std::string whole = Imported();
  for (size_t size = 0; size <= whole.size() + 1; ++size) {
    std::string bytes = whole.substr(0, size);
    bytes.resize(size, 'x');
    MemoryFile file(&bytes);
    EXPECT_EQ(SafetensorsReader::Open(file, kImportedFiles).ok(), size == whole.size()) << size;
  }
}

}  // namespace
}  // namespace kaon::checkpoint
