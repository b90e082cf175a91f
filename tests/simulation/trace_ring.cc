#include "tests/simulation/trace_ring.h"

#include <unistd.h>

namespace kaon::simulation {

void WriteAll(int descriptor, absl::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(descriptor, text.data(), text.size());
    if (written <= 0) return;
    text.remove_prefix(static_cast<size_t>(written));
  }
}

void TraceRing::Write(int descriptor) const {
  const uint64_t first = num_added_ > kLines ? num_added_ - kLines : 0;
  for (uint64_t i = first; i < num_added_; ++i) {
    const Line& line = lines_[i % kLines];
    char digits[24];
    size_t begin = sizeof(digits);
    digits[--begin] = ' ';
    uint64_t rest = static_cast<uint64_t>(line.micros);
    do {
      digits[--begin] = static_cast<char>('0' + rest % 10);
      rest /= 10;
    } while (rest > 0);
    WriteAll(descriptor, absl::string_view(digits + begin, sizeof(digits) - begin));
    WriteAll(descriptor, absl::string_view(line.text, line.size));
    WriteAll(descriptor, "\n");
  }
}

}  // namespace kaon::simulation
