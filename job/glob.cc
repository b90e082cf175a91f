#include "job/glob.h"

#include <cstddef>

namespace kaon::job {
namespace {

// One element of a pattern other than *, matched against one character.
struct Element {
  bool matches = false;
  // Characters of the pattern it takes; 0 where a set has no end.
  size_t length = 0;
};

// Of the set that begins with the '[' at the front of `pattern`.
Element MatchSet(absl::string_view pattern, unsigned char c) {
  size_t at = 1;
  const bool negated = at < pattern.size() && (pattern[at] == '!' || pattern[at] == '^');
  if (negated) ++at;
  bool found = false;
  // A ']' that comes first is a member.
  for (size_t first = at; at < pattern.size(); ++at) {
    if (pattern[at] == ']' && at != first) return {found != negated, at + 1};
    if (pattern[at] == '\\' && at + 1 < pattern.size()) ++at;
    const unsigned char low = pattern[at];
    unsigned char high = low;
    if (at + 2 < pattern.size() && pattern[at + 1] == '-' && pattern[at + 2] != ']') {
      at += 2;
      if (pattern[at] == '\\' && at + 1 < pattern.size()) ++at;
      high = pattern[at];
    }
    found = found || (low <= c && c <= high);
  }
  return {};
}

// Of the element at the front of `pattern`, which is no *.
Element MatchOne(absl::string_view pattern, unsigned char c) {
  if (pattern[0] == '?') return {true, 1};
  if (pattern[0] == '[') {
    const Element set = MatchSet(pattern, c);
    if (set.length > 0) return set;
  }
  if (pattern[0] == '\\' && pattern.size() > 1) {
    return {static_cast<unsigned char>(pattern[1]) == c, 2};
  }
  return {static_cast<unsigned char>(pattern[0]) == c, 1};
}

}  // namespace

bool GlobMatches(absl::string_view pattern, absl::string_view name) {
  size_t p = 0;
  size_t n = 0;
  // After the newest *, and the first character it does not take so far. Only the newest needs to
  // be tried again: an earlier one taking more gives nothing new.
  size_t star = absl::string_view::npos;
  size_t resume = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = ++p;
      resume = n;
      continue;
    }
    if (p < pattern.size()) {
      const Element element = MatchOne(pattern.substr(p), name[n]);
      if (element.matches) {
        p += element.length;
        ++n;
        continue;
      }
    }
    if (star == absl::string_view::npos) return false;
    p = star;
    n = ++resume;
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace kaon::job
