// Repeats a live answer of kaonctl: over the old one on a terminal, below it elsewhere. One thread.
#ifndef KAON_SERVER_ADMIN_CLI_LIVE_REDRAW_H_
#define KAON_SERVER_ADMIN_CLI_LIVE_REDRAW_H_

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>

namespace kaon::admin_cli {

struct Frame {
  std::string text;
  // Reason why some or all of the answer is unknown; ends with a newline unless empty.
  std::string error;
  int exit_status = 0;
};

struct RedrawOptions {
  // Number of frames; 0 = until `pause` returns false.
  uint64_t frames = 0;
  bool is_terminal = false;
  // Text between two frames; unused on a terminal.
  std::string separator;
};

// Writes each frame to `out` at once, so that a terminal does not flicker. Errors go to `errors`,
// on a terminal below the text. Returns the exit status of the last frame.
int Redraw(const RedrawOptions& options, const std::function<Frame()>& next,
           const std::function<bool()>& pause, std::ostream& out, std::ostream& errors);

// Makes Ctrl-C end the process with status 0, and with the cursor on a line of its own if
// `is_terminal`. Call it before other threads start.
void EndOnInterrupt(bool is_terminal);

}  // namespace kaon::admin_cli

#endif  // KAON_SERVER_ADMIN_CLI_LIVE_REDRAW_H_
