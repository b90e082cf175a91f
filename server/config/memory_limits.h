// Refuses to start a server where a limit of the system leaves it too little memory: it would end
// in the middle of its work, or accept connections and shake no hands. Any thread.
#ifndef KAON_SERVER_CONFIG_MEMORY_LIMITS_H_
#define KAON_SERVER_CONFIG_MEMORY_LIMITS_H_

#include <sys/resource.h>

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace kaon::config {

// Address space of program, libraries, threads and their arenas: twice what an idle server has.
inline constexpr uint64_t kProgramBytes = uint64_t{512} << 20;
// What gRPC may hold beyond the gradients that wait: a few registrations, and a chunk on its way
// for each of many streams.
inline constexpr uint64_t kTransportBytes = uint64_t{256} << 20;

// `configured` bytes are what the configuration lets the server take beside these.
// FAILED_PRECONDITION names the limit, its value and what it must be.
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
