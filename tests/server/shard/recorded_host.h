// A ShardHost that only records what a part of ShardCore tells it. One thread.
#ifndef KAON_TESTS_SERVER_SHARD_RECORDED_HOST_H_
#define KAON_TESTS_SERVER_SHARD_RECORDED_HOST_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/shard/shard_host.h"

namespace kaon::shard {

class RecordedHost : public ShardHost {
 public:
  void OnParameterFolded(uint64_t, uint32_t) override {}
  void OnFolded(uint64_t) override {}
  void AppendGradient(const journal::GradientSlice& slice) override {
    appended.push_back(slice.parameter_id);
  }
  void WithdrawGradients() override { ++withdrawals; }
  void OnApplied() override {}
  void OnDataLoss(const std::string&) override {}
  void CheckRestore(const RestoreCheck&, uint64_t) override {}
  void CheckRollback(const v1::SnapshotPoint&, uint64_t) override {}
  void WritePart(std::unique_ptr<StateFreeze> freeze, PartOptions part) override {
    freezes.push_back(std::move(freeze));
    parts.push_back(std::move(part));
  }
  absl::StatusOr<std::unique_ptr<disk::Directory>> OpenCheckpoints() override {
    return absl::FailedPreconditionError("no checkpoints");
  }
  absl::Status WithSnapshots(UseSnapshots) override {
    return absl::InvalidArgumentError("no snapshots");
  }

  // Parameter ids of slices.
  std::vector<uint32_t> appended;
  int withdrawals = 0;
  std::vector<std::unique_ptr<StateFreeze>> freezes;
  std::vector<PartOptions> parts;
};

}  // namespace kaon::shard

#endif  // KAON_TESTS_SERVER_SHARD_RECORDED_HOST_H_
