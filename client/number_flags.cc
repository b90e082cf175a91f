#include "client/number_flags.h"

#include <cmath>
#include <cstdint>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "proto/text.h"

namespace kaon::client {
namespace {

std::string Refusal(const std::string& text, absl::string_view expected) {
  return absl::StrCat("is \"", proto::Excerpt(text), "\", must be ", expected);
}

std::string CheckWhole(const std::string& text) {
  absl::string_view digits = text;
  absl::ConsumePrefix(&digits, "-");
  uint64_t ignored = 0;
  if (proto::ParseDecimal(digits, &ignored)) return "";
  return Refusal(text, "a decimal number, digits alone");
}

std::string CheckFinite(const std::string& text) {
  double value = 0;
  const bool plain = text.find_first_not_of("0123456789.eE+-") == std::string::npos;
  if (plain && absl::SimpleAtod(text, &value) && std::isfinite(value)) {
    // SimpleAtod reads 1e-999 as 0.
    const std::string mantissa = text.substr(0, text.find_first_of("eE"));
    if (value != 0 || mantissa.find_first_of("123456789") == std::string::npos) return "";
  }
  return Refusal(text, "a finite decimal number");
}

}  // namespace

void AcceptPlainNumbersOnly(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    // The name holds the type, then the ranges of the flag.
    const std::string type = option->get_type_name();
    if (absl::StartsWith(type, "UINT") || absl::StartsWith(type, "INT")) {
      option->check(CLI::Validator(CheckWhole, ""));
    } else if (absl::StartsWith(type, "FLOAT")) {
      option->check(CLI::Validator(CheckFinite, ""));
    }
  }
  for (CLI::App* command : app.get_subcommands(nullptr)) AcceptPlainNumbersOnly(*command);
}

}  // namespace kaon::client
