// The conformance suite of disk::Directory. The test of each directory instantiates it:
//   INSTANTIATE_TYPED_TEST_SUITE_P(PosixDirectory, DirectoryConformance, PosixDirectoryFactory);
// where the factory has static std::unique_ptr<disk::Directory> Create(), which returns an empty
// directory each time. The suite does not cover crashes, because each disk loses other data. One
// thread.
#ifndef KAON_TESTS_CONFORMANCE_DIRECTORY_CONFORMANCE_H_
#define KAON_TESTS_CONFORMANCE_DIRECTORY_CONFORMANCE_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "server/disk/disk.h"

namespace kaon::disk {

template <typename Factory>
class DirectoryConformance : public testing::Test {
 protected:
  static absl::Status Write(File& file, uint64_t offset, absl::string_view bytes) {
    return file.Write(offset, {bytes});
  }

  // Reads everything from `offset` on in one call.
  static std::string Read(File& file, uint64_t offset, size_t size) {
    std::string bytes(size, '?');
    const absl::StatusOr<size_t> count = file.Read(offset, size, bytes.data());
    EXPECT_TRUE(count.ok()) << count.status();
    bytes.resize(count.value_or(0));
    return bytes;
  }

  std::unique_ptr<File> Create(const std::string& name, absl::string_view bytes = "") {
    absl::StatusOr<std::unique_ptr<File>> file = directory_->Create(name);
    EXPECT_TRUE(file.ok()) << file.status();
    EXPECT_TRUE(Write(**file, 0, bytes).ok());
    return std::move(file).value();
  }

  std::string Contents(const std::string& name) {
    const absl::StatusOr<std::unique_ptr<File>> file = directory_->Open(name);
    EXPECT_TRUE(file.ok()) << file.status();
    return file.ok() ? Read(**file, 0, 1 << 20) : "";
  }

  std::unique_ptr<Directory> directory_ = Factory::Create();
};

TYPED_TEST_SUITE_P(DirectoryConformance);

TYPED_TEST_P(DirectoryConformance, ReadsWhatWasWrittenAlsoThroughAnotherHandle) {
  const std::unique_ptr<File> file = this->Create("a", "0123456789");
  ASSERT_TRUE(this->Write(*file, 4, "XY").ok());
  EXPECT_EQ(this->Read(*file, 0, 10), "0123XY6789");
  EXPECT_EQ(this->Read(*file, 3, 4), "3XY6");
  EXPECT_EQ(this->Contents("a"), "0123XY6789");
}

TYPED_TEST_P(DirectoryConformance, ReadsLessOnlyAtTheEnd) {
  const std::unique_ptr<File> file = this->Create("a", "0123456789");
  EXPECT_EQ(this->Read(*file, 8, 5), "89");
  EXPECT_EQ(this->Read(*file, 10, 5), "");
  EXPECT_EQ(this->Read(*file, 1000, 5), "");
  EXPECT_EQ(this->Read(*file, 5, 0), "");
}

TYPED_TEST_P(DirectoryConformance, WritesSlicesOneAfterTheOther) {
  const std::unique_ptr<File> file = this->Create("a");
  std::string expected(5, 'x');
  ASSERT_TRUE(this->Write(*file, 0, expected).ok());
  std::vector<std::string> pieces;
  for (int i = 0; i < 3000; ++i) pieces.emplace_back(i % 7, static_cast<char>('a' + i % 26));
  std::vector<absl::string_view> slices(pieces.begin(), pieces.end());
  for (const std::string& piece : pieces) expected += piece;
  ASSERT_TRUE(file->Write(5, slices).ok());
  EXPECT_EQ(this->Contents("a"), expected);
  ASSERT_TRUE(file->Write(5, {}).ok());
  EXPECT_EQ(*file->Size(), expected.size());
}

TYPED_TEST_P(DirectoryConformance, FillsTheGapBeforeAWriteWithZeros) {
  const std::unique_ptr<File> file = this->Create("a", "ab");
  ASSERT_TRUE(this->Write(*file, 2000, "c").ok());
  EXPECT_EQ(*file->Size(), 2001u);
  EXPECT_EQ(this->Read(*file, 0, 3000), "ab" + std::string(1998, '\0') + "c");
}

TYPED_TEST_P(DirectoryConformance, CutsOffAndLengthensWithZeros) {
  const std::unique_ptr<File> file = this->Create("a", std::string(3000, 'a'));
  ASSERT_TRUE(file->Truncate(1000).ok());
  EXPECT_EQ(*file->Size(), 1000u);
  ASSERT_TRUE(file->Truncate(1500).ok());
  EXPECT_EQ(this->Contents("a"), std::string(1000, 'a') + std::string(500, '\0'));
  ASSERT_TRUE(file->Truncate(0).ok());
  EXPECT_EQ(this->Contents("a"), "");
}

TYPED_TEST_P(DirectoryConformance, KeepsWhatIsSynced) {
  const std::unique_ptr<File> file = this->Create("a", "0123456789");
  EXPECT_TRUE(file->Sync().ok());
  EXPECT_TRUE(file->Sync().ok());
  EXPECT_TRUE(this->directory_->Sync().ok());
  EXPECT_EQ(this->Contents("a"), "0123456789");
}

TYPED_TEST_P(DirectoryConformance, ListsNamesInOrder) {
  EXPECT_TRUE(this->directory_->List()->empty());
  for (const std::string name : {"b", "journal-0000000000000010", "a.tmp", "a"}) this->Create(name);
  const std::vector<std::string> names = {"a", "a.tmp", "b", "journal-0000000000000010"};
  EXPECT_EQ(*this->directory_->List(), names);
  EXPECT_EQ(*this->directory_->List(), names);
}

TYPED_TEST_P(DirectoryConformance, CreatesOnlyWhatIsNotThereAndOpensOnlyWhatIs) {
  this->Create("a", "kept");
  EXPECT_EQ(this->directory_->Create("a").status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(this->Contents("a"), "kept");
  const absl::Status missing = this->directory_->Open("b").status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(missing.message().find(this->directory_->path() + "/b"), absl::string_view::npos)
      << missing;
}

TYPED_TEST_P(DirectoryConformance, RenamesOverWhatIsThere) {
  this->Create("a", "of a");
  this->Create("b", "of b");
  ASSERT_TRUE(this->directory_->Rename("a", "b").ok());
  EXPECT_EQ(this->Contents("b"), "of a");
  EXPECT_EQ(this->directory_->List()->size(), 1u);
  EXPECT_EQ(this->directory_->Rename("a", "b").code(), absl::StatusCode::kNotFound);
}

TYPED_TEST_P(DirectoryConformance, RemovesANameAndLeavesOpenHandlesUsable) {
  const std::unique_ptr<File> file = this->Create("a", "old");
  ASSERT_TRUE(this->directory_->Remove("a").ok());
  EXPECT_TRUE(this->directory_->List()->empty());
  EXPECT_EQ(this->directory_->Remove("a").code(), absl::StatusCode::kNotFound);
  this->Create("a", "fresh");
  EXPECT_EQ(this->Read(*file, 0, 10), "old");
  EXPECT_EQ(this->Contents("a"), "fresh");
}

TYPED_TEST_P(DirectoryConformance, RefusesNamesThatAreNotOneComponent) {
  for (const std::string& name :
       {std::string(), std::string("."), std::string(".."), std::string("a/b"), std::string("/a"),
        std::string("../a"), std::string("a\0b", 3)}) {
    EXPECT_EQ(this->directory_->Open(name).status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(this->directory_->Create(name).status().code(),
              absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(this->directory_->Remove(name).code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(this->directory_->Rename("a", name).code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(this->directory_->Rename(name, "a").code(), absl::StatusCode::kFailedPrecondition);
  }
}

TYPED_TEST_P(DirectoryConformance, NamesEachFileByItsPath) {
  EXPECT_EQ(this->Create("a")->path(), this->directory_->path() + "/a");
  EXPECT_EQ((*this->directory_->Open("a"))->path(), this->directory_->path() + "/a");
}

REGISTER_TYPED_TEST_SUITE_P(DirectoryConformance, ReadsWhatWasWrittenAlsoThroughAnotherHandle,
                            ReadsLessOnlyAtTheEnd, WritesSlicesOneAfterTheOther,
                            FillsTheGapBeforeAWriteWithZeros, CutsOffAndLengthensWithZeros,
                            KeepsWhatIsSynced, ListsNamesInOrder,
                            CreatesOnlyWhatIsNotThereAndOpensOnlyWhatIs, RenamesOverWhatIsThere,
                            RemovesANameAndLeavesOpenHandlesUsable,
                            RefusesNamesThatAreNotOneComponent, NamesEachFileByItsPath);

}  // namespace kaon::disk

#endif  // KAON_TESTS_CONFORMANCE_DIRECTORY_CONFORMANCE_H_
