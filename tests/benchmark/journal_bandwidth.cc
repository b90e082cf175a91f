// How fast the journal takes steps whose gradients are all there, beside what the disk takes of as
// many bytes by plain sequential writes and one fdatasync: the limit, measured by turns in the same
// run (docs/design/performance.md). One process, one thread beside the journal's own.
#include <glog/logging.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kaon/v1/agreement.pb.h"
#include "kernels/mutex.h"
#include "kernels/steady_clock.h"
#include "server/disk/posix_directory.h"
#include "server/journal/disk_journal.h"

namespace kaon::journal {
namespace {

constexpr uint64_t kSliceBytes = uint64_t{1} << 20;
constexpr char kUsage[] = R"(journal_bandwidth DIR [STEP_MIB [STEPS]]

Measures the journal's bandwidth beside the disk's, in a new directory in DIR that is removed after.
STEP_MIB: gradients of a step, default 64. STEPS: default 12.
)";

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

class Bandwidth {
 public:
  Bandwidth(const std::string& path, uint64_t step_mib, uint64_t steps) : steps_(steps) {
    std::filesystem::create_directories(path);
    auto directory = disk::PosixDirectory::At(path);
    CHECK(directory.ok()) << directory.status();
    directory_ = *std::move(directory);
    DiskJournal::Options options;
    options.log.id_if_created = {1, 2};
    auto journal =
        DiskJournal::Open(*directory_, options, [](const Entry&) { return absl::OkStatus(); });
    CHECK(journal.ok()) << journal.status();
    journal_ = *std::move(journal);
    auto file = directory_->Create("plain");
    CHECK(file.ok()) << file.status();
    plain_ = *std::move(file);
    gradient_.resize(step_mib * kSliceBytes / sizeof(float));
    std::iota(gradient_.begin(), gradient_.end(), 0.5f);
  }

  // Seconds from the first slice to the vote that may be answered.
  double JournalStep(uint64_t step) {
    const absl::Time start = SteadyNow();
    GradientSlice slice;
    slice.position = step;
    slice.generation = step;
    for (slice.offset = 0; slice.offset < gradient_.size(); slice.offset += slice.values.size()) {
      slice.values =
          absl::MakeConstSpan(gradient_).subspan(slice.offset, kSliceBytes / sizeof(float));
      journal_->AppendGradient(slice);
    }
    PrepareRecord prepare;
    prepare.generation = step;
    MutexLock lock(mu_);
    durable_ = false;
    journal_->Append(prepare, [this] {
      MutexLock done_lock(mu_);
      durable_ = true;
      changed_.NotifyAll();
    });
    while (!durable_) changed_.Wait(mu_);
    return absl::ToDoubleSeconds(SteadyNow() - start);
  }

  double PlainStep(uint64_t step) {
    const absl::Time start = SteadyNow();
    const auto* bytes = reinterpret_cast<const char*>(gradient_.data());
    const uint64_t step_bytes = gradient_.size() * sizeof(float);
    for (uint64_t done = 0; done < step_bytes; done += kSliceBytes) {
      const absl::Status status = plain_->Write((step - 1) * step_bytes + done,
                                                {absl::string_view(bytes + done, kSliceBytes)});
      CHECK(status.ok()) << status;
    }
    const absl::Status status = plain_->Sync();
    CHECK(status.ok()) << status;
    return absl::ToDoubleSeconds(SteadyNow() - start);
  }

  void Run() {
    std::vector<double> journal;
    std::vector<double> plain;
    for (uint64_t step = 1; step <= steps_; ++step) {
      journal.push_back(JournalStep(step));
      plain.push_back(PlainStep(step));
    }
    const double megabytes = static_cast<double>(gradient_.size() * sizeof(float)) / 1e6;
    const double by_journal = megabytes / Median(journal);
    const double by_disk = megabytes / Median(plain);
    std::printf(
        "journal: %.1f MB per step, %.0f MB/s; the disk alone %.0f MB/s; ratio %.2f (medians of "
        "%zu steps by turns)\n",
        megabytes, by_journal, by_disk, by_journal / by_disk, journal.size());
  }

 private:
  const uint64_t steps_;
  std::unique_ptr<disk::PosixDirectory> directory_;
  std::unique_ptr<DiskJournal> journal_;
  std::unique_ptr<disk::File> plain_;
  std::vector<float> gradient_;

  Mutex mu_;
  CondVar changed_;
  bool durable_ ABSL_GUARDED_BY(mu_) = false;
};

int Main(int argc, char** argv) {
  uint64_t step_mib = 64;
  uint64_t steps = 12;
  const bool good = argc >= 2 && argc <= 4 && argv[1][0] != '-' &&
                    (argc < 3 || (absl::SimpleAtoi(argv[2], &step_mib) && step_mib > 0)) &&
                    (argc < 4 || (absl::SimpleAtoi(argv[3], &steps) && steps > 0));
  if (!good) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  const std::string path = absl::StrCat(argv[1], "/journal_bandwidth");
  Bandwidth(path, step_mib, steps).Run();
  std::filesystem::remove_all(path);
  return 0;
}

}  // namespace
}  // namespace kaon::journal

int main(int argc, char** argv) {
  google::InitGoogleLogging(argv[0]);
  return kaon::journal::Main(argc, argv);
}
