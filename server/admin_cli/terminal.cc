#include "server/admin_cli/terminal.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace kaon::admin_cli {

absl::Status Confirm(const std::string& what, bool is_terminal, std::istream& in,
                     std::ostream& out) {
  if (!is_terminal) {
    return absl::AbortedError(
        absl::StrCat("not confirmed: would ", what, "; without a terminal, add --yes"));
  }
  out << "kaonctl will " << what << ". Go on? [y/N] " << std::flush;
  std::string answer;
  std::getline(in, answer);
  answer = absl::AsciiStrToLower(absl::StripAsciiWhitespace(answer));
  if (answer == "y" || answer == "yes") return absl::OkStatus();
  return absl::AbortedError("not confirmed, nothing was changed");
}

int Watch(const std::function<int()>& once, const std::function<bool()>& pause, bool is_terminal,
          std::ostream& out) {
  for (bool is_first = true;; is_first = false) {
    if (is_terminal) {
      out << "\033[H\033[2J";
    } else if (!is_first) {
      out << "\n";
    }
    const int status = once();
    out.flush();
    if (!pause()) return status;
  }
}

}  // namespace kaon::admin_cli
