#include "server/shard/complete_config.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/transport/loopback.h"
#include "kernels/backend.h"
#include "proto/status_macros.h"
#include "proto/tensor_stream.h"
#include "proto/text.h"
#include "server/config/check_range.h"
#include "server/config/durability.h"
#include "server/config/server_log.h"
#include "server/disk/block_file.h"
#include "server/disk/file_io.h"
#include "server/journal/history.h"
#include "server/shard/transport/shm_endpoint.h"

namespace kaon::shard {

namespace {

using config::CheckRange;

// Overrides the bytes of a journal segment. No setting has them, as no job gains by another size;
// tests/crash ends segments every few steps.
constexpr char kSegmentBytesVariable[] = "KAON_JOURNAL_SEGMENT_BYTES";

constexpr uint64_t kDefaultHostMemoryBytes = uint64_t{4} << 30;
constexpr uint64_t kDefaultStagingBytes = uint64_t{64} << 20;
// More than any machine has; sums of a few of them do not overflow.
constexpr uint64_t kMaxBytes = uint64_t{1} << 50;
constexpr uint32_t kDefaultShmSessions = 8;
// Host memory that the driver and the libraries of a device take later: kernels are loaded at
// their first use, and NCCL has buffers.
constexpr uint64_t kDriverBytes = uint64_t{512} << 20;
// Devices of a machine are a few.
constexpr uint32_t kMaxOrdinal = 1023;

struct Device {
  std::string backend;
  uint32_t ordinal = 0;
};

// Parses NAME or NAME:ORDINAL. The CPU has no ordinals.
absl::StatusOr<Device> ParseDevice(absl::string_view text) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits(':', 1));
  Device device;
  device.backend = std::string(parts.first);
  const bool has_ordinal = parts.first.size() < text.size();
  const bool good =
      !has_ordinal || (device.backend != "cpu" && absl::SimpleAtoi(parts.second, &device.ordinal) &&
                       device.ordinal <= kMaxOrdinal);
  if (good && !device.backend.empty()) return device;
  return absl::InvalidArgumentError(
      absl::StrCat("device is \"", proto::Excerpt(std::string(text)),
                   "\", must be cpu, or a backend and the number of its device, such as cuda:0"));
}

// Sets `backend` from `device`, which must not contradict it.
absl::Status CompleteBackend(v1::ShardConfig& config) {
  if (config.device().empty()) {
    if (config.backend().empty()) config.set_backend("cpu");
    return absl::OkStatus();
  }
  KAON_ASSIGN_OR_RETURN(const Device device, ParseDevice(config.device()));
  if (!config.backend().empty() && config.backend() != device.backend) {
    return absl::InvalidArgumentError(absl::StrCat(
        "backend is \"", proto::Excerpt(config.backend()), "\" and device is \"",
        proto::Excerpt(config.device()), "\", must name the same backend; device is enough"));
  }
  config.set_backend(device.backend);
  return absl::OkStatus();
}

absl::Status CheckMemoryTier(const v1::ShardConfig& config) {
  const std::string& tier = config.memory_tier();
  if (tier.empty() || tier == "host") return absl::OkStatus();
  if (tier != "device") {
    return absl::InvalidArgumentError(
        absl::StrCat("memory_tier is \"", proto::Excerpt(tier), "\", must be device or host"));
  }
  if (config.backend() != "cpu") return absl::OkStatus();
  return absl::InvalidArgumentError(
      "memory_tier is \"device\" and device is cpu, which has host memory alone; choose a device "
      "such as cuda:0");
}

// Requires nvme_bytes with nvme_dirs, and nothing of it without.
absl::Status CompleteNvme(v1::ShardConfig& config) {
  if (config.nvme_dirs().empty()) {
    if (!config.nvme_io().empty()) {
      return absl::InvalidArgumentError(absl::StrCat("nvme_io is \"",
                                                     proto::Excerpt(config.nvme_io()),
                                                     "\", must be empty without nvme_dirs"));
    }
    if (config.nvme_bytes() == 0 && config.nvme_staging_bytes() == 0) return absl::OkStatus();
    const bool has_file = config.nvme_bytes() > 0;
    return absl::InvalidArgumentError(
        absl::StrCat(has_file ? "nvme_bytes" : "nvme_staging_bytes", " is ",
                     has_file ? config.nvme_bytes() : config.nvme_staging_bytes(),
                     ", must be 0 without nvme_dirs: set it to a directory of each disk"));
  }
  if (config.nvme_bytes() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("nvme_bytes is 0, must be 1048576 .. ", kMaxBytes,
                     " with nvme_dirs: the size of each file, in all ",
                     "twice the weights and optimizer state that they hold, and 4 bytes per "
                     "element"));
  }
  KAON_RETURN_IF_ERROR(CheckRange("nvme_bytes", config.nvme_bytes(), 1 << 20, kMaxBytes));
  config.set_nvme_bytes(config.nvme_bytes() / disk::kBlockBytes * disk::kBlockBytes);
  if (config.nvme_staging_bytes() == 0) {
    config.set_nvme_staging_bytes(config.host_memory_bytes() / 4);
  }
  if (config.nvme_io().empty()) config.set_nvme_io("threads");
  KAON_RETURN_IF_ERROR(disk::ParseFileIo(config.nvme_io()).status());
  return CheckRange("nvme_staging_bytes", config.nvme_staging_bytes(), 1, kMaxBytes);
}

// Names all that takes of the memory and is no tensor.
std::string ReservedText(const v1::ShardConfig& config) {
  std::string text = "the history of steps";
  if (config.shm_sessions() > 0) {
    absl::StrAppend(&text, " and shm_sessions, ", config.shm_sessions(), " of ", kShmSessionBytes,
                    " bytes");
  }
  if (config.nvme_staging_bytes() > 0) {
    absl::StrAppend(&text, " and nvme_staging_bytes, ", config.nvme_staging_bytes());
  }
  return text;
}

// Returns the number of CPUs that this process may run on.
uint32_t AvailableCpus() {
  return std::clamp(std::thread::hardware_concurrency(), 1u, uint32_t{kernels::kMaxThreads});
}

}  // namespace

int DeviceOrdinal(const v1::ShardConfig& config) {
  const absl::StatusOr<Device> device = ParseDevice(config.device());
  return device.ok() ? static_cast<int>(device->ordinal) : 0;
}

uint64_t ReservedBytes(const v1::ShardConfig& config) {
  return journal::kMaxHistoryBytes + config.shm_sessions() * kShmSessionBytes +
         config.nvme_staging_bytes();
}

uint64_t GuardedBytes(const v1::ShardConfig& config, uint64_t backend_bytes) {
  const uint64_t budget = config.host_memory_bytes() + config.staging_bytes();
  return config.backend() == "cpu" ? budget : budget + backend_bytes + kDriverBytes;
}

absl::StatusOr<v1::ShardConfig> CompleteConfig(v1::ShardConfig config) {
  if (config.listen().empty()) config.set_listen("127.0.0.1:0");
  if (client::HostOf(config.listen()).empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("listen is \"", proto::Excerpt(config.listen()), "\", must be host:port"));
  }
  if (config.data_dir().empty()) {
    return absl::InvalidArgumentError(
        "data_dir is empty, must be a private directory: without it a restarted shard would forget "
        "that it voted");
  }
  KAON_ASSIGN_OR_RETURN(const config::Durability durability,
                        config::ParseDurability(config.durability()));
  config.set_durability(config::DurabilityText(durability.mode, durability.interval_steps));
  if (config.host_memory_bytes() == 0) config.set_host_memory_bytes(kDefaultHostMemoryBytes);
  KAON_RETURN_IF_ERROR(CheckRange("shm_sessions", config.shm_sessions(), 0, kMaxShmSessions));
  KAON_RETURN_IF_ERROR(CheckRange("host_memory_bytes", config.host_memory_bytes(), 1, kMaxBytes));
  KAON_RETURN_IF_ERROR(CompleteNvme(config));
  // Sessions are allocated in addition to the tensors: no job may need their memory.
  if (config.host_memory_bytes() <= ReservedBytes(config)) {
    return absl::InvalidArgumentError(
        absl::StrCat("host_memory_bytes is ", config.host_memory_bytes(), ", must be more than ",
                     ReservedBytes(config), ", which ", ReservedText(config), " may take"));
  }
  KAON_RETURN_IF_ERROR(config::CheckLogLevel(config.log_level()));
  KAON_RETURN_IF_ERROR(config::CheckLogFormat(config.log_format()));
  if (config.staging_bytes() == 0) config.set_staging_bytes(kDefaultStagingBytes);
  KAON_RETURN_IF_ERROR(
      CheckRange("staging_bytes", config.staging_bytes(), proto::kMaxChunkBytes, kMaxBytes));
  KAON_RETURN_IF_ERROR(
      CheckRange("snapshot_journal_bytes", config.snapshot_journal_bytes(), 0, kMaxBytes));
  KAON_RETURN_IF_ERROR(
      CheckRange("device_memory_bytes", config.device_memory_bytes(), 0, kMaxBytes));
  KAON_RETURN_IF_ERROR(CompleteBackend(config));
  KAON_RETURN_IF_ERROR(CheckMemoryTier(config));
  if (config.threads() == 0) config.set_threads(AvailableCpus());
  KAON_RETURN_IF_ERROR(CheckRange("threads", config.threads(), 0, kernels::kMaxThreads));
  return config;
}

uint32_t DefaultShmSessions(uint64_t host_memory_bytes, uint64_t open_files) {
  if (host_memory_bytes == 0) host_memory_bytes = kDefaultHostMemoryBytes;
  const uint64_t affordable =
      std::min(host_memory_bytes / 16 / kShmSessionBytes, open_files / 8 / kDescriptorsOfSession);
  return static_cast<uint32_t>(std::min<uint64_t>(kDefaultShmSessions, affordable));
}

absl::Status SetSegmentBytes(uint64_t& segment_bytes) {
  const char* text = std::getenv(kSegmentBytesVariable);
  if (text == nullptr || (absl::SimpleAtoi(text, &segment_bytes) && segment_bytes > 0)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(kSegmentBytesVariable, " is \"",
                                                 proto::Excerpt(text),
                                                 "\", must be a number of bytes from 1"));
}

}  // namespace kaon::shard
