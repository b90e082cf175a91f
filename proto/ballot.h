// Ordering and printing of ballots and attempts (protocol.md section 1). Pure functions; any
// thread.
#ifndef KAON_PROTO_BALLOT_H_
#define KAON_PROTO_BALLOT_H_

#include <string>

#include "kaon/v1/agreement.pb.h"

namespace kaon::proto {

// Negative, 0 or positive as a is below, equal to or above b.
int Compare(const v1::Ballot& a, const v1::Ballot& b);
// By ballot, then number.
int Compare(const v1::Attempt& a, const v1::Attempt& b);
// (ballot, round) of two plans.
int CompareRound(const v1::StepPlan& a, const v1::StepPlan& b);

// Serialized bytes equal: what protocol.md 2.1 rule 2 calls alike.
bool Alike(const v1::StepPlan& a, const v1::StepPlan& b);
// Alike but for ballot and round.
bool AlikeButForRound(const v1::StepPlan& a, const v1::StepPlan& b);

// "7.3fa9" : counter and the first 16 bits of the incarnation.
std::string ToString(const v1::Ballot& ballot);
std::string ToString(const v1::Attempt& attempt);

}  // namespace kaon::proto

#endif  // KAON_PROTO_BALLOT_H_
