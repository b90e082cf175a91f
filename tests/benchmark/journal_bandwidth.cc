// Measures how fast the journal writes steps whose gradients have all arrived. The limit is the
// disk: as many bytes in plain sequential writes and one fdatasync, measured in turn
// (docs/design/performance.md). One process; one thread in addition to the journal's own.
#include <glog/logging.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kaon/v1/agreement.pb.h"
#include "kernels/mutex.h"
#include "kernels/steady_clock.h"
#include "server/disk/posix_directory.h"
#include "server/journal/disk_journal.h"
#include "tests/benchmark/disk_alone.h"
#include "tests/benchmark/measurement.h"

namespace kaon::journal {
namespace {

constexpr uint64_t kSliceBytes = uint64_t{1} << 20;

class Bandwidth {
 public:
  Bandwidth(const std::string& path, uint64_t step_mib) {
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
    gradient_.resize(step_mib * kSliceBytes / sizeof(float));
    std::iota(gradient_.begin(), gradient_.end(), 0.5f);
    plain_ = std::make_unique<benchmark::DiskAlone>(
        path, absl::string_view(reinterpret_cast<const char*>(gradient_.data()),
                                gradient_.size() * sizeof(float)));
  }

  // Returns the seconds from the first slice to the vote that may be answered.
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

  // Runs journal and disk in turn, step by step.
  benchmark::Rounds Run(uint64_t steps) {
    benchmark::Rounds rounds;
    for (uint64_t step = 1; step <= steps; ++step) {
      rounds.work.push_back(JournalStep(step));
      rounds.limit.push_back(plain_->Seconds());
    }
    return rounds;
  }

 private:
  std::unique_ptr<disk::PosixDirectory> directory_;
  std::unique_ptr<DiskJournal> journal_;
  std::vector<float> gradient_;
  std::unique_ptr<benchmark::DiskAlone> plain_;

  Mutex mu_;
  CondVar changed_;
  bool durable_ ABSL_GUARDED_BY(mu_) = false;
};

int Main(int argc, char** argv) {
  std::string directory = ".";
  uint64_t mebibytes = 64;
  uint64_t steps = 12;
  std::string json_path;
  CLI::App app("The journal's bandwidth beside the same disk's sequential writes, by turns.");
  app.add_option("--directory", directory, "on that disk; a new one in it is removed after (.)");
  app.add_option("--mebibytes", mebibytes, "of a step's gradients (64)");
  app.add_option("--steps", steps, "at least 5 (12)");
  app.add_option("--json", json_path, "file for one JSON object per line");
  CLI11_PARSE(app, argc, argv);
  const std::string path = absl::StrCat(directory, "/journal_bandwidth");
  const benchmark::Rounds rounds = Bandwidth(path, mebibytes).Run(steps);
  std::filesystem::remove_all(path);
  benchmark::Measurement measurement;
  measurement.name = "journal";
  measurement.settings = absl::StrCat(mebibytes, " MiB per step");
  measurement.unit = "GB/s";
  measurement.limit_name = "write, fdatasync";
  const double gigabytes = 1e-9 * static_cast<double>(mebibytes << 20);
  SetRates(rounds, gigabytes, gigabytes, measurement);
  Print(measurement, benchmark::OpenJson(json_path).get());
  return 0;
}

}  // namespace
}  // namespace kaon::journal

int main(int argc, char** argv) {
  google::InitGoogleLogging(argv[0]);
  return kaon::journal::Main(argc, argv);
}
