// kaonctl backend --measure: times whole Muon updates in standard form (formula [N1]) and in Gram
// form (formula [N7]) on this machine. A user can then choose the form of a group (ADR 0024). Needs
// no cluster. Called on one thread; the backend's threads share each update.
#ifndef KAON_SERVER_ADMIN_CLI_LOCAL_FORM_TIMES_H_
#define KAON_SERVER_ADMIN_CLI_LOCAL_FORM_TIMES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "kernels/backend.h"
#include "kernels/steady_clock.h"
#include "server/admin_cli/report.h"

namespace kaon::admin_cli {

struct FormTime {
  // Storage of the iterates: float32, bfloat16 or float16.
  std::string dtype;
  uint64_t rows = 0;
  uint64_t cols = 0;
  // Shortest update of all rounds.
  absl::Duration standard = absl::InfiniteDuration();
  absl::Duration gram = absl::InfiniteDuration();
};

struct FormTimes {
  // The backend's own name, such as "cpu/amx".
  std::string backend;
  std::vector<FormTime> rows;
};

// Times Muon updates of 5 iterations of 256 x 512 and 256 x 1024 matrices in fp32, bf16 and fp16.
// Gram form restarts at {2, 3}. Repeats rounds of all rows until `at_least` has passed on the clock
// `now`. Runs at least two rounds, because the first one allocates memory.
FormTimes MeasureForms(kernels::Backend& backend, absl::Duration at_least = absl::Milliseconds(500),
                       absl::FunctionRef<absl::Time()> now = SteadyNow);

// Both name the faster form of each row. Gram form must gain at least 5 %, because repeated
// measurements of one form differ by less.
Json FormTimesJson(const FormTimes& times);
std::string FormTimesText(const FormTimes& times);

}  // namespace kaon::admin_cli

#endif  // KAON_SERVER_ADMIN_CLI_LOCAL_FORM_TIMES_H_
