#include "tests/simulation/failing_seed.h"

#include <unistd.h>

#include <array>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "tests/simulation/seeds.h"

namespace kaon::simulation {

namespace {

// A source file that Bazel puts next to the program: a link into the checkout.
constexpr char kSource[] = "tests/simulation/cluster.h";

const FailingSeed* at_death = nullptr;
// A signal may arrive because the stack is exhausted.
std::array<char, 1 << 16> signal_stack;

// Returns the commit of the checkout that this was built from, with "-dirty" if its sources have
// changed since.
std::string FindCommit() {
  std::array<char, PATH_MAX> path;
  if (realpath(kSource, path.data()) == nullptr) return "unknown";
  const std::string file = path.data();
  FILE* git = popen(absl::StrCat("git --no-optional-locks -C '", file.substr(0, file.rfind('/')),
                                 "' describe --always --dirty --abbrev=12 2>/dev/null")
                        .c_str(),
                    "r");
  if (git == nullptr) return "unknown";
  std::array<char, 128> line = {};
  const bool said = fgets(line.data(), line.size(), git) != nullptr;
  return pclose(git) == 0 && said ? std::string(absl::StripAsciiWhitespace(line.data()))
                                  : "unknown";
}

}  // namespace

FailingSeed::FailingSeed()
    : build_(absl::StrCat("commit ", FindCommit(), ", compiled by ", __VERSION__)) {}

void FailingSeed::PrintAtDeath() {
  at_death = this;
  stack_t stack = {};
  stack.ss_sp = signal_stack.data();
  stack.ss_size = signal_stack.size();
  sigaltstack(&stack, nullptr);
  struct sigaction action = {};
  action.sa_handler = OnDeath;
  action.sa_flags = SA_ONSTACK | static_cast<int>(SA_RESETHAND);
  // These signals are raised by a failed CHECK and by other faults of the process itself.
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) {
    sigaction(signal, &action, nullptr);
  }
}

void FailingSeed::Begin(ClusterOptions& options, const std::string& replay) {
  options.newest_events = &newest_;
  newest_.Clear();
  seed_ = absl::StrCat(options.seed);
  about_ =
      absl::StrCat("replay with: ", replay, "\noptions: ", Describe(options), "\nbuild: ", build_,
                   "\nnewest events, of at most ", TraceRing::kLines, ":\n");
}

void FailingSeed::Print(const ClusterResult& result) const {
  std::cout << "FOUND seed " << seed_ << ": " << result.violation << "\nevent hash: " << std::hex
            << result.event_hash << std::dec << ", " << result.num_events << " events\n"
            << about_ << std::flush;
  newest_.Write(STDOUT_FILENO);
}

// Allocates nothing and takes no lock, because the interrupted code may hold one. Output that the
// process had buffered is lost, unlike glog's own lines on a failed CHECK.
void FailingSeed::OnDeath(int signal) {
  if (at_death != nullptr && !at_death->seed_.empty()) {
    WriteAll(STDOUT_FILENO, "FOUND seed ");
    WriteAll(STDOUT_FILENO, at_death->seed_);
    WriteAll(STDOUT_FILENO, ": the process died\n");
    WriteAll(STDOUT_FILENO, at_death->about_);
    at_death->newest_.Write(STDOUT_FILENO);
  }
  // The default action: SA_RESETHAND.
  std::raise(signal);
}

}  // namespace kaon::simulation
