// Ordering and printing of ballots and attempts (protocol.md section 1). Pure functions; any
// thread.
#ifndef KAON_PROTO_BALLOT_H_
#define KAON_PROTO_BALLOT_H_

#include <string>

#include "kaon/v1/agreement.pb.h"

namespace kaon::proto {

// Returns a negative number, 0 or a positive number if a is below, equal to or above b.
int Compare(const v1::Ballot& a, const v1::Ballot& b);
// Compares by ballot, then by number.
int Compare(const v1::Attempt& a, const v1::Attempt& b);
// Compares the (ballot, round) of two plans.
int CompareRound(const v1::StepPlan& a, const v1::StepPlan& b);

// Returns true if the serialized bytes are equal: protocol.md 2.1 rule 2 calls such plans alike.
bool Alike(const v1::StepPlan& a, const v1::StepPlan& b);
// Returns true if the plans are alike except for ballot and round.
bool AlikeButForRound(const v1::StepPlan& a, const v1::StepPlan& b);

// Returns counter and the first 16 bits of the incarnation, such as "7.3fa9".
std::string ToString(const v1::Ballot& ballot);
std::string ToString(const v1::Attempt& attempt);

}  // namespace kaon::proto

#endif  // KAON_PROTO_BALLOT_H_
