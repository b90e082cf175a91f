#include "server/config/server_config.h"

#include <fcntl.h>
#include <glog/logging.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/io/zero_copy_stream_impl.h>
#include <google/protobuf/text_format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstring>
#include <iostream>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "proto/status_macros.h"
#include "proto/text.h"
#include "proto/version.h"

namespace kaon::config {

namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// Keeps the first error of a parse, which the parser would print otherwise.
class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, google::protobuf::io::ColumnNumber column,
                const std::string& message) override {
    if (!text_.empty()) return;
    text_ = absl::StrCat("line ", line + 1, ", column ", column + 1, ": ", message);
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

bool IsSwitch(absl::string_view path, const google::protobuf::Descriptor* type) {
  const FieldDescriptor* field = nullptr;
  for (const absl::string_view part : absl::StrSplit(path, '.')) {
    field = type->FindFieldByName(std::string(part));
    CHECK(field != nullptr) << path << " is not a field of " << type->full_name();
    type = field->message_type();
  }
  return field->cpp_type() == FieldDescriptor::CPPTYPE_BOOL;
}

// Parses a number for an integer field of 32 or 64 bits.
absl::StatusOr<uint64_t> ParseNumber(const std::string& path, absl::string_view value,
                                     const FieldDescriptor& field) {
  uint64_t number = 0;
  const bool narrow = field.cpp_type() == FieldDescriptor::CPPTYPE_UINT32;
  const uint64_t max = narrow ? UINT32_MAX : UINT64_MAX;
  if (!proto::ParseDecimal(value, &number, max)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": '", proto::Excerpt(value), "' is not a number in 0 .. ", max));
  }
  return number;
}

// Returns the message that holds the last component of a dotted path, and the field.
std::pair<Message*, const FieldDescriptor*> Resolve(absl::string_view path, Message* message) {
  const std::vector<std::string> parts = absl::StrSplit(path, '.');
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    const FieldDescriptor* field = message->GetDescriptor()->FindFieldByName(parts[i]);
    CHECK(field != nullptr) << path;
    message = message->GetReflection()->MutableMessage(message, field);
  }
  const FieldDescriptor* field = message->GetDescriptor()->FindFieldByName(parts.back());
  CHECK(field != nullptr) << path << " is not a field of " << message->GetTypeName();
  return {message, field};
}

absl::Status SetField(const std::string& path, const std::string& value, Message* root) {
  const auto [message, field] = Resolve(path, root);
  const google::protobuf::Reflection* reflection = message->GetReflection();
  if (field->is_repeated()) {
    reflection->ClearField(message, field);
    for (absl::string_view part : absl::StrSplit(value, ',', absl::SkipWhitespace())) {
      part = absl::StripAsciiWhitespace(part);
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
        reflection->AddString(message, field, std::string(part));
        continue;
      }
      KAON_ASSIGN_OR_RETURN(const uint64_t number, ParseNumber(path, part, *field));
      reflection->AddUInt32(message, field, static_cast<uint32_t>(number));
    }
    return absl::OkStatus();
  }
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
    reflection->SetString(message, field, value);
    return absl::OkStatus();
  }
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_BOOL) {
    bool on = false;
    if (!absl::SimpleAtob(value, &on)) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": '", proto::Excerpt(value), "' is neither true nor false"));
    }
    reflection->SetBool(message, field, on);
    return absl::OkStatus();
  }
  KAON_ASSIGN_OR_RETURN(const uint64_t number, ParseNumber(path, value, *field));
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_UINT32) {
    reflection->SetUInt32(message, field, static_cast<uint32_t>(number));
  } else {
    reflection->SetUInt64(message, field, number);
  }
  return absl::OkStatus();
}

std::string FlagName(absl::string_view path) {
  return absl::StrCat("--", absl::StrReplaceAll(path, {{"_", "-"}, {".", "-"}}));
}

std::string EnvironmentName(absl::string_view path) {
  return absl::StrCat("KAON_", absl::AsciiStrToUpper(absl::StrReplaceAll(path, {{".", "_"}})));
}

int Fail(const std::string& program, const absl::Status& status) {
  std::cerr << program << ": " << status.message() << std::endl;
  return 2;
}

}  // namespace

absl::Status LoadTextproto(const std::string& path, Message* message) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    return absl::NotFoundError(
        absl::StrCat("config file '", proto::OneLine(path), "': ", std::strerror(errno)));
  }
  google::protobuf::io::FileInputStream stream(file);
  stream.SetCloseOnDelete(true);
  google::protobuf::TextFormat::Parser parser;
  FirstError error;
  parser.RecordErrorsTo(&error);
  if (!parser.Merge(&stream, message)) {
    return absl::InvalidArgumentError(
        absl::StrCat("config file '", proto::OneLine(path), "': ", proto::OneLine(error.text())));
  }
  return absl::OkStatus();
}

std::optional<int> ParseCommandLine(const CommandLine& command_line, int argc,
                                    const char* const* argv, Message* message) {
  CLI::App app(command_line.description, command_line.program);
  app.footer(
      "Every flag can also be set in --config FILE (textproto) or by its variable; the file is "
      "weakest, the flag strongest.");
  app.set_version_flag("--version",
                       proto::VersionText(command_line.program, command_line.features));
  std::string file;
  bool print = false;
  bool check = false;
  app.add_option("--config", file, "textproto of this configuration")->envname("KAON_CONFIG");
  app.add_flag("--print-config", print, "print the effective configuration and exit");
  app.add_flag(
      "--check-config", check,
      "check the configuration, its files and the address as a start would, and exit; does "
      "not open the port or data_dir");
  std::map<std::string, std::string> given;
  for (const Flag& flag : command_line.flags) {
    std::string& value = given[flag.field];
    CLI::Option* const option = IsSwitch(flag.field, message->GetDescriptor())
                                    ? app.add_flag(FlagName(flag.field), value, flag.help)
                                    : app.add_option(FlagName(flag.field), value, flag.help);
    option->envname(EnvironmentName(flag.field));
  }
  try {  // CLI11 reports by exception; none leaves this function.
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (!file.empty()) {
    if (absl::Status status = LoadTextproto(file, message); !status.ok()) {
      return Fail(command_line.program, status);
    }
  }
  for (const auto& [field, value] : given) {
    if (value.empty()) continue;
    if (absl::Status status = SetField(field, value, message); !status.ok()) {
      return Fail(command_line.program, status);
    }
  }
  if (absl::Status status = command_line.complete(message); !status.ok()) {
    return Fail(command_line.program, status);
  }
  if (check) {
    if (absl::Status status = command_line.check(*message); !status.ok()) {
      return Fail(command_line.program, status);
    }
  }
  if (print) {
    std::string text;
    google::protobuf::TextFormat::PrintToString(*message, &text);
    std::cout << text;
  }
  if (print || check) return 0;
  return std::nullopt;
}

}  // namespace kaon::config
