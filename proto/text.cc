#include "proto/text.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace kaon::proto {
namespace {

constexpr size_t kMaxExcerpt = 100;
constexpr size_t kMaxMessage = 2000;

std::string Cut(std::string shown, size_t bytes, bool is_cut) {
  if (is_cut) absl::StrAppend(&shown, "... of ", bytes, " bytes");
  return shown;
}

}  // namespace

std::string Excerpt(absl::string_view value) {
  return Cut(absl::CHexEscape(value.substr(0, kMaxExcerpt)), value.size(),
             value.size() > kMaxExcerpt);
}

std::string OneLine(absl::string_view message) {
  std::string line;
  size_t taken = 0;
  for (; taken < message.size() && line.size() < kMaxMessage; ++taken) {
    const char c = message[taken];
    if (absl::ascii_isprint(static_cast<unsigned char>(c))) {
      line += c;
    } else {
      absl::StrAppend(&line, absl::CHexEscape(absl::string_view(&c, 1)));
    }
  }
  return Cut(std::move(line), message.size(), taken < message.size());
}

bool ParseDecimal(absl::string_view text, uint64_t* number, uint64_t most) {
  // SimpleAtoi skips blanks around the number and takes a sign.
  for (const char c : text) {
    if (!absl::ascii_isdigit(static_cast<unsigned char>(c))) return false;
  }
  return absl::SimpleAtoi(text, number) && *number <= most;
}

}  // namespace kaon::proto
