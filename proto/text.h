// Text from people and peers: limits what a message repeats of it, and parses numbers in it. Pure
// functions; any thread.
#ifndef KAON_PROTO_TEXT_H_
#define KAON_PROTO_TEXT_H_

#include <cstdint>
#include <limits>
#include <string>

#include "absl/strings/string_view.h"

namespace kaon::proto {

// Returns the first 100 characters of `value`, with quotes and all but printable ASCII escaped, and
// its length if it is longer. Every message that repeats a value uses this; the path of a file is
// shown whole, by OneLine.
std::string Excerpt(absl::string_view value);

// Returns a whole message as printable ASCII of about 2,000 characters at most. Its fields may be
// many, and gRPC's metadata holds 8 KiB.
std::string OneLine(absl::string_view message);

// Parses digits alone: no sign, no blank. Returns false if there is anything else, or the number is
// above `most`.
bool ParseDecimal(absl::string_view text, uint64_t* number,
                  uint64_t most = std::numeric_limits<uint64_t>::max());

}  // namespace kaon::proto

#endif  // KAON_PROTO_TEXT_H_
