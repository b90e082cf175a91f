#include "tests/server/checkpoint/damage.h"

#include <glog/logging.h>

#include <algorithm>
#include <memory>
#include <vector>

namespace kaon::checkpoint {

namespace {

std::string Get(disk::Directory& directory, const std::string& name) {
  const std::unique_ptr<disk::File> file = directory.Open(name).value();
  std::string contents(*file->Size(), '\0');
  CHECK_EQ(*file->Read(0, contents.size(), contents.data()), contents.size()) << name;
  return contents;
}

}  // namespace

std::string NameOf(Damage damage) {
  switch (damage) {
    case Damage::kMissing:
      return "missing";
    case Damage::kTruncated:
      return "truncated";
    case Damage::kTorn:
      return "torn";
    case Damage::kFlipped:
      return "flipped";
  }
  return "unknown";
}

void DamageFile(disk::Directory& directory, const std::string& name, Damage damage) {
  const std::string good = Get(directory, name);
  if (damage == Damage::kMissing) {
    CHECK(directory.Remove(name).ok()) << name;
    return;
  }
  std::string bad = good;
  const size_t middle = good.size() / 2;
  if (damage == Damage::kTruncated) bad.resize(middle);
  if (damage == Damage::kTorn) std::fill(bad.begin() + static_cast<int64_t>(middle), bad.end(), 0);
  if (damage == Damage::kFlipped) bad[middle] = static_cast<char>(bad[middle] ^ 1);
  CHECK(bad != good) << name;
  PutFile(directory, name, bad);
}

void PutFile(disk::Directory& directory, const std::string& name, absl::string_view contents) {
  const absl::Status removed = directory.Remove(name);
  CHECK(removed.ok() || absl::IsNotFound(removed)) << removed;
  const std::unique_ptr<disk::File> file = directory.Create(name).value();
  CHECK(file->Write(0, {contents}).ok()) << name;
  CHECK(file->Sync().ok()) << name;
  CHECK(directory.Sync().ok()) << name;
}

std::map<std::string, std::string> FilesOf(disk::Directory& directory) {
  std::map<std::string, std::string> files;
  const std::vector<std::string> names = directory.List().value();
  for (const std::string& name : names) files[name] = Get(directory, name);
  return files;
}

}  // namespace kaon::checkpoint
