#include "server/coordinator/page/step_curves.h"

#include <algorithm>
#include <utility>

namespace kaon::coordinator {

namespace {

constexpr size_t kMaxReasonBytes = 200;

// Drops every second one of the older half.
template <typename Point>
void Thin(std::vector<Point>& points) {
  const size_t half = points.size() / 2;
  size_t to = 0;
  for (size_t from = 0; from < points.size(); ++from) {
    if (from < half && from % 2 == 1) continue;
    if (to != from) points[to] = std::move(points[from]);
    ++to;
  }
  points.resize(to);
}

template <typename Point>
void DropFrom(uint64_t step, std::vector<Point>& points) {
  while (!points.empty() && points.back().step >= step) points.pop_back();
}

}  // namespace

void StepCurves::Add(const v1::StepHistoryResponse& history) {
  MutexLock lock(mu_);
  copies_.clear();
  for (const v1::StepRecord& record : history.records()) {
    const v1::StepPlan& plan = record.plan();
    if (plan.position() < next_position_) continue;
    next_position_ = plan.position() + 1;
    if (!plan.has_step() || plan.step().kind() != v1::STEP_KIND_TRAIN) continue;
    const auto time = history.decided_unix_millis().find(plan.position());
    AddPointLocked(record, time == history.decided_unix_millis().end() ? 0 : time->second);
  }
}

void StepCurves::AddPointLocked(const v1::StepRecord& record, int64_t unix_millis) {
  const v1::StepBody& step = record.plan().step();
  const v1::StepDecision& decision = record.decision();
  std::vector<std::string> groups;
  // Rates are in every plan, ordered as the job's groups.
  for (const v1::GroupRate& rate : step.rates()) {
    if (groups.size() < kMaxGroups) groups.push_back(rate.group());
  }
  // Another job has the name: nobody looked while the first one was deleted.
  if (!curves_.groups.empty() && curves_.groups != groups) curves_ = Curves();
  curves_.groups = std::move(groups);
  // A ratio may be of a later step than the points so far.
  if (!curves_.points.empty() && curves_.points.back().step >= step.step()) {
    DropFrom(step.step(), curves_.points);
    for (RatioCurve& ratio : curves_.ratios) DropFrom(step.step(), ratio.points);
  }
  if (curves_.points.size() >= kMaxPoints) Thin(curves_.points);
  StepPoint& point = curves_.points.emplace_back();
  point.position = record.plan().position();
  point.step = step.step();
  point.skipped = decision.outcome() != v1::OUTCOME_APPLY;
  point.reason = decision.reason().substr(0, kMaxReasonBytes);
  if (decision.has_loss()) point.loss = decision.loss();
  if (decision.has_grad_norm()) point.grad_norm = decision.grad_norm();
  point.loss_scale = step.loss_scale();
  point.unix_millis = unix_millis;
  for (size_t i = 0; i < curves_.groups.size(); ++i) {
    point.groups.emplace_back().rate = step.rates(static_cast<int>(i)).learning_rate();
  }
  for (const v1::GroupNorm& norm : decision.norms()) {
    const auto found = std::find(curves_.groups.begin(), curves_.groups.end(), norm.group());
    const auto index = static_cast<size_t>(found - curves_.groups.begin());
    if (index >= point.groups.size()) continue;
    if (norm.has_norm()) point.groups[index].norm = norm.norm();
    point.groups[index].clip_factor = norm.clip_factor();
  }
}

void StepCurves::AddRatio(const std::string& group, const std::string& parameter, uint64_t step,
                          double ratio) {
  MutexLock lock(mu_);
  copies_.clear();
  auto found = std::find_if(curves_.ratios.begin(), curves_.ratios.end(),
                            [&group](const RatioCurve& one) { return one.group == group; });
  if (found == curves_.ratios.end()) {
    if (curves_.ratios.size() == kMaxGroups) return;
    found = curves_.ratios.insert(found, {group, parameter, {}});
  }
  DropFrom(step, found->points);
  if (found->points.size() >= kMaxRatios) Thin(found->points);
  found->parameter = parameter;
  found->points.push_back({step, ratio});
}

void StepCurves::Clear() {
  MutexLock lock(mu_);
  copies_.clear();
  curves_ = Curves();
  next_position_ = 1;
}

uint64_t StepCurves::next_position() const {
  MutexLock lock(mu_);
  return next_position_;
}

uint64_t StepCurves::newest_step() const {
  MutexLock lock(mu_);
  return curves_.points.empty() ? 0 : curves_.points.back().step;
}

std::shared_ptr<const Curves> StepCurves::Read(uint64_t from, uint64_t to) const {
  const auto is_before = [](const auto& point, uint64_t step) { return point.step < step; };
  const auto is_after = [](uint64_t step, const auto& point) { return step < point.step; };
  const auto part = [&](const auto& points) {
    const auto first = std::lower_bound(points.begin(), points.end(), from, is_before);
    const auto end = std::upper_bound(first, points.end(), to, is_after);
    return std::remove_cvref_t<decltype(points)>(first, end);
  };
  MutexLock lock(mu_);
  for (const Copy& copy : copies_) {
    if (copy.from == from && copy.to == to) return copy.curves;
  }
  const auto curves = std::make_shared<Curves>();
  curves->groups = curves_.groups;
  curves->points = part(curves_.points);
  for (const RatioCurve& ratio : curves_.ratios) {
    curves->ratios.push_back({ratio.group, ratio.parameter, part(ratio.points)});
  }
  if (copies_.size() == kMaxCopies) copies_.erase(copies_.begin());
  copies_.push_back({from, to, curves});
  return curves;
}

}  // namespace kaon::coordinator
