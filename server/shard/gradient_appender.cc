#include "server/shard/gradient_appender.h"

#include <utility>
#include <variant>

namespace kaon::shard {

void GradientAppender::OnParameterFolded(uint64_t generation, uint32_t parameter_id) {
  if (accumulator_.FinishParameter(generation, parameter_id, AppendSlice())) {
    ahead_of_prepare_ = true;
  }
}

void GradientAppender::BeforeAppend(const journal::Record& record) {
  const auto* prepare = std::get_if<journal::PrepareRecord>(&record);
  if (prepare == nullptr || prepare->generation == prepared_generation_) return;
  prepared_generation_ = prepare->generation;
  accumulator_.AppendGradient(prepare->generation, AppendSlice());
  ahead_of_prepare_ = false;
}

void GradientAppender::Withdraw() {
  if (std::exchange(ahead_of_prepare_, false)) host_.WithdrawGradients();
}

GradientAccumulator::AppendSlice GradientAppender::AppendSlice() {
  return [this](const journal::GradientSlice& slice) { host_.AppendGradient(slice); };
}

}  // namespace kaon::shard
