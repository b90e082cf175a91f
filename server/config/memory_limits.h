// Rejects a start if a system limit leaves the server too little memory. Otherwise the server would
// die during its work, or accept connections without completing the handshake. Any thread.
#ifndef KAON_SERVER_CONFIG_MEMORY_LIMITS_H_
#define KAON_SERVER_CONFIG_MEMORY_LIMITS_H_

#include <sys/resource.h>

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace kaon::config {

// Address space of the program, libraries, threads and their arenas: twice that of an idle server.
inline constexpr uint64_t kProgramBytes = uint64_t{512} << 20;
// Upper bound on gRPC's memory besides waiting gradients: a few registrations, and a chunk in
// flight for each of many streams.
inline constexpr uint64_t kTransportBytes = uint64_t{256} << 20;

// `configured` is the number of bytes that the configuration lets the server allocate in addition.
// FAILED_PRECONDITION names the limit, its value and the required value.
inline absl::Status CheckMemoryLimits(uint64_t configured) {
  const uint64_t needed = kProgramBytes + kTransportBytes + configured;
  struct Limit {
    __rlimit_resource resource;
    const char* name;
  };
  for (const Limit& checked :
       {Limit{RLIMIT_AS, "address space (ulimit -v)"}, Limit{RLIMIT_DATA, "data (ulimit -d)"}}) {
    rlimit limit;
    if (getrlimit(checked.resource, &limit) != 0 || limit.rlim_cur >= needed) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "the limit of ", checked.name, " is ", limit.rlim_cur >> 10, " KiB, must be at least ",
        needed >> 10, ": ", (kProgramBytes + kTransportBytes) >> 10, " for program and transport, ",
        configured >> 10, " that the configuration lets it take"));
  }
  return absl::OkStatus();
}

}  // namespace kaon::config

#endif  // KAON_SERVER_CONFIG_MEMORY_LIMITS_H_
