// Writes a safetensors file with every dtype, or prints the tensors of one, for
// python_reads_test.py.
#include <glog/logging.h>

#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "server/checkpoint/safetensors/safetensors_reader.h"
#include "server/checkpoint/safetensors/safetensors_writer.h"
#include "server/disk/posix_directory.h"

namespace kaon::checkpoint {
namespace {

std::string Pattern(const std::string& name, uint64_t count) {
  std::string bytes(count, '\0');
  for (uint64_t i = 0; i < count; ++i) {
    bytes[i] = static_cast<char>(static_cast<unsigned char>(name[0]) * 31 + i * 7 + (i >> 8));
  }
  return bytes;
}

void Write(std::unique_ptr<disk::File> file) {
  auto writer =
      SafetensorsWriter::Create(std::move(file), {{"job", "tiny"}, {"step", "12"}},
                                {{"float", TensorType::kFloat32, {3, 700, 500}, 0, 0},
                                 {"bfloat", TensorType::kBFloat16, {129}, 0, 0},
                                 {"half", TensorType::kFloat16, {}, 0, 0},
                                 {"int", TensorType::kInt8, {2, 2, 2, 2}, 0, 0},
                                 {"unsigned \xce\xb1 \"q\"", TensorType::kUint8, {34}, 0, 0},
                                 {"long", TensorType::kInt64, {5}, 0, 0},
                                 {"Unsigned long", TensorType::kUint64, {1}, 0, 0},
                                 {"nothing", TensorType::kFloat32, {0, 3}, 0, 0}});
  CHECK(writer.ok()) << writer.status();
  for (const Tensor& tensor : (*writer)->tensors()) {
    const std::string bytes = Pattern(tensor.name, tensor.end - tensor.begin);
    constexpr size_t kPiece = 100'003;
    for (size_t at = 0; at < bytes.size(); at += kPiece) {
      const absl::Status status = (*writer)->Append(absl::string_view(bytes).substr(at, kPiece));
      CHECK(status.ok()) << status;
    }
  }
  const absl::StatusOr<FileSums> sums = (*writer)->Finish();
  CHECK(sums.ok()) << sums.status();
}

void Print(disk::File& file) {
  const auto reader = SafetensorsReader::Open(file, kImportedFiles);
  CHECK(reader.ok()) << reader.status();
  for (const Tensor& tensor : (*reader)->header().tensors) {
    std::string bytes(tensor.end - tensor.begin, '\0');
    const absl::Status status = (*reader)->Read(tensor, 0, absl::MakeSpan(bytes));
    CHECK(status.ok()) << status;
    std::printf("%s %s %s\n", tensor.name.c_str(), std::string(NameOf(tensor.type)).c_str(),
                absl::BytesToHexString(bytes).c_str());
  }
}

}  // namespace
}  // namespace kaon::checkpoint

int main(int argc, char** argv) {
  CHECK_EQ(argc, 3) << "usage: safetensors_file write|print PATH";
  const std::string path = argv[2];
  const size_t slash = path.rfind('/');
  CHECK_NE(slash, std::string::npos) << path;
  const auto directory = kaon::disk::PosixDirectory::At(path.substr(0, slash));
  CHECK(directory.ok()) << directory.status();
  const bool write = std::string(argv[1]) == "write";
  const std::string name = path.substr(slash + 1);
  auto file = write ? (*directory)->Create(name) : (*directory)->Open(name);
  CHECK(file.ok()) << file.status();
  if (write) {
    kaon::checkpoint::Write(std::move(file).value());
  } else {
    kaon::checkpoint::Print(**file);
  }
  return 0;
}
