#include "job/settings.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "job/definition.h"
#include "job/effective_job.h"
#include "job/group_validation.h"
#include "job/job_settings.h"
#include "job/names.h"
#include "job/route_validation.h"
#include "job/setting_value.h"
#include "job/workers.h"
#include "proto/status_macros.h"
#include "proto/text.h"

namespace kaon::job {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

struct FixedField {
  absl::string_view path;
  absl::string_view why;
};

// Fields that no running job can change: they describe what is stored, or the norms that parameters
// count in. Proposals and entries are both checked against this list.
constexpr FixedField kFixed[] = {
    {"name", "it is the group's identity"},
    {"rule", "the stored state is the rule's"},
    {"norm_group", "parameters join their norm groups at registration"},
    {"momentum_dtype", "the momentum is stored so"},
    {"muon.momentum_form", "the stored momentum is of this form ([M2])"},
    {"muon.ns_dtype", "it is fixed per group at registration ([N6])"},
    {"muon.newton_schulz.custom", "coefficients are fixed at registration"},
    {"muon.newton_schulz.custom_repeat", "coefficients are fixed at registration"},
    {"adamw.amsgrad", "it adds a buffer of state ([A4])"},
    {"adamw.exp_avg_sq_dtype", "the second moments are stored so"},
};

constexpr absl::string_view kTier = "tier";

const FixedField* FindFixed(absl::string_view path) {
  for (const FixedField& fixed : kFixed) {
    if (fixed.path == path) return &fixed;
  }
  return nullptr;
}

// Returns whether an option belongs to another rule than the group's: "muon" in a group of
// RULE_ADAMW.
bool IsOfAnotherRule(absl::string_view part, const v1::ParameterGroup& group) {
  const std::vector<std::string> rules = NamesOf(*v1::Rule_descriptor());
  return std::find(rules.begin(), rules.end(), part) != rules.end() && part != NameOf(group.rule());
}

void AddFields(const Descriptor& type, const std::string& prefix, const v1::ParameterGroup& group,
               std::vector<std::string>& paths) {
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    const std::string path = absl::StrCat(prefix, field.name());
    if (FindFixed(path) != nullptr || path == kGramRestartsPath || IsOfAnotherRule(path, group)) {
      continue;
    }
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      AddFields(*field.message_type(), absl::StrCat(path, "."), group, paths);
    } else {
      paths.push_back(path);
    }
  }
}

absl::Status Apply(const v1::GroupSetting& setting, v1::ParameterGroup& group) {
  const std::string& path = setting.field();
  if (const FixedField* fixed = FindFixed(path)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " cannot be changed while the job runs: ", fixed->why));
  }
  // Restarts are a list, and no text sets a list.
  if (path == kGramRestartsPath) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, " cannot be changed while the job runs: a change of form or ns_steps gives its ",
        "default"));
  }
  const std::vector<std::string> parts = absl::StrSplit(path, '.');
  if (parts.size() > 1 && IsOfAnotherRule(parts[0], group)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is an option of rule ", parts[0],
                                                   ", the rule of group ", group.name(), " is ",
                                                   NameOf(group.rule())));
  }
  const std::vector<std::string> known = SettableFields(group);
  if (std::find(known.begin(), known.end(), path) == known.end()) {
    return absl::InvalidArgumentError(absl::StrCat("field \"", proto::Excerpt(path),
                                                   "\" is not known, must be ", "one of ",
                                                   absl::StrJoin(known, ", ")));
  }
  Message* message = &group;
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    message = message->GetReflection()->MutableMessage(
        message, message->GetDescriptor()->FindFieldByName(parts[i]));
  }
  return SetValue(setting, *message->GetDescriptor()->FindFieldByName(parts.back()), *message);
}

// A field and the message it is in.
struct Place {
  const Message* message;
  const FieldDescriptor* field;
};

// Returns a null field if the path names none.
Place Find(const Message& group, absl::string_view path) {
  Place place{&group, nullptr};
  for (const std::string& part : std::vector<std::string>(absl::StrSplit(path, '.'))) {
    if (place.field != nullptr) {
      if (place.field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) return {&group, nullptr};
      place.message = &place.message->GetReflection()->GetMessage(*place.message, place.field);
    }
    place.field = place.message->GetDescriptor()->FindFieldByName(part);
    if (place.field == nullptr) break;
  }
  return place;
}

// Returns whether the field is set; a field without presence always is.
bool IsSet(const Message& group, absl::string_view path) {
  const Place place = Find(group, path);
  if (place.field == nullptr || place.field->is_repeated()) return false;
  return !place.field->has_presence() ||
         place.message->GetReflection()->HasField(*place.message, place.field);
}

// Returns the field as text; a list as a whole.
std::string TextOf(const Message& group, absl::string_view path) {
  const Place place = Find(group, path);
  const Message* message = place.message;
  const FieldDescriptor& field = *place.field;
  std::string text;
  if (field.is_repeated()) {
    for (int i = 0; i < message->GetReflection()->FieldSize(*message, &field); ++i) {
      std::string entry;
      google::protobuf::TextFormat::PrintFieldValueToString(*message, &field, i, &entry);
      absl::StrAppend(&text, "{", entry, "}");
    }
    return text;
  }
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_ENUM) {
    return NameOf(*field.enum_type(), message->GetReflection()->GetEnumValue(*message, &field));
  }
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
    return message->GetReflection()->GetString(*message, &field);
  }
  google::protobuf::TextFormat::PrintFieldValueToString(*message, &field, -1, &text);
  return text;
}

absl::Status CheckSameState(const v1::ParameterGroup& before, const v1::ParameterGroup& after) {
  const auto differs = [&before](absl::string_view field, absl::string_view was,
                                 absl::string_view is) {
    return absl::InvalidArgumentError(absl::StrCat("group ", before.name(), ": ", field, " is ", is,
                                                   ", must stay ", was, " while the job runs"));
  };
  for (const FixedField& fixed : kFixed) {
    const std::string was = TextOf(before, fixed.path);
    const std::string is = TextOf(after, fixed.path);
    if (is != was) return differs(fixed.path, was, is);
  }
  // SGD without momentum has no buffer ([G1]).
  if ((after.sgd().momentum() == 0) != (before.sgd().momentum() == 0)) {
    return differs("sgd.momentum", before.sgd().momentum() == 0 ? "0" : "above 0",
                   NumberText(after.sgd().momentum()));
  }
  // The triples of a custom set would be lost, and no setting could restore them.
  const auto is_custom = [](const v1::ParameterGroup& group) {
    return group.muon().ns_coefficients() == v1::NEWTON_SCHULZ_COEFFICIENTS_CUSTOM;
  };
  if (is_custom(before) != is_custom(after)) {
    return differs("muon.ns_coefficients", is_custom(before) ? "custom" : "one of the named sets",
                   NameOf(after.muon().ns_coefficients()));
  }
  return absl::OkStatus();
}

// Clears options derived from options that have changed, so that their defaults are derived again.
void ClearDerived(const v1::ParameterGroup& before, const std::set<std::string>& set,
                  v1::ParameterGroup& after) {
  if (after.rule() != v1::RULE_MUON) return;
  v1::NewtonSchulzOptions& options = *after.mutable_muon()->mutable_newton_schulz();
  // norm_eps belongs to the old mode.
  if (options.norm_mode() == v1::NORM_MODE_SCALE_INVARIANT &&
      set.count("muon.newton_schulz.norm_eps") == 0) {
    options.clear_norm_eps();
  }
  const auto& restarts = before.muon().newton_schulz().gram_restarts();
  const auto were = [&restarts](const std::vector<uint32_t>& derived) {
    return std::equal(restarts.begin(), restarts.end(), derived.begin(), derived.end());
  };
  const uint32_t steps = before.muon().ns_steps();
  // Those of an older build's automatic choice fit 5 steps alone (ADR 0024).
  const bool are_outlived = set.count(kNsStepsPath) > 0 && steps == 5 && were({2, 3});
  // Restarts of the user's are kept as long as the form is; they may not fit other steps.
  if (options.form() != v1::NEWTON_SCHULZ_FORM_GRAM || were(DefaultGramRestarts(steps)) ||
      are_outlived) {
    options.clear_gram_restarts();
  }
}

// Rejects unset options: another build might give them another default.
absl::Status CheckWrittenOut(const v1::ParameterGroup& group) {
  if (google::protobuf::util::MessageDifferencer::Equals(EffectiveGroup(group), group)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("group ", group.name(), ": not every option is written out"));
}

}  // namespace

std::vector<std::string> SettableFields(const v1::ParameterGroup& group) {
  std::vector<std::string> paths;
  AddFields(*v1::ParameterGroup::descriptor(), "", group, paths);
  return paths;
}

absl::StatusOr<v1::ParameterGroup> ApplySettings(const v1::ParameterGroup& group,
                                                 absl::Span<const v1::GroupSetting> settings) {
  v1::ParameterGroup changed = group;
  std::set<std::string> seen;
  for (const v1::GroupSetting& setting : settings) {
    KAON_RETURN_IF_ERROR(Apply(setting, changed));
    if (!seen.insert(setting.field()).second) {
      return absl::InvalidArgumentError(
          absl::StrCat(setting.field(), " is given twice, must be given once"));
    }
  }
  ClearDerived(group, seen, changed);
  KAON_RETURN_IF_ERROR(CheckSameState(group, changed));
  return changed;
}

absl::StatusOr<v1::GroupChangeBody> MakeGroupChange(const v1::RegisterBody& registration,
                                                    const std::string& group,
                                                    absl::Span<const v1::GroupSetting> settings,
                                                    uint64_t position) {
  const v1::JobDefinition& job = registration.definition();
  if (settings.empty()) {
    return absl::InvalidArgumentError("settings has 0 entries, must have at least 1");
  }
  for (const v1::GroupSetting& setting : settings) {
    if (!setting.group().empty() && setting.group() != group) {
      return absl::InvalidArgumentError(
          absl::StrCat("settings.group is \"", proto::Excerpt(setting.group()),
                       "\", must be empty or \"", proto::Excerpt(group), "\""));
    }
  }
  if (group.empty()) return MakeJobChange(job, settings, position);
  const int index = GroupIndex(job, group);
  if (index < 0) {
    return absl::NotFoundError(absl::StrCat(
        "group \"", proto::Excerpt(group), "\" of job \"", job.name(), "\": there is ",
        absl::StrJoin(job.groups(), ", ", [](std::string* out, const v1::ParameterGroup& known) {
          out->append(known.name());
        })));
  }
  v1::GroupChangeBody change;
  *change.mutable_groups() = job.groups();
  KAON_ASSIGN_OR_RETURN(*change.mutable_groups(index), ApplySettings(job.groups(index), settings));
  *change.mutable_groups(index) = EffectiveGroup(std::move(*change.mutable_groups(index)));
  KAON_RETURN_IF_ERROR(CheckGroupChange(registration, change));
  std::map<std::string, std::string> ordered;
  for (const v1::GroupSetting& setting : settings) ordered[setting.field()] = setting.value();
  for (const auto& [field, value] : ordered) {
    v1::GroupSetting& setting = *change.add_settings();
    setting.set_group(group);
    setting.set_field(field);
    setting.set_value(value);
    setting.set_position(position);
  }
  return change;
}

absl::Status CheckGroupChange(const v1::RegisterBody& registration,
                              const v1::GroupChangeBody& change) {
  const v1::JobDefinition& job = registration.definition();
  if (change.groups().empty() && !change.settings().empty()) {
    return CheckJobSettings(job, change.settings());
  }
  if (change.groups_size() != job.groups_size()) {
    return absl::InvalidArgumentError(absl::StrCat("group change has ", change.groups_size(),
                                                   " groups, must have ", job.groups_size()));
  }
  // Registration checked the other groups and the routes, which are the same.
  Groups changed;
  for (int g = 0; g < job.groups_size(); ++g) {
    const v1::ParameterGroup& group = change.groups(g);
    KAON_RETURN_IF_ERROR(CheckSameState(job.groups(g), group));
    if (google::protobuf::util::MessageDifferencer::Equals(job.groups(g), group)) continue;
    KAON_RETURN_IF_ERROR(CheckWrittenOut(group));
    KAON_RETURN_IF_ERROR(ValidateGroup(group));
    *changed.Add() = group;
  }
  return ValidateRoutes(changed, job, registration.placement());
}

void ApplyGroupChange(const v1::GroupChangeBody& change, v1::RegisterBody& registration) {
  v1::JobDefinition& job = *registration.mutable_definition();
  if (change.groups().empty()) {
    ApplyJobSettings(change.settings(), job);
  } else {
    *job.mutable_groups() = change.groups();
  }
  std::map<std::pair<std::string, std::string>, v1::GroupSetting> newest;
  for (const v1::GroupSetting& setting : registration.changed()) {
    newest[{setting.group(), setting.field()}] = setting;
  }
  for (const v1::GroupSetting& setting : change.settings()) {
    newest[{setting.group(), setting.field()}] = setting;
  }
  // The new default of an option that was cleared with its mode comes from no setting.
  for (auto it = newest.begin(); it != newest.end();) {
    const auto& [name, field] = it->first;
    const int group = GroupIndex(job, name);
    // A setting of the job that removed a value stays known: a rollback must not bring it back.
    const bool set = name.empty() ? IsSet(job, field) || it->second.value() == kNoStepSeconds
                                  : group >= 0 && IsSet(job.groups(group), field);
    it = set ? std::next(it) : newest.erase(it);
  }
  registration.clear_changed();
  for (auto& [key, setting] : newest) *registration.add_changed() = std::move(setting);
}

bool IsInPlace(const v1::RegisterBody& registration, const v1::GroupChangeBody& change) {
  v1::RegisterBody before;
  SetWorkers(registration.definition(), *before.mutable_definition());
  *before.mutable_definition()->mutable_groups() = registration.definition().groups();
  v1::RegisterBody after = before;
  ApplyGroupChange(change, after);
  return google::protobuf::util::MessageDifferencer::Equals(before.definition(),
                                                            after.definition());
}

bool ChangesTier(const v1::JobDefinition& before, const v1::GroupChangeBody& change) {
  for (int g = 0; g < change.groups_size() && g < before.groups_size(); ++g) {
    if (change.groups(g).tier() != before.groups(g).tier()) return true;
  }
  return false;
}

void KeepTiers(const v1::RegisterBody& running, v1::RegisterBody& restored) {
  const v1::JobDefinition& job = running.definition();
  for (int g = 0; g < restored.definition().groups_size(); ++g) {
    v1::ParameterGroup& group = *restored.mutable_definition()->mutable_groups(g);
    group.clear_tier();
    if (g < job.groups_size()) group.set_tier(job.groups(g).tier());
  }
  std::map<std::pair<std::string, std::string>, v1::GroupSetting> changed;
  for (const v1::GroupSetting& setting : restored.changed()) {
    if (setting.field() != kTier) changed[{setting.group(), setting.field()}] = setting;
  }
  for (const v1::GroupSetting& setting : running.changed()) {
    if (setting.field() == kTier) changed[{setting.group(), setting.field()}] = setting;
  }
  restored.clear_changed();
  for (auto& [key, setting] : changed) *restored.add_changed() = std::move(setting);
}

uint32_t WorldSizeAfter(const v1::JobDefinition& job, const v1::GroupChangeBody& change) {
  v1::JobDefinition workers = WorkersOf(job);
  if (change.groups().empty()) ApplyJobSettings(change.settings(), workers);
  return workers.world_size();
}

bool StaysAtRollback(const v1::GroupSetting& setting) {
  return setting.group().empty() || setting.field() == kTier;
}

absl::Status CheckKeptSettings(const v1::RollbackBody& rollback) {
  const v1::JobDefinition& job = rollback.target().registration().definition();
  google::protobuf::RepeatedPtrField<v1::GroupSetting> of_job;
  for (const v1::GroupSetting& setting : rollback.kept_settings()) {
    if (setting.group().empty()) {
      *of_job.Add() = setting;
      continue;
    }
    const int group = GroupIndex(job, setting.group());
    if (group < 0 || setting.field() != kTier) {
      return absl::InvalidArgumentError(
          absl::StrCat("setting ", proto::Excerpt(setting.field()), " is of group ",
                       proto::Excerpt(setting.group()),
                       ", must be of the job, or the tier of one of its groups"));
    }
    KAON_RETURN_IF_ERROR(ApplySettings(job.groups(group), {setting}).status());
  }
  return CheckJobSettings(job, of_job);
}

v1::RegisterBody RegistrationAfter(const v1::RollbackBody& rollback) {
  v1::RegisterBody registration = rollback.target().registration();
  v1::GroupChangeBody of_job;
  v1::GroupChangeBody of_groups;
  *of_groups.mutable_groups() = registration.definition().groups();
  for (const v1::GroupSetting& setting : rollback.kept_settings()) {
    if (setting.group().empty()) {
      *of_job.add_settings() = setting;
      continue;
    }
    const int group = GroupIndex(registration.definition(), setting.group());
    // CheckKeptSettings has accepted it.
    Apply(setting, *of_groups.mutable_groups(group)).IgnoreError();
    *of_groups.add_settings() = setting;
  }
  if (!of_groups.settings().empty()) ApplyGroupChange(of_groups, registration);
  if (!of_job.settings().empty()) ApplyGroupChange(of_job, registration);
  return registration;
}

}  // namespace kaon::job
