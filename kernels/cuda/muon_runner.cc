#include "kernels/cuda/muon_runner.h"

#include <glog/logging.h>

namespace kaon::kernels::cuda {
namespace {

class MissingMuonRunner final : public MuonRunner {
 public:
  void RunUpdates(absl::Span<Update* const>) override { LOG(ERROR) << "no Muon on a device yet"; }
  uint64_t WorkspaceBytes(absl::Span<const SizedUpdate>) const override { return 0; }
  std::string Library() const override { return "none"; }
};

}  // namespace

absl::StatusOr<std::unique_ptr<MuonRunner>> MuonRunner::Create(Device&) {
  return std::make_unique<MissingMuonRunner>();
}

}  // namespace kaon::kernels::cuda
