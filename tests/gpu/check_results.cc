#include "tests/gpu/check_results.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace kaon::gpu_check {
namespace {

std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return quoted + "\"";
}

}  // namespace

void Results::Line(const std::string& name, const std::string& fields) {
  std::fprintf(json_, "{\"section\": %s, \"name\": %s, %s}\n", Quoted(section_).c_str(),
               Quoted(name).c_str(), fields.c_str());
  std::fflush(json_);
}

void Results::Figure(const std::string& name, double value, const std::string& unit) {
  Line(name, absl::StrFormat("\"value\": %.6g, \"unit\": %s", value, Quoted(unit)));
}

void Results::Fact(const std::string& name, const std::string& value) {
  Line(name, absl::StrCat("\"value\": ", Quoted(value)));
}

void Results::Check(const std::string& name, bool ok, const std::string& detail) {
  if (!ok) {
    ++num_failed_;
    std::fprintf(stderr, "%s: %s: %s\n", section_.c_str(), name.c_str(), detail.c_str());
  }
  Line(name, absl::StrCat("\"ok\": ", ok ? "true" : "false",
                          ok ? "" : absl::StrCat(", \"detail\": ", Quoted(detail))));
}

void Results::Skip(const std::string& name, const std::string& reason) {
  Line(name, absl::StrCat("\"skipped\": ", Quoted(reason)));
}

}  // namespace kaon::gpu_check
