#include "job/effective_values.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "job/definition.h"
#include "job/names.h"
#include "job/presets.h"

namespace kaon::job {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

struct FieldValue {
  std::string path;
  std::string value;
};
using FieldValues = std::vector<FieldValue>;

std::string ScalarText(const Message& message, const FieldDescriptor& field) {
  const google::protobuf::Reflection& fields = *message.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_ENUM:
      return NameOf(*field.enum_type(), fields.GetEnumValue(message, &field));
    case FieldDescriptor::CPPTYPE_BOOL:
      return fields.GetBool(message, &field) ? "true" : "false";
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return NumberText(fields.GetDouble(message, &field));
    case FieldDescriptor::CPPTYPE_UINT32:
      return absl::StrCat(fields.GetUInt32(message, &field));
    case FieldDescriptor::CPPTYPE_UINT64:
      return absl::StrCat(fields.GetUInt64(message, &field));
    case FieldDescriptor::CPPTYPE_STRING:
      return fields.GetString(message, &field);
    default:
      return "";
  }
}

// Appends the entries of a repeated field: each named entry by itself, the others as one list.
void AppendRepeated(const std::string& path, const Message& message, const FieldDescriptor& field,
                    FieldValues& out) {
  const google::protobuf::Reflection& fields = *message.GetReflection();
  std::vector<std::string> list;
  for (int i = 0; i < fields.FieldSize(message, &field); ++i) {
    if (field.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
      list.push_back(absl::StrCat(fields.GetRepeatedUInt32(message, &field, i)));
      continue;
    }
    const Message& entry = fields.GetRepeatedMessage(message, &field, i);
    const FieldDescriptor* name = entry.GetDescriptor()->FindFieldByName("name");
    if (name == nullptr) {
      list.push_back(absl::StrCat("{", entry.ShortDebugString(), "}"));
    } else {
      out.push_back({absl::StrCat(path, ".", ScalarText(entry, *name)), entry.ShortDebugString()});
    }
  }
  if (!list.empty()) out.push_back({path, absl::StrCat("[", absl::StrJoin(list, ", "), "]")});
}

// Returns whether the field is a number without presence: a 0 looks unset.
bool IsPlainNumber(const FieldDescriptor& field) {
  return !field.has_presence() && (field.cpp_type() == FieldDescriptor::CPPTYPE_UINT64 ||
                                   field.cpp_type() == FieldDescriptor::CPPTYPE_UINT32 ||
                                   field.cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE);
}

// Appends every field that is set, in the order of the schema. A plain number that is 0 counts as a
// value of a complete job, but not as set by a request.
void Append(const std::string& prefix, const Message& message, bool complete, FieldValues& out) {
  const google::protobuf::Reflection& fields = *message.GetReflection();
  const google::protobuf::Descriptor& type = *message.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    const std::string path = absl::StrCat(prefix, field.name());
    if (field.is_repeated()) {
      AppendRepeated(path, message, field, out);
    } else if (!fields.HasField(message, &field) && !(complete && IsPlainNumber(field))) {
      continue;
    } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      Append(absl::StrCat(path, "."), fields.GetMessage(message, &field), complete, out);
    } else {
      out.push_back({path, ScalarText(message, field)});
    }
  }
}

// Returns the job's own fields.
FieldValues OwnValues(v1::JobDefinition job, bool complete) {
  job.clear_parameters();
  job.clear_groups();
  job.clear_preset();
  FieldValues values;
  Append("", job, complete, values);
  return values;
}

FieldValues GroupValues(v1::ParameterGroup group, bool complete) {
  group.clear_name();
  FieldValues values;
  Append("", group, complete, values);
  return values;
}

// Values by group and path; the job's own are under "".
using ValuesOf = std::map<std::string, std::map<std::string, std::string>>;

// Returns everything that a definition sets.
ValuesOf SetBy(const v1::JobDefinition& job) {
  ValuesOf values;
  for (const FieldValue& value : OwnValues(job, false)) values[""][value.path] = value.value;
  for (const v1::ParameterGroup& group : job.groups()) {
    for (const FieldValue& value : GroupValues(group, false)) {
      values[group.name()][value.path] = value.value;
    }
  }
  // A limit declared for main is the job's limit.
  for (const v1::NormGroup& group : job.norm_groups()) {
    if (group.name() == kMainNormGroup && group.has_max_grad_norm()) {
      values[""]["max_grad_norm"] = NumberText(group.max_grad_norm());
    }
  }
  return values;
}

// Position of the entry that changed a value, by group and path.
using Changes = std::map<std::pair<std::string, std::string>, uint64_t>;

// Returns whether the group still has the value that was set: a change may have replaced it by a
// default. The job's own fields need no such check, because a change of them names each field.
bool Sets(ValuesOf& values, const std::string& group, const FieldValue& field) {
  const auto it = values[group].find(field.path);
  return it != values[group].end() && (group.empty() || it->second == field.value);
}

}  // namespace

std::vector<EffectiveValue> EffectiveValues(const v1::JobDescription& job) {
  v1::JobDefinition request = job.requested();
  ReplaceUnknownForms(job.definition(), request);
  ValuesOf requested = SetBy(request);
  const std::string preset = PresetOf(request);
  const absl::StatusOr<v1::JobDefinition> with_preset = WithPreset(request);
  ValuesOf by_preset = SetBy(with_preset.ok() ? *with_preset : request);
  Changes changed;
  for (const v1::GroupSetting& setting : job.changed()) {
    changed[{setting.group(), setting.field()}] = setting.position();
  }
  std::vector<EffectiveValue> values;
  const auto add = [&](const std::string& group, const FieldValues& fields) {
    for (const FieldValue& field : fields) {
      std::string origin = "default";
      if (Sets(by_preset, group, field)) origin = absl::StrCat("preset ", preset);
      if (Sets(requested, group, field)) origin = "set";
      const auto change = changed.find({group, field.path});
      if (change != changed.end()) {
        origin = absl::StrCat(group.empty() ? "job" : "group", " set at entry ", change->second);
      }
      values.push_back({group, field.path, field.value, origin});
    }
  };
  if (!preset.empty()) {
    values.push_back({"", "preset", preset, job.requested().preset().empty() ? "default" : "set"});
  }
  add("", OwnValues(job.definition(), true));
  for (const v1::ParameterGroup& group : job.definition().groups()) {
    add(group.name(), GroupValues(group, true));
  }
  return values;
}

}  // namespace kaon::job
