#include "server/shard/snapshot/checkpoint_order.h"

namespace kaon::shard {

void CheckpointOrder::End(const absl::StatusOr<v1::CheckpointPart>& part) {
  if (part.ok()) {
    result_ = std::optional<v1::CheckpointPart>(*part);
  } else {
    result_ = part.status();
  }
}

v1::CheckpointReport CheckpointOrder::Report() const {
  v1::CheckpointReport report;
  report.set_id(id());
  report.set_attempt(attempt());
  report.set_total_bytes(total_bytes_);
  report.set_written_bytes(progress_->written_bytes);
  if (!result_.ok()) {
    report.set_error_code(static_cast<uint32_t>(result_.status().code()));
    report.set_error(std::string(result_.status().message()));
  } else if (result_->has_value()) {
    *report.mutable_part() = **result_;
  }
  return report;
}

}  // namespace kaon::shard
