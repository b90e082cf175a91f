#include "tests/simulation/history.h"

#include <algorithm>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/simulation/model.h"

namespace kaon::simulation {

namespace {

using Kind = Operation::Kind;
using Outcome = Operation::Outcome;

// The learning rate that names a change; empty if the entry is no change.
std::string ChangeOf(const v1::StepPlan& plan) {
  for (const v1::GroupSetting& setting : plan.group_change().settings()) {
    if (setting.field() == "lr") return setting.value();
  }
  return "";
}

class Check {
 public:
  Check(const v1::JobDefinition& job, const Log& log, const std::deque<Operation>& operations)
      : log_(log), operations_(operations), replay_(job) {}

  std::string Run() {
    for (const Operation& operation : operations_) Collect(operation);
    Execute();
    for (const Operation& operation : operations_) Explain(operation);
    CheckOrder();
    return contradiction_;
  }

 private:
  // The instants between which an entry was decided.
  struct Window {
    absl::Time from = absl::InfinitePast();
    absl::Time to = absl::InfiniteFuture();
  };
  // By parameter id, and the entry after which it is first there.
  struct Version {
    uint64_t position = 0;
    std::vector<std::vector<float>> weights;
  };

  void Fail(const std::string& what) {
    if (contradiction_.empty()) contradiction_ = what;
  }

  // What may be the cause of entries.
  void Collect(const Operation& operation) {
    if (operation.kind == Kind::kStep) {
      const auto key = std::make_tuple(operation.timeline, operation.step, operation.rank,
                                       operation.process_nonce);
      const auto [found, fresh] = begun_.emplace(key, operation.called);
      if (!fresh) found->second = std::min(found->second, operation.called);
    } else if (operation.kind != Kind::kPull) {
      asked_.emplace(std::make_pair(operation.kind, operation.name), &operation);
      targets_.insert(operation.target);
    }
  }

  // The log as a serial execution.
  void Execute() {
    uint64_t next_position = 1;
    for (const auto& [position, record] : log_) {
      if (position != next_position++) return Fail(absl::StrCat("no entry at ", position - 1));
      // P4: each record says what state the entry found.
      if (record.decision().state_digest() != replay_.StateDigest()) {
        return Fail(absl::StrCat("entry ", position, " found state digest ",
                                 record.decision().state_digest(), ", the serial execution has ",
                                 replay_.StateDigest()));
      }
      const v1::StepPlan& plan = record.plan();
      if (plan.has_restore()) {
        ExecuteRestore(position, plan);
      } else if (plan.timeline() != timeline_) {
        Fail(absl::StrCat("entry ", position, " is of timeline ", plan.timeline(), ", it is ",
                          timeline_));
      } else {
        ExecuteEntry(position, record);
      }
      if (targets_.count(position) > 0) states_[position] = replay_.state();
      if (step_.has_value()) {
        versions_.try_emplace({timeline_, *step_}, Version{position, replay_.weights()});
      }
    }
  }

  void ExecuteRestore(uint64_t position, const v1::StepPlan& plan) {
    const auto asked = asked_.find({Kind::kRestore, plan.restore().checkpoint()});
    if (asked == asked_.end()) {
      return Fail(absl::StrCat("entry ", position, " restores a checkpoint nobody asked for"));
    }
    const auto target = states_.find(asked->second->target);
    if (target == states_.end() || plan.timeline() <= timeline_) {
      return Fail(absl::StrCat("entry ", position, " goes to timeline ", plan.timeline(), " from ",
                               timeline_, " and the state of entry ", asked->second->target));
    }
    timeline_ = plan.timeline();
    step_ = plan.restore().step();
    replay_.Restore(target->second);
    Raise(position, asked->second->called);
  }

  void ExecuteEntry(uint64_t position, const v1::StepRecord& record) {
    const v1::StepPlan& plan = record.plan();
    if (plan.has_step()) ExecuteStep(position, plan.step());
    if (const std::string change = ChangeOf(plan); !change.empty()) {
      const auto asked = asked_.find({Kind::kChange, change});
      if (asked == asked_.end() || !changes_.emplace(change, position).second) {
        return Fail(absl::StrCat("entry ", position, " makes change ", change,
                                 asked == asked_.end() ? ", nobody asked for it" : " again"));
      }
      Raise(position, asked->second->called);
    }
    replay_.Apply(record);
  }

  void ExecuteStep(uint64_t position, const v1::StepBody& step) {
    const uint64_t expected = step_.has_value() ? *step_ + 1 : 0;
    if (step.step() != expected) {
      return Fail(
          absl::StrCat("entry ", position, " is step ", step.step(), ", expected ", expected));
    }
    step_ = step.step();
    for (const v1::Member& member : step.members()) {
      const auto begun =
          begun_.find({timeline_, step.step(), member.rank(), member.process_nonce()});
      if (begun == begun_.end()) {
        return Fail(absl::StrCat("entry ", position, " has a gradient of rank ", member.rank(),
                                 ", whose process has not begun step ", step.step()));
      }
      Raise(position, begun->second);
    }
  }

  void Raise(uint64_t position, absl::Time from) {
    windows_[position].from = std::max(windows_[position].from, from);
  }
  void Lower(uint64_t position, absl::Time to) {
    windows_[position].to = std::min(windows_[position].to, to);
  }

  void Explain(const Operation& operation) {
    switch (operation.kind) {
      case Kind::kStep:
        return ExplainStep(operation);
      case Kind::kPull:
        return ExplainPull(operation);
      case Kind::kChange:
      case Kind::kRestore:
        return ExplainEntry(operation);
    }
  }

  void ExplainStep(const Operation& operation) {
    if (operation.outcome != Outcome::kDone) return;
    v1::StepRecord told;
    if (!told.ParseFromString(operation.record)) return Fail("a record that is none");
    const auto found = log_.find(told.plan().position());
    if (found == log_.end() || found->second.SerializeAsString() != operation.record) {
      return Fail(absl::StrCat("rank ", operation.rank, " was told another outcome of entry ",
                               told.plan().position(), " than the log has"));
    }
    if (told.plan().step().step() != operation.step ||
        told.plan().timeline() != operation.timeline) {
      return Fail(absl::StrCat("rank ", operation.rank, " began step ", operation.step,
                               " of timeline ", operation.timeline, " and was told of entry ",
                               told.plan().position()));
    }
    Lower(told.plan().position(), operation.returned);
  }

  void ExplainPull(const Operation& operation) {
    if (operation.outcome != Outcome::kDone) return;
    const auto version = versions_.find({operation.timeline, operation.step});
    if (version == versions_.end()) {
      return Fail(absl::StrCat("version ", operation.step, " of timeline ", operation.timeline,
                               " was pulled, the log has no such step"));
    }
    if (version->second.weights[operation.parameter_id] != operation.weights) {
      return Fail(absl::StrCat("version ", operation.step, " of parameter ", operation.parameter_id,
                               " was pulled with other weights than the ",
                               "committed entries give"));
    }
    Lower(version->second.position, operation.returned);
  }

  void ExplainEntry(const Operation& operation) {
    const bool change = operation.kind == Kind::kChange;
    if (operation.outcome == Outcome::kRefused && change && changes_.count(operation.name) > 0) {
      return Fail(absl::StrCat("change ", operation.name, " was refused and is in the log"));
    }
    if (operation.outcome != Outcome::kDone) return;
    const auto found = log_.find(operation.position);
    const std::string name = found == log_.end() ? ""
                             : change            ? ChangeOf(found->second.plan())
                                                 : found->second.plan().restore().checkpoint();
    if (name != operation.name) {
      return Fail(absl::StrCat(change ? "change " : "restore of ", operation.name,
                               " was answered with entry ", operation.position,
                               ", which is another one"));
    }
    Lower(operation.position, operation.returned);
  }

  // One instant for each entry, in the order of the log.
  void CheckOrder() {
    absl::Time from = absl::InfinitePast();
    for (const auto& [position, window] : windows_) {
      from = std::max(from, window.from);
      if (window.to < from) {
        return Fail(absl::StrCat("entry ", position, " was seen at ", absl::FormatTime(window.to),
                                 ", what it follows from began at ", absl::FormatTime(from)));
      }
    }
  }

  const Log& log_;
  const std::deque<Operation>& operations_;
  SerialReplay replay_;
  std::string contradiction_;
  // When each process first began each step of each timeline.
  std::map<std::tuple<uint64_t, uint64_t, uint32_t, uint64_t>, absl::Time> begun_;
  std::map<std::pair<Kind, std::string>, const Operation*> asked_;

  // Of the execution.
  uint64_t timeline_ = 1;
  std::optional<uint64_t> step_;
  // Of entries that a restore may go back to.
  std::set<uint64_t> targets_;
  std::map<uint64_t, SerialReplay::State> states_;
  // By timeline and step.
  std::map<std::pair<uint64_t, uint64_t>, Version> versions_;
  std::map<std::string, uint64_t> changes_;
  std::map<uint64_t, Window> windows_;
};

}  // namespace

std::string Contradiction(const v1::JobDefinition& job, const Log& log,
                          const std::deque<Operation>& operations) {
  return Check(job, log, operations).Run();
}

}  // namespace kaon::simulation
