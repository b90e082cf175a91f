#include "proto/failpoint.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "proto/text.h"

namespace kaon {

namespace {

constexpr char kVariable[] = "KAON_FAILPOINT";
constexpr uint64_t kMaxPasses = 1000000000;

constexpr absl::string_view kNames[] = {"",
#define KAON_NAME_FAILPOINT(process, when, name) #name,
                                        KAON_FAILPOINTS(KAON_NAME_FAILPOINT)
#undef KAON_NAME_FAILPOINT
};

std::atomic<uint64_t> passes_left{0};

}  // namespace

void PassArmedFailpoint() {
  if (passes_left.fetch_sub(1) != 1) return;
  // Printed first, so that a test can tell this death from any other. A failed write does no harm.
  const std::string said =
      absl::StrCat("KAON_FAILPOINT ", kNames[static_cast<int>(armed_failpoint.load())],
                   ": this process ends here\n");
  if (::write(STDERR_FILENO, said.data(), said.size()) < 0) {
  }
  ::kill(::getpid(), SIGKILL);
  // No instruction of the caller runs while the signal is on its way.
  while (true) ::pause();
}

absl::Status ArmFailpoint(absl::string_view text) {
  armed_failpoint = Failpoint::kNone;
  if (text.empty()) return absl::OkStatus();
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ':');
  uint64_t n = 1;
  const bool counts = parts.size() == 2 && absl::SimpleAtoi(parts[1], &n) && n >= 1;
  if (parts.size() > 2 || (parts.size() == 2 && !counts) || n > kMaxPasses) {
    return absl::InvalidArgumentError(absl::StrCat(kVariable, " is \"", proto::Excerpt(text),
                                                   "\", must be name or name:n, n 1 .. ",
                                                   kMaxPasses));
  }
  for (size_t i = 1; i < std::size(kNames); ++i) {
    if (kNames[i] != parts[0]) continue;
    passes_left = n;
    armed_failpoint = static_cast<Failpoint>(i);
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(kVariable, " is \"", proto::Excerpt(text), "\", there is no point ", "\"",
                   proto::Excerpt(parts[0]), "\"; proto/failpoint.h lists them"));
}

absl::Status ArmFailpointOfEnvironment() {
  const char* text = std::getenv(kVariable);
  return ArmFailpoint(text == nullptr ? "" : text);
}

}  // namespace kaon
