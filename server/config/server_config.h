// Reads a server's configuration from file, environment and flags (docs/adr/0010). Reflection gives
// every field of the config message a flag and a KAON_ variable. Called once from main, before any
// thread starts.
#ifndef KAON_SERVER_CONFIG_SERVER_CONFIG_H_
#define KAON_SERVER_CONFIG_SERVER_CONFIG_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "google/protobuf/message.h"

namespace kaon::config {

// Merges a textproto into `message`. INVALID_ARGUMENT names file, line and column of a syntax error
// or unknown field; NOT_FOUND names the file.
absl::Status LoadTextproto(const std::string& path, google::protobuf::Message* message);

// One field of the message as a flag: `tls.ca_file` becomes --tls-ca-file and KAON_TLS_CA_FILE.
struct Flag {
  std::string field;
  std::string help;
};

struct CommandLine {
  std::string program;
  std::string description;
  // Every field of the message; a field without a row is a bug (CHECK).
  std::vector<Flag> flags;
  // Fills in defaults, and rejects what the server would reject.
  std::function<absl::Status(google::protobuf::Message*)> complete;
};

// Fills `message` from --config FILE (or KAON_CONFIG), then the environment, then the flags.
// Repeated fields take comma-separated values. Calls `complete` at the end, so that --print-config
// and --check-config see the values that the server would use.
// Returns the exit status if the process should end now. It is 0 after --help, --print-config and
// --check-config. It is 2, with the reason on stderr, for a bad value, a bad file or an unknown
// flag.
std::optional<int> ParseCommandLine(const CommandLine& command_line, int argc,
                                    const char* const* argv, google::protobuf::Message* message);

}  // namespace kaon::config

#endif  // KAON_SERVER_CONFIG_SERVER_CONFIG_H_
