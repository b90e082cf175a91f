#include "tests/simulation/history.h"

#include <algorithm>
#include <iterator>
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

// The first value of a change, which names it; empty if the entry is no change.
std::string ChangeOf(const v1::StepPlan& plan) {
  for (const v1::GroupSetting& setting : plan.group_change().settings()) {
    if (setting.field() == "lr" || setting.field() == "world_size") return setting.value();
  }
  return "";
}

class Check {
 public:
  Check(const v1::JobDefinition& job, const Log& log, const std::deque<Operation>& operations)
      : log_(log), operations_(operations), replay_(job), before_(replay_.state()) {}

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
  // Weights by parameter id, and the entry that made this version.
  struct Version {
    LogKey key;
    std::vector<std::vector<float>> weights;
  };

  void Fail(const std::string& what) {
    if (contradiction_.empty()) contradiction_ = what;
  }

  // Collects the operations that may have caused entries.
  void Collect(const Operation& operation) {
    if (operation.kind == Kind::kStep) {
      const auto key = std::make_tuple(operation.timeline, operation.step, operation.rank,
                                       operation.process_nonce);
      const auto [found, fresh] = begun_.emplace(key, operation.called);
      if (!fresh) found->second = std::min(found->second, operation.called);
    } else if (operation.kind != Kind::kPull) {
      asked_.emplace(std::make_pair(operation.kind, operation.name), &operation);
      const bool has_target =
          operation.kind == Kind::kRestore || operation.kind == Kind::kCheckpoint;
      if (has_target) targets_.insert(operation.target);
    }
  }

  // The log as a serial execution.
  void Execute() {
    for (const auto& [key, record] : log_) {
      if (!record.plan().has_rollback()) continue;
      rollback_targets_.insert(record.plan().rollback().target().position());
    }
    for (const auto& [key, record] : log_) {
      const v1::StepPlan& plan = record.plan();
      if (KeyOf(plan) != key) return Fail(absl::StrCat("entry ", key.position, " is misplaced"));
      if (plan.has_rollback()) {
        ExecuteRollback(key, plan);
      } else if (plan.has_restore()) {
        ExecuteRestore(key, record);
      } else if (deleted_ != plan.has_registration() && position_ > 0) {
        Fail(absl::StrCat("entry ", key.position,
                          deleted_ ? " follows a deletion" : " registers a second job"));
      } else if (key.timeline != timeline_ + (deleted_ ? 1 : 0)) {
        Fail(absl::StrCat("entry ", key.position, " is of timeline ", key.timeline, ", it is ",
                          timeline_));
      } else {
        ExecuteEntry(key, record);
      }
      if (!contradiction_.empty()) return;
      position_ = key.position;
      if (targets_.count(key) > 0) states_[key] = {replay_.state(), replay_.StateDigest()};
      if (rollback_targets_.count(key.position) > 0) live_[key.position] = {replay_.state(), step_};
      if (step_.has_value()) {
        versions_.try_emplace({timeline_, *step_}, Version{key, replay_.weights()});
      }
    }
  }

  void CheckDigest(const LogKey& key, const v1::StepRecord& record) {
    // P4: each record has the digest of the state before the entry.
    if (record.decision().state_digest() == replay_.StateDigest()) return;
    Fail(absl::StrCat("entry ", key.position, " found state digest ",
                      record.decision().state_digest(), ", the serial execution has ",
                      replay_.StateDigest()));
  }

  // Returns the request for the checkpoint of that name with that record, or any request for one of
  // that name.
  const Operation* AskedRestore(const v1::RestoreBody& restore) const {
    const auto [begin, end] = asked_.equal_range({Kind::kRestore, restore.checkpoint()});
    for (auto it = begin; it != end; ++it) {
      const auto record = log_.find(it->second->target);
      if (record != log_.end() &&
          record->second.decision().state_digest() == restore.last_decision().state_digest()) {
        return it->second;
      }
    }
    return begin == end ? nullptr : begin->second;
  }

  void ExecuteRestore(const LogKey& key, const v1::StepRecord& record) {
    const v1::StepPlan& plan = record.plan();
    const Operation* const asked = AskedRestore(plan.restore());
    if (asked == nullptr) {
      return Fail(absl::StrCat("entry ", key.position, " restores a checkpoint nobody asked for"));
    }
    const LogKey& restored = asked->target;
    const auto target = states_.find(restored);
    if (target == states_.end() || key.timeline <= timeline_) {
      return Fail(absl::StrCat("entry ", key.position, " goes to timeline ", key.timeline, " from ",
                               timeline_, " and the state of entry ", restored.position));
    }
    // If shards have forgotten entries, the restore finds another state and takes their positions.
    if (key.position > position_ + 1) {
      return Fail(absl::StrCat("no entry at ", position_ + 1));
    }
    if (key.position == position_ + 1) CheckDigest(key, record);
    timeline_ = key.timeline;
    step_ = plan.restore().step();
    replay_.Restore(target->second.state);
    live_.clear();
    changes_.clear();
    Raise(key, asked->called);
  }

  void ExecuteRollback(const LogKey& key, const v1::StepPlan& plan) {
    const v1::SnapshotPoint& target = plan.rollback().target();
    const auto kept = live_.find(target.position());
    if (kept == live_.end() || kept->second.step != target.step() ||
        key.position <= target.position()) {
      return Fail(absl::StrCat("entry ", key.position, " goes back to step ", target.step(),
                               " and the state of entry ", target.position(),
                               ", which is no part of the job's history"));
    }
    if (key.timeline <= timeline_) {
      return Fail(absl::StrCat("entry ", key.position, " goes to timeline ", key.timeline, " from ",
                               timeline_, " and the state of entry ", target.position()));
    }
    timeline_ = key.timeline;
    step_ = target.step();
    replay_.Restore(kept->second.state);
    live_.erase(std::next(kept), live_.end());
    for (auto change = changes_.begin(); change != changes_.end();) {
      change = change->second > target.position() ? changes_.erase(change) : std::next(change);
    }
  }

  void ExecuteEntry(const LogKey& key, const v1::StepRecord& record) {
    const v1::StepPlan& plan = record.plan();
    if (key.position != position_ + 1) return Fail(absl::StrCat("no entry at ", position_ + 1));
    CheckDigest(key, record);
    timeline_ = key.timeline;
    deleted_ = false;
    if (plan.has_job_deletion()) return ExecuteDeletion(key, plan);
    if (plan.has_step()) ExecuteStep(key, plan.step());
    if (const std::string change = ChangeOf(plan); !change.empty()) {
      const auto asked = asked_.find({Kind::kChange, change});
      if (asked == asked_.end() || !changes_.emplace(change, key.position).second) {
        return Fail(absl::StrCat("entry ", key.position, " makes change ", change,
                                 asked == asked_.end() ? ", nobody asked for it" : " again"));
      }
      made_.emplace(change, key);
      Raise(key, asked->second->called);
    }
    replay_.Apply(record);
  }

  void ExecuteDeletion(const LogKey& key, const v1::StepPlan& plan) {
    const std::string id = absl::StrCat(plan.job_deletion().request_id());
    const auto asked = asked_.find({Kind::kDeletion, id});
    if (asked == asked_.end() || made_.count(id) > 0) {
      return Fail(absl::StrCat("entry ", key.position, " deletes the job, nobody asked for it"));
    }
    made_.emplace(id, key);
    Raise(key, asked->second->called);
    deleted_ = true;
    step_.reset();
    replay_.Restore(before_);
    live_.clear();
    changes_.clear();
  }

  void ExecuteStep(const LogKey& key, const v1::StepBody& step) {
    const uint64_t expected = step_.has_value() ? *step_ + 1 : 0;
    if (step.step() != expected) {
      return Fail(
          absl::StrCat("entry ", key.position, " is step ", step.step(), ", expected ", expected));
    }
    step_ = step.step();
    for (const v1::Member& member : step.members()) {
      const auto begun =
          begun_.find({timeline_, step.step(), member.rank(), member.process_nonce()});
      if (begun == begun_.end()) {
        return Fail(absl::StrCat("entry ", key.position, " has a gradient of rank ", member.rank(),
                                 ", whose process has not begun step ", step.step()));
      }
      Raise(key, begun->second);
    }
  }

  void Raise(const LogKey& key, absl::Time from) {
    windows_[key].from = std::max(windows_[key].from, from);
  }
  void Lower(const LogKey& key, absl::Time to) {
    windows_[key].to = std::min(windows_[key].to, to);
  }

  void Explain(const Operation& operation) {
    switch (operation.kind) {
      case Kind::kStep:
        return ExplainStep(operation);
      case Kind::kPull:
        return ExplainPull(operation);
      case Kind::kChange:
      case Kind::kDeletion:
        return ExplainChange(operation);
      case Kind::kRestore:
        return ExplainRestore(operation);
      case Kind::kCheckpoint:
        return ExplainCheckpoint(operation);
    }
  }

  void ExplainStep(const Operation& operation) {
    if (operation.outcome != Outcome::kDone) return;
    v1::StepRecord told;
    if (!told.ParseFromString(operation.record)) return Fail("a record that is none");
    const LogKey key = KeyOf(told.plan());
    const auto found = log_.find(key);
    if (found == log_.end() || found->second.SerializeAsString() != operation.record) {
      return Fail(absl::StrCat("rank ", operation.rank, " was told another outcome of entry ",
                               key.position, " than the log has"));
    }
    if (told.plan().step().step() != operation.step || key.timeline != operation.timeline) {
      return Fail(absl::StrCat("rank ", operation.rank, " began step ", operation.step,
                               " of timeline ", operation.timeline, " and was told of entry ",
                               key.position));
    }
    Lower(key, operation.returned);
  }

  // protocol.md 2.1: "a pulled or decided value never changes except across a timeline".
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
    Lower(version->second.key, operation.returned);
  }

  void ExplainChange(const Operation& operation) {
    const auto [begin, end] = made_.equal_range(operation.name);
    if (operation.outcome == Outcome::kRefused && begin != end) {
      return Fail(absl::StrCat("change ", operation.name, " was refused and is in the log"));
    }
    if (operation.outcome != Outcome::kDone) return;
    // Made again in a later timeline, it may have the same position there.
    const auto made = std::find_if(begin, end, [&operation](const auto& one) {
      return one.second.position == operation.position;
    });
    if (made == end) return AnsweredWithAnother("change or deletion ", operation);
    Lower(made->second, operation.returned);
  }

  void ExplainRestore(const Operation& operation) {
    if (operation.outcome != Outcome::kDone) return;
    const LogKey key{operation.timeline, operation.position};
    const auto found = log_.find(key);
    if (found == log_.end() || found->second.plan().restore().checkpoint() != operation.name) {
      return AnsweredWithAnother("restore of ", operation);
    }
    Lower(key, operation.returned);
  }

  void ExplainCheckpoint(const Operation& operation) {
    const LogKey& key = operation.target;
    const auto state = states_.find(key);
    if (state == states_.end()) {
      return Fail(absl::StrCat("checkpoint ", operation.name, " holds the state of entry ",
                               key.position, " of timeline ", key.timeline,
                               ", the log has no such entry"));
    }
    if (state->second.digest != operation.digest) {
      return Fail(absl::StrCat("checkpoint ", operation.name, " holds another state than that of ",
                               "entry ", key.position));
    }
    Lower(key, operation.returned);
  }

  void AnsweredWithAnother(const char* what, const Operation& operation) {
    Fail(absl::StrCat(what, operation.name, " was answered with entry ", operation.position,
                      ", which is another one"));
  }

  // One instant for each entry, in the order of the log.
  void CheckOrder() {
    absl::Time from = absl::InfinitePast();
    for (const auto& [key, window] : windows_) {
      from = std::max(from, window.from);
      if (window.to < from) {
        return Fail(absl::StrCat("entry ", key.position, " was seen at ",
                                 absl::FormatTime(window.to), ", what it follows from began at ",
                                 absl::FormatTime(from)));
      }
    }
  }

  const Log& log_;
  const std::deque<Operation>& operations_;
  SerialReplay replay_;
  // State before a job is registered.
  const SerialReplay::State before_;
  std::string contradiction_;
  // Time when each process first began each step of each timeline.
  std::map<std::tuple<uint64_t, uint64_t, uint32_t, uint64_t>, absl::Time> begun_;
  // A checkpoint that was removed may be made again under its name.
  std::multimap<std::pair<Kind, std::string>, const Operation*> asked_;

  // State of the execution.
  uint64_t timeline_ = 1;
  uint64_t position_ = 0;
  std::optional<uint64_t> step_;
  // The newest entry is a deletion.
  bool deleted_ = false;
  // State after an entry that a checkpoint holds.
  struct Kept {
    SerialReplay::State state;
    uint64_t digest = 0;
  };
  std::set<LogKey> targets_;
  std::map<LogKey, Kept> states_;
  // State after an entry that a rollback returns to, and the job's step there.
  struct Point {
    SerialReplay::State state;
    std::optional<uint64_t> step;
  };
  std::set<uint64_t> rollback_targets_;
  std::map<uint64_t, Point> live_;
  // Versions by timeline and step.
  std::map<std::pair<uint64_t, uint64_t>, Version> versions_;
  // Position of each change in force, and all changes that ever were.
  std::map<std::string, uint64_t> changes_;
  std::multimap<std::string, LogKey> made_;
  std::map<LogKey, Window> windows_;
};

}  // namespace

std::string Contradiction(const v1::JobDefinition& job, const Log& log,
                          const std::deque<Operation>& operations) {
  return Check(job, log, operations).Run();
}

}  // namespace kaon::simulation
