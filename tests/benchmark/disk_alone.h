// Measures plain sequential writes of 1 MiB and one fdatasync, appended to one file. This is the
// limit for a program that writes as many bytes. One thread.
#ifndef KAON_TESTS_BENCHMARK_DISK_ALONE_H_
#define KAON_TESTS_BENCHMARK_DISK_ALONE_H_

#include <glog/logging.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "kernels/steady_clock.h"
#include "server/disk/disk.h"
#include "server/disk/posix_directory.h"

namespace kaon::benchmark {

class DiskAlone {
 public:
  // Creates a file in the directory `path`, which the caller removes. `bytes` must outlive this
  // object. CHECKs every result.
  DiskAlone(const std::string& path, absl::string_view bytes) : bytes_(bytes) {
    auto directory = disk::PosixDirectory::At(path);
    CHECK(directory.ok()) << directory.status();
    directory_ = *std::move(directory);
    auto file = directory_->Create("plain");
    CHECK(file.ok()) << file.status();
    file_ = *std::move(file);
  }

  // Writes all bytes once more and returns the seconds.
  double Seconds() {
    const absl::Time start = SteadyNow();
    for (size_t done = 0; done < bytes_.size(); done += kWriteBytes) {
      const absl::string_view next = bytes_.substr(done, kWriteBytes);
      const absl::Status status = file_->Write(written_, {next});
      CHECK(status.ok()) << status;
      written_ += next.size();
    }
    const absl::Status status = file_->Sync();
    CHECK(status.ok()) << status;
    return absl::ToDoubleSeconds(SteadyNow() - start);
  }

 private:
  static constexpr size_t kWriteBytes = size_t{1} << 20;

  const absl::string_view bytes_;
  std::unique_ptr<disk::PosixDirectory> directory_;
  std::unique_ptr<disk::File> file_;
  uint64_t written_ = 0;
};

}  // namespace kaon::benchmark

#endif  // KAON_TESTS_BENCHMARK_DISK_ALONE_H_
