#include "server/admin_cli/output.h"

#include "absl/strings/str_cat.h"

namespace kaon::admin_cli {

namespace {

using Json = nlohmann::ordered_json;

std::string Dump(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

bool IsBlock(const Json& json) { return json.is_structured() && !json.empty(); }

// Appends the lines of a mapping or a list. The first line follows text that is there already.
void AppendBlock(const Json& json, size_t indent, std::string* text) {
  bool is_first = true;
  for (const auto& [key, value] : json.items()) {
    if (!is_first) text->append(indent, ' ');
    is_first = false;
    absl::StrAppend(text, json.is_array() ? "-" : absl::StrCat(key, ":"));
    if (!IsBlock(value)) {
      absl::StrAppend(text, " ", Dump(value, -1), "\n");
    } else if (json.is_array()) {
      absl::StrAppend(text, " ");
      AppendBlock(value, indent + 2, text);
    } else {
      absl::StrAppend(text, "\n", std::string(indent + 2, ' '));
      AppendBlock(value, indent + 2, text);
    }
  }
}

}  // namespace

std::string ToJsonText(const Json& json) { return absl::StrCat(Dump(json, 2), "\n"); }

std::string ToYaml(const Json& json) {
  if (!IsBlock(json)) return absl::StrCat(Dump(json, -1), "\n");
  std::string text;
  AppendBlock(json, 0, &text);
  return text;
}

}  // namespace kaon::admin_cli
