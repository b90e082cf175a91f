#include "proto/ballot.h"

#include <tuple>

#include "absl/strings/str_cat.h"

namespace kaon::proto {

namespace {

template <typename T>
int CompareTuples(const T& a, const T& b) {
  return a < b ? -1 : (b < a ? 1 : 0);
}

}  // namespace

int Compare(const v1::Ballot& a, const v1::Ballot& b) {
  return CompareTuples(std::make_tuple(a.counter(), a.incarnation_high(), a.incarnation_low()),
                       std::make_tuple(b.counter(), b.incarnation_high(), b.incarnation_low()));
}

int Compare(const v1::Attempt& a, const v1::Attempt& b) {
  const int by_ballot = Compare(a.ballot(), b.ballot());
  return by_ballot != 0 ? by_ballot : CompareTuples(a.number(), b.number());
}

int CompareRound(const v1::StepPlan& a, const v1::StepPlan& b) {
  const int by_ballot = Compare(a.ballot(), b.ballot());
  return by_ballot != 0 ? by_ballot : CompareTuples(a.round(), b.round());
}

// Protocol.md 2.1 rule 2: "*Alike* = byte-equal StepPlan, and the StepPlan contains job, timeline,
// log position, ballot, round and decide() version."
bool Alike(const v1::StepPlan& a, const v1::StepPlan& b) {
  return a.SerializeAsString() == b.SerializeAsString();
}

bool AlikeButForRound(const v1::StepPlan& a, const v1::StepPlan& b) {
  v1::StepPlan unstamped = a;
  *unstamped.mutable_ballot() = b.ballot();
  unstamped.set_round(b.round());
  return Alike(unstamped, b);
}

std::string ToString(const v1::Ballot& ballot) {
  return absl::StrCat(ballot.counter(), ".", absl::Hex(ballot.incarnation_high() >> 48));
}

std::string ToString(const v1::Attempt& attempt) {
  return absl::StrCat(ToString(attempt.ballot()), "/", attempt.number());
}

}  // namespace kaon::proto
