#include "job/glob.h"

#include <cstddef>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace kaon::job {
namespace {

std::string Character(unsigned char c) { return absl::StrCat("\\x{", absl::Hex(c), "}"); }

// Appends the set that begins with the '[' at `begin`. Returns the position after its ']', or 0 if
// it has none.
size_t AppendSet(absl::string_view pattern, size_t begin, std::string& regex) {
  size_t at = begin + 1;
  const bool negated = at < pattern.size() && (pattern[at] == '!' || pattern[at] == '^');
  if (negated) ++at;
  std::string members;
  // A ']' at the start of the set is a member.
  for (size_t first = at; at < pattern.size(); ++at) {
    if (pattern[at] == ']' && at != first) {
      // A range from high to low matches nothing, and a set may have no other.
      const char* empty = negated ? "." : "[^\\x{0}-\\x{10ffff}]";
      absl::StrAppend(&regex,
                      members.empty() ? empty : absl::StrCat(negated ? "[^" : "[", members, "]"));
      return at + 1;
    }
    if (pattern[at] == '\\' && at + 1 < pattern.size()) ++at;
    const unsigned char low = pattern[at];
    unsigned char high = low;
    if (at + 2 < pattern.size() && pattern[at + 1] == '-' && pattern[at + 2] != ']') {
      at += 2;
      if (pattern[at] == '\\' && at + 1 < pattern.size()) ++at;
      high = pattern[at];
    }
    if (low <= high) absl::StrAppend(&members, Character(low), "-", Character(high));
  }
  return 0;
}

}  // namespace

std::string GlobToRegex(absl::string_view pattern) {
  std::string regex = "\\A(?s:";
  // If one '[' has no ']', no later one has. Searching again for each would take time quadratic in
  // the pattern's length.
  bool sets_end = true;
  for (size_t at = 0; at < pattern.size();) {
    const size_t after_set =
        sets_end && pattern[at] == '[' ? AppendSet(pattern, at, regex) : size_t{0};
    if (after_set > 0) {
      at = after_set;
      continue;
    }
    if (pattern[at] == '[') sets_end = false;
    if (pattern[at] == '*') {
      // Two stars mean the same as one.
      if (!absl::EndsWith(regex, ".*")) absl::StrAppend(&regex, ".*");
    } else if (pattern[at] == '?') {
      absl::StrAppend(&regex, ".");
    } else {
      if (pattern[at] == '\\' && at + 1 < pattern.size()) ++at;
      absl::StrAppend(&regex, Character(pattern[at]));
    }
    ++at;
  }
  return absl::StrCat(regex, ")\\z");
}

}  // namespace kaon::job
