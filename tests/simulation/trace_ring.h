// The newest lines of a simulation's trace, kept so that a process that dies of a CHECK or a signal
// can still print them. Owned by the runner of simulations; one thread, Write() also from a signal
// handler.
#ifndef KAON_TESTS_SIMULATION_TRACE_RING_H_
#define KAON_TESTS_SIMULATION_TRACE_RING_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "absl/strings/string_view.h"

namespace kaon::simulation {

class TraceRing {
 public:
  static constexpr size_t kLines = 200;
  // Longer lines are truncated.
  static constexpr size_t kLineBytes = 240;

  void Clear() { num_added_ = 0; }

  void Add(int64_t micros, absl::string_view text) {
    Line& line = lines_[num_added_++ % kLines];
    line.micros = micros;
    line.size = std::min(text.size(), kLineBytes);
    std::memcpy(line.text, text.data(), line.size);
  }

  // Writes the lines, oldest first, each as `World` prints it. Async-signal-safe.
  void Write(int descriptor) const;

 private:
  struct Line {
    int64_t micros;
    size_t size;
    char text[kLineBytes];
  };

  uint64_t num_added_ = 0;
  std::array<Line, kLines> lines_;
};

// Writes all of `text`, or as much of it as possible. Async-signal-safe.
void WriteAll(int descriptor, absl::string_view text);

}  // namespace kaon::simulation

#endif  // KAON_TESTS_SIMULATION_TRACE_RING_H_
