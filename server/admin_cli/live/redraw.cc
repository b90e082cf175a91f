#include "server/admin_cli/live/redraw.h"

#include <signal.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace kaon::admin_cli {

namespace {

// Home; end of line; all below.
constexpr char kHome[] = "\033[H";
constexpr char kEndOfLine[] = "\033[K\n";
constexpr char kBelow[] = "\033[J";

void EndAtOnce(int) { _exit(0); }

void EndOnNewLine(int) {
  // The terminal has shown ^C on the line of the cursor.
  if (write(STDOUT_FILENO, "\n", 1) < 0) _exit(1);
  _exit(0);
}

}  // namespace

int Redraw(const RedrawOptions& options, const std::function<Frame()>& next,
           const std::function<bool()>& pause, std::ostream& out, std::ostream& errors) {
  for (uint64_t turn = 1;; ++turn) {
    const Frame frame = next();
    if (options.is_terminal) {
      const std::string text = absl::StrReplaceAll(frame.text, {{"\n", kEndOfLine}});
      out << absl::StrCat(turn == 1 ? "\033[2J" : "", kHome, text, kBelow) << std::flush;
    } else {
      const bool separate = turn > 1 && !frame.text.empty();
      out << absl::StrCat(separate ? options.separator : "", frame.text) << std::flush;
    }
    errors << frame.error << std::flush;
    if (turn == options.frames || !out.good() || !pause()) return frame.exit_status;
  }
}

void EndOnInterrupt(bool is_terminal) {
  struct sigaction action = {};
  action.sa_handler = is_terminal ? EndOnNewLine : EndAtOnce;
  sigaction(SIGINT, &action, nullptr);
}

}  // namespace kaon::admin_cli
