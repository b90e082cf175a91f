// Serves a person at a terminal: asks before a command destroys something, and repeats a command
// (--watch). One thread.
#ifndef KAON_SERVER_ADMIN_CLI_TERMINAL_H_
#define KAON_SERVER_ADMIN_CLI_TERMINAL_H_

#include <functional>
#include <iostream>
#include <string>

#include "absl/status/status.h"

namespace kaon::admin_cli {

// Asks whether to do `what`. ABORTED unless the answer is y or yes, and, without asking, if `in` is
// no terminal.
absl::Status Confirm(const std::string& what, bool is_terminal, std::istream& in,
                     std::ostream& out);

// Calls `once` until `pause` returns false. Clears a terminal before each answer, and elsewhere
// writes an empty line between two answers. Returns the result of the last call.
int Watch(const std::function<int()>& once, const std::function<bool()>& pause, bool is_terminal,
          std::ostream& out);

}  // namespace kaon::admin_cli

#endif  // KAON_SERVER_ADMIN_CLI_TERMINAL_H_
