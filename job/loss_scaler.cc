#include "job/loss_scaler.h"

#include <algorithm>
#include <limits>

namespace kaon::job {
namespace {

constexpr double kGrowth = 2;
constexpr double kBackoff = 0.5;

}  // namespace

LossScale InitialLossScale(const v1::LossScaler& scaler) {
  LossScale initial;
  if (scaler.has_initial_scale()) initial.scale = scaler.initial_scale();
  if (scaler.dynamic()) {
    initial.state.emplace();
    initial.state->set_hysteresis_left(scaler.hysteresis());
  }
  return initial;
}

LossScale NextLossScale(const v1::LossScaler& scaler, const LossScale& current, bool overflow) {
  LossScale next = current;
  if (!scaler.dynamic() || !current.state.has_value()) return next;
  v1::LossScalerState& state = *next.state;
  if (overflow) {
    state.set_growth_steps(0);
    // Only the next growth restores the hysteresis, so a run of overflows halves the scale each
    // time.
    if (state.hysteresis_left() > 0) state.set_hysteresis_left(state.hysteresis_left() - 1);
    if (state.hysteresis_left() == 0) {
      // An initial scale below the minimum must not rise here.
      next.scale = std::min(current.scale, std::max(current.scale * kBackoff, scaler.min_scale()));
    }
    return next;
  }
  state.set_growth_steps(state.growth_steps() + 1);
  if (state.growth_steps() < scaler.growth_interval()) return next;
  state.set_growth_steps(0);
  state.set_hysteresis_left(scaler.hysteresis());
  if (current.scale * kGrowth <= std::numeric_limits<float>::max()) next.scale *= kGrowth;
  return next;
}

}  // namespace kaon::job
