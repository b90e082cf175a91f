// Measures a step of parameters that live in a file: read ahead, updated, and written behind, as a
// shard does. The limit is the file: as many bytes in reads alone or in writes alone, whichever is
// slower, measured in turn. A drive may not do both at once as fast: a second row has both at once
// as its limit. A third row compares the same step in memory. One process.
#include <glog/logging.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/optimizer_rule.h"
#include "kernels/steady_clock.h"
#include "server/disk/completion.h"
#include "server/disk/open_block_file.h"
#include "server/tier/host_tier.h"
#include "server/tier/memory_home.h"
#include "server/tier/nvme_tier.h"
#include "tests/benchmark/measurement.h"

namespace kaon::tier {
namespace {

struct Settings {
  std::string directory = ".";
  std::string rule = "adamw";
  std::string io = "threads";
  uint64_t million_elements = 64;
  // Elements of one parameter.
  uint64_t side = 1024;
  uint64_t staging_mib = 256;
  int threads = 2;
  int rounds = 5;
};

// Equal parameters in one home.
class Parameters {
 public:
  Parameters(const Settings& settings, kernels::Backend& backend)
      : backend_(backend), shape_({settings.side, settings.side}) {
    if (settings.rule == "muon") rule_ = kernels::MuonConfig();
    count_ = (settings.million_elements << 20) / (settings.side * settings.side);
    slots_ = kernels::StateSlots(rule_, shape_);
    gradient_.assign(settings.side * settings.side, 1e-3f);
  }

  uint64_t weight_bytes() const { return gradient_.size() * sizeof(float); }
  std::vector<uint64_t> state_bytes() const {
    std::vector<uint64_t> bytes;
    for (const auto& slot : slots_) bytes.push_back(static_cast<uint64_t>(slot.num_bytes));
    return bytes;
  }
  uint64_t count() const { return count_; }
  uint64_t elements() const { return count_ * gradient_.size(); }
  // Bytes of one version of all parameters.
  uint64_t version_bytes() const {
    uint64_t bytes = weight_bytes();
    for (const uint64_t state : state_bytes()) bytes += state;
    return count_ * bytes;
  }

  // Updates all of them, in turns from the first and from the last one on.
  void Step(UnitHome& home) {
    std::vector<UnitId> order(count_);
    for (size_t i = 0; i < order.size(); ++i) order[i] = reversed_ ? count_ - 1 - i : i;
    reversed_ = !reversed_;
    home.Prefetch(order);
    ++t_;
    for (const UnitId unit : order) {
      absl::StatusOr<UnitUpdatePin> pinned = home.PinForUpdate(unit);
      CHECK(pinned.ok()) << pinned.status();
      kernels::UpdateBuffers buffers;
      buffers.grad = kernels::ConstRegion(gradient_);
      buffers.param = pinned->weights();
      buffers.new_param = pinned->next_weights();
      buffers.state = pinned->states();
      kernels::Update update = {
          &rule_, {.lr = 1e-3, .clip_factor = 1, .t = t_}, shape_, buffers, {}};
      backend_.RunUpdates(absl::MakeSpan(&update, 1));
      pinned->Commit();
    }
  }

 private:
  kernels::Backend& backend_;
  const std::vector<uint64_t> shape_;
  kernels::RuleConfig rule_ = kernels::AdamWConfig();
  uint64_t count_ = 0;
  std::vector<kernels::StateSlot> slots_;
  std::vector<float> gradient_;
  int64_t t_ = 0;
  bool reversed_ = false;
};

constexpr uint64_t kPiece = uint64_t{4} << 20;

// Reads, or writes, so many bytes of the file from `begin` on in pieces of 4 MiB, several at a
// time. Starts again at `begin` when the file ends.
double SecondsOf(disk::BlockFile& file, bool is_write, uint64_t begin, uint64_t bytes,
                 absl::Span<std::byte> memory) {
  const uint64_t num_pieces = (file.size_bytes() - begin) / kPiece;
  const uint64_t in_flight = memory.size() / kPiece;
  const absl::Time start = SteadyNow();
  for (uint64_t done = 0; done < bytes; done += in_flight * kPiece) {
    std::vector<std::unique_ptr<disk::Completion>> pieces;
    for (uint64_t i = 0; i < in_flight && done + i * kPiece < bytes; ++i) {
      const uint64_t offset = begin + (done / kPiece + i) % num_pieces * kPiece;
      pieces.push_back(std::make_unique<disk::Completion>());
      const absl::Span<std::byte> piece = memory.subspan(i * kPiece, kPiece);
      if (is_write) {
        file.Write(offset, piece, pieces.back()->Callback());
      } else {
        file.Read(offset, piece, pieces.back()->Callback());
      }
    }
    for (auto& piece : pieces) CHECK(piece->Wait().ok());
  }
  return absl::ToDoubleSeconds(SteadyNow() - start);
}

double SecondsOf(const std::function<void()>& work) {
  const absl::Time start = SteadyNow();
  work();
  return absl::ToDoubleSeconds(SteadyNow() - start);
}

// The same parameters in a file and in memory.
class Bench {
 public:
  explicit Bench(const Settings& settings) : settings_(settings) {
    for (uint64_t i = 0; i < in_file_.count(); ++i) {
      const std::vector<uint64_t> state = in_file_.state_bytes();
      CHECK(nvme_.Add(absl::StrCat(i), in_file_.weight_bytes(), state).ok());
      MemoryHome::Unit unit = {absl::StrCat(i), in_file_.weight_bytes(), {}, false};
      for (const uint64_t bytes : state) {
        unit.state.emplace_back(absl::StrCat("s", unit.state.size()), bytes);
      }
      CHECK(memory_.Add(unit).ok());
    }
    std::fill(buffer_.bytes().begin(), buffer_.bytes().end(), std::byte{0});
    // The first steps fill the file.
    for (int i = 0; i < 2; ++i) StepInFile();
  }
  ~Bench() { std::filesystem::remove(file_->path()); }

  void Round() {
    const NvmeTier::Counters before = nvme_.counters();
    const double step = SecondsOf([this] { StepInFile(); });
    const NvmeTier::Counters after = nvme_.counters();
    read_bytes_ = after.read_bytes - before.read_bytes;
    written_bytes_ = after.written_bytes - before.written_bytes;
    // Behind the parameters, whose bytes the tier checks.
    const uint64_t begin = TierBytes(in_file_);
    const double reads = SecondsOf(*file_, false, begin, read_bytes_, buffer_.bytes());
    const double writes = SecondsOf(*file_, true, begin, written_bytes_, buffer_.bytes());
    const double both = SecondsOf([&] {
      std::thread writer([&] { SecondsOf(*file_, true, begin, written_bytes_, buffer_.bytes()); });
      SecondsOf(*file_, false, 0, read_bytes_, read_buffer_.bytes());
      writer.join();
    });
    disk_rounds_.work.push_back(step);
    disk_rounds_.limit.push_back(std::max(reads, writes));
    both_rounds_.work.push_back(step);
    both_rounds_.limit.push_back(both);
    memory_rounds_.work.push_back(step);
    memory_rounds_.limit.push_back(SecondsOf([this] { in_memory_.Step(memory_); }));
  }

  void Report(std::FILE* json) const {
    benchmark::Measurement measurement;
    measurement.name = "tier_step";
    measurement.settings =
        absl::StrCat(settings_.million_elements, " Mi ", settings_.rule, ", ",
                     settings_.staging_mib, " MiB staging, ", settings_.threads, " threads");
    if (settings_.io != "threads") absl::StrAppend(&measurement.settings, ", ", settings_.io);
    measurement.unit = "GB/s";
    measurement.limit_name = "slower of reads and writes alone";
    const double gigabytes = 1e-9 * static_cast<double>(std::max(read_bytes_, written_bytes_));
    SetRates(disk_rounds_, gigabytes, gigabytes, measurement);
    Print(measurement, json);
    measurement.name = "tier_step_both";
    measurement.limit_name = "reads and writes at once";
    SetRates(both_rounds_, gigabytes, gigabytes, measurement);
    Print(measurement, json);
    measurement.name = "tier_step_memory";
    measurement.limit_name = "the step in memory";
    SetRates(memory_rounds_, gigabytes, gigabytes, measurement);
    Print(measurement, json);
    const auto elements = static_cast<double>(in_file_.elements());
    std::printf("bytes per element and step: %.2f read, %.2f written\n",
                static_cast<double>(read_bytes_) / elements,
                static_cast<double>(written_bytes_) / elements);
  }

 private:
  void StepInFile() {
    in_file_.Step(nvme_);
    CHECK(nvme_.Flush().ok());
  }
  static std::unique_ptr<kernels::Backend> MakeBackend(const Settings& settings) {
    kernels::BackendOptions options;
    options.threads = settings.threads;
    return kernels::CreateBackend(options).value();
  }
  // Upper bound on the bytes that the tier uses, a multiple of kPiece.
  static uint64_t TierBytes(const Parameters& parameters) {
    const uint64_t bytes =
        2 * parameters.version_bytes() + parameters.count() * 64 * disk::kBlockBytes;
    return bytes / kPiece * kPiece + kPiece;
  }
  static std::unique_ptr<disk::BlockFile> OpenFile(const Settings& settings,
                                                   const Parameters& parameters) {
    const uint64_t size_bytes =
        TierBytes(parameters) + parameters.version_bytes() / kPiece * kPiece + kPiece;
    auto file = disk::OpenBlockFile(absl::StrCat(settings.directory, "/tier_step"), size_bytes,
                                    disk::ParseFileIo(settings.io).value());
    CHECK(file.ok()) << file.status();
    return *std::move(file);
  }

  const Settings settings_;
  const std::unique_ptr<kernels::Backend> backend_ = MakeBackend(settings_);
  Parameters in_file_{settings_, *backend_};
  Parameters in_memory_{settings_, *backend_};
  const std::unique_ptr<disk::BlockFile> file_ = OpenFile(settings_, in_file_);
  disk::BlockFile* const files_[1] = {file_.get()};
  NvmeTier nvme_{files_, *backend_, settings_.staging_mib << 20};
  HostTier host_{*backend_, uint64_t{1} << 40, 0};
  TieredStore store_{host_};
  MemoryHome memory_{store_, "host"};
  const UnitMemory buffer_ = UnitMemory::Allocate(*backend_, uint64_t{32} << 20).value();
  const UnitMemory read_buffer_ = UnitMemory::Allocate(*backend_, uint64_t{32} << 20).value();
  uint64_t read_bytes_ = 0;
  uint64_t written_bytes_ = 0;
  benchmark::Rounds disk_rounds_;
  benchmark::Rounds both_rounds_;
  benchmark::Rounds memory_rounds_;
};

int Main(int argc, char** argv) {
  Settings settings;
  std::string json_path;
  CLI::App app(
      "A step of parameters in a file beside the file alone, and beside memory, by turns.");
  app.add_option("--directory", settings.directory, "on that disk; a file in it is removed after");
  app.add_option("--rule", settings.rule, "adamw or muon")->check(CLI::IsMember({"adamw", "muon"}));
  app.add_option("--io", settings.io, "how the file is read and written (threads)")
      ->check(CLI::IsMember({"threads", "io_uring"}));
  app.add_option("--million-elements", settings.million_elements, "of all parameters (64)");
  app.add_option("--side", settings.side, "rows and columns of one parameter (1024)");
  app.add_option("--staging-mib", settings.staging_mib, "memory for parameters (256)");
  app.add_option("--threads", settings.threads, "of the updates (2)");
  app.add_option("--rounds", settings.rounds, "(5)");
  app.add_option("--json", json_path, "file for one JSON object per line");
  CLI11_PARSE(app, argc, argv);
  Bench bench(settings);
  for (int round = 0; round < settings.rounds; ++round) bench.Round();
  bench.Report(benchmark::OpenJson(json_path).get());
  return 0;
}

}  // namespace
}  // namespace kaon::tier

int main(int argc, char** argv) {
  google::InitGoogleLogging(argv[0]);
  return kaon::tier::Main(argc, argv);
}
