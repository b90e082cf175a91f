#include "job/settings.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "job/definition.h"
#include "job/effective.h"
#include "job/names.h"
#include "job/validation.h"
#include "proto/status_macros.h"

namespace kaon::job {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

struct FixedField {
  absl::string_view path;
  absl::string_view why;
};

// Fields that no running job can change.
constexpr FixedField kFixed[] = {
    {"name", "it is the group's identity"},
    {"rule", "the stored state is the rule's"},
    {"norm_group", "parameters join their norm groups at registration"},
    {"momentum_dtype", "the momentum is stored so"},
    {"muon.momentum_form", "the stored momentum is of this form ([M2])"},
    {"muon.ns_dtype", "it is fixed per group at registration ([N6])"},
    {"muon.newton_schulz.custom", "coefficients are fixed at registration"},
    {"muon.newton_schulz.custom_repeat", "coefficients are fixed at registration"},
    {"muon.newton_schulz.gram_restarts", "lists are fixed at registration"},
    {"adamw.amsgrad", "it adds a buffer of state ([A4])"},
};

const FixedField* FindFixed(absl::string_view path) {
  for (const FixedField& fixed : kFixed) {
    if (fixed.path == path) return &fixed;
  }
  return nullptr;
}

// Options of another rule than the group's: "muon" in a group of RULE_ADAMW.
bool IsOfAnotherRule(absl::string_view part, const v1::ParameterGroup& group) {
  const std::vector<std::string> rules = NamesOf(*v1::Rule_descriptor());
  return std::find(rules.begin(), rules.end(), part) != rules.end() && part != NameOf(group.rule());
}

void AddFields(const Descriptor& type, const std::string& prefix, const v1::ParameterGroup& group,
               std::vector<std::string>& paths) {
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    const std::string path = absl::StrCat(prefix, field.name());
    if (FindFixed(path) != nullptr || IsOfAnotherRule(path, group)) continue;
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      AddFields(*field.message_type(), absl::StrCat(path, "."), group, paths);
    } else {
      paths.push_back(path);
    }
  }
}

absl::Status Malformed(const v1::GroupSetting& setting, absl::string_view expected) {
  return absl::InvalidArgumentError(
      absl::StrCat(setting.field(), " is \"", setting.value(), "\", must be ", expected));
}

// The parsers of numbers skip white space, which no field may hold.
bool HasSpace(const std::string& text) {
  return std::any_of(text.begin(), text.end(), [](char c) { return absl::ascii_isspace(c); });
}

absl::Status SetField(const v1::GroupSetting& setting, const FieldDescriptor& field,
                      Message& message) {
  const Reflection& reflection = *message.GetReflection();
  const std::string& value = setting.value();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_DOUBLE: {
      double number = 0;
      if (HasSpace(value) || !absl::SimpleAtod(value, &number) || !std::isfinite(number)) {
        return Malformed(setting, "a finite number");
      }
      reflection.SetDouble(&message, &field, number);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_UINT32: {
      uint32_t number = 0;
      if (HasSpace(value) || !absl::SimpleAtoi(value, &number)) {
        return Malformed(setting, "a whole number >= 0");
      }
      reflection.SetUInt32(&message, &field, number);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_UINT64: {
      uint64_t number = 0;
      if (HasSpace(value) || !absl::SimpleAtoi(value, &number)) {
        return Malformed(setting, "a whole number >= 0");
      }
      reflection.SetUInt64(&message, &field, number);
      return absl::OkStatus();
    }
    case FieldDescriptor::CPPTYPE_BOOL:
      if (value != "true" && value != "false") return Malformed(setting, "true or false");
      reflection.SetBool(&message, &field, value == "true");
      return absl::OkStatus();
    case FieldDescriptor::CPPTYPE_ENUM: {
      KAON_ASSIGN_OR_RETURN(const int number,
                            ParseName(*field.enum_type(), setting.field(), value));
      reflection.SetEnumValue(&message, &field, number);
      return absl::OkStatus();
    }
    default:
      return absl::InternalError(absl::StrCat(setting.field(), " has a type nobody can set"));
  }
}

absl::Status Apply(const v1::GroupSetting& setting, v1::ParameterGroup& group) {
  const std::string& path = setting.field();
  if (const FixedField* fixed = FindFixed(path)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " cannot be changed while the job runs: ", fixed->why));
  }
  const std::vector<std::string> parts = absl::StrSplit(path, '.');
  if (parts.size() > 1 && IsOfAnotherRule(parts[0], group)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is an option of rule ", parts[0],
                                                   ", the rule of group ", group.name(), " is ",
                                                   NameOf(group.rule())));
  }
  const std::vector<std::string> known = SettableFields(group);
  if (std::find(known.begin(), known.end(), path) == known.end()) {
    return absl::InvalidArgumentError(absl::StrCat("field \"", path, "\" is not known, must be ",
                                                   "one of ", absl::StrJoin(known, ", ")));
  }
  Message* message = &group;
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    message = message->GetReflection()->MutableMessage(
        message, message->GetDescriptor()->FindFieldByName(parts[i]));
  }
  return SetField(setting, *message->GetDescriptor()->FindFieldByName(parts.back()), *message);
}

// Everything that says what is stored for the group's parameters, and what they are counted in.
absl::Status CheckSameState(const v1::ParameterGroup& before, const v1::ParameterGroup& after) {
  const auto differs = [&before](absl::string_view field, const auto& was, const auto& is) {
    return absl::InvalidArgumentError(absl::StrCat("group ", before.name(), ": ", field, " is ", is,
                                                   ", must stay ", was, " while the job runs"));
  };
  if (after.name() != before.name()) return differs("name", before.name(), after.name());
  if (after.rule() != before.rule()) {
    return differs("rule", NameOf(before.rule()), NameOf(after.rule()));
  }
  if (after.norm_group() != before.norm_group()) {
    return differs("norm_group", before.norm_group(), after.norm_group());
  }
  if (after.momentum_dtype() != before.momentum_dtype()) {
    return differs("momentum_dtype", NameOf(before.momentum_dtype()),
                   NameOf(after.momentum_dtype()));
  }
  if (after.muon().momentum_form() != before.muon().momentum_form()) {
    return differs("muon.momentum_form", NameOf(before.muon().momentum_form()),
                   NameOf(after.muon().momentum_form()));
  }
  if (after.adamw().amsgrad() != before.adamw().amsgrad()) {
    return differs("adamw.amsgrad", before.adamw().amsgrad(), after.adamw().amsgrad());
  }
  // Without momentum there is no buffer ([G1]).
  if ((after.sgd().momentum() == 0) != (before.sgd().momentum() == 0)) {
    return differs("sgd.momentum", before.sgd().momentum() == 0 ? "0" : "above 0",
                   after.sgd().momentum());
  }
  return absl::OkStatus();
}

// The job with other groups, every option written out.
absl::StatusOr<v1::JobDefinition> WithGroups(
    const v1::JobDefinition& job,
    const google::protobuf::RepeatedPtrField<v1::ParameterGroup>& groups) {
  v1::JobDefinition changed = job;
  *changed.mutable_groups() = groups;
  return Effective(changed);
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
  // The eps belongs to the mode that goes.
  v1::NewtonSchulzOptions& newton_schulz = *changed.mutable_muon()->mutable_newton_schulz();
  if (newton_schulz.norm_mode() == v1::NORM_MODE_SCALE_INVARIANT &&
      seen.count("muon.newton_schulz.norm_eps") == 0) {
    newton_schulz.clear_norm_eps();
  }
  if (changed.rule() != v1::RULE_MUON) changed.clear_muon();
  KAON_RETURN_IF_ERROR(CheckSameState(group, changed));
  return changed;
}

absl::StatusOr<v1::GroupChangeBody> MakeGroupChange(const v1::JobDefinition& job,
                                                    const std::string& group,
                                                    absl::Span<const v1::GroupSetting> settings,
                                                    uint64_t position) {
  const int index = GroupIndex(job, group);
  if (index < 0) {
    return absl::NotFoundError(absl::StrCat(
        "group \"", group, "\" of job \"", job.name(), "\": there is ",
        absl::StrJoin(job.groups(), ", ", [](std::string* out, const v1::ParameterGroup& known) {
          out->append(known.name());
        })));
  }
  if (settings.empty()) {
    return absl::InvalidArgumentError("settings has 0 entries, must have at least 1");
  }
  for (const v1::GroupSetting& setting : settings) {
    if (!setting.group().empty() && setting.group() != group) {
      return absl::InvalidArgumentError(absl::StrCat("settings.group is \"", setting.group(),
                                                     "\", must be empty or \"", group, "\""));
    }
  }
  v1::GroupChangeBody change;
  *change.mutable_groups() = job.groups();
  KAON_ASSIGN_OR_RETURN(*change.mutable_groups(index), ApplySettings(job.groups(index), settings));
  KAON_ASSIGN_OR_RETURN(v1::JobDefinition changed, WithGroups(job, change.groups()));
  *change.mutable_groups() = std::move(*changed.mutable_groups());
  KAON_RETURN_IF_ERROR(CheckGroupChange(job, change));
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

absl::Status CheckGroupChange(const v1::JobDefinition& job, const v1::GroupChangeBody& change) {
  if (change.groups_size() != job.groups_size()) {
    return absl::InvalidArgumentError(absl::StrCat("group change has ", change.groups_size(),
                                                   " groups, must have ", job.groups_size()));
  }
  for (int g = 0; g < job.groups_size(); ++g) {
    KAON_RETURN_IF_ERROR(CheckSameState(job.groups(g), change.groups(g)));
  }
  KAON_ASSIGN_OR_RETURN(const v1::JobDefinition changed, WithGroups(job, change.groups()));
  for (int g = 0; g < job.groups_size(); ++g) {
    // What is unset would mean something else in another build.
    if (!google::protobuf::util::MessageDifferencer::Equals(changed.groups(g), change.groups(g))) {
      return absl::InvalidArgumentError(
          absl::StrCat("group ", change.groups(g).name(), ": not every option is written out"));
    }
  }
  return ValidateJob(changed);
}

void ApplyGroupChange(const v1::GroupChangeBody& change, v1::RegisterBody& registration) {
  *registration.mutable_definition()->mutable_groups() = change.groups();
  std::map<std::pair<std::string, std::string>, v1::GroupSetting> newest;
  for (const v1::GroupSetting& setting : registration.changed()) {
    newest[{setting.group(), setting.field()}] = setting;
  }
  for (const v1::GroupSetting& setting : change.settings()) {
    newest[{setting.group(), setting.field()}] = setting;
  }
  registration.clear_changed();
  for (auto& [key, setting] : newest) *registration.add_changed() = std::move(setting);
}

}  // namespace kaon::job
