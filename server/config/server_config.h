// A server's configuration from file, environment and flags (docs/adr/0010). Reflection makes every
// field of the config message a flag and a KAON_ variable. Called once from main, before any thread
// starts.
#ifndef KAON_SERVER_CONFIG_SERVER_CONFIG_H_
#define KAON_SERVER_CONFIG_SERVER_CONFIG_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "google/protobuf/message.h"

namespace kaon::config {

// Merges a textproto into `message`. NOT_FOUND names the file. INVALID_ARGUMENT names file, line
// and column of a syntax error or unknown field.
absl::Status LoadTextproto(const std::string& path, google::protobuf::Message* message);

// One field of the message as a flag: `tls.ca_file` becomes --tls-ca-file and KAON_TLS_CA_FILE.
struct Flag {
  std::string field;
  std::string help;
};

struct CommandLine {
  std::string program;
  std::string description;
  // Built-in features, for --version.
  std::string features;
  // Has a row for every field of the message (CHECK).
  std::vector<Flag> flags;
  // Fills in the defaults. Rejects values that no server could use.
  std::function<absl::Status(google::protobuf::Message*)> complete;
  // Rejects a complete configuration that this server cannot start with; starts nothing.
  std::function<absl::Status(const google::protobuf::Message&)> check;
  // Rejects certificate files that this server cannot use. Part of `check`; SIGHUP runs it alone.
  std::function<absl::Status(const google::protobuf::Message&)> check_certificates;
};

// Fills `message` from --config FILE (or KAON_CONFIG), then the environment, then the flags.
// Repeated fields take comma-separated values. Then runs `complete`, so that --print-config shows
// the configuration that the server would run with. --check-config runs `check` in addition.
// Returns the exit status if the process should end now:
//   0  after --help, --print-config and --check-config
//   2  a bad value, a bad file or an unknown flag; the reason is on stderr
std::optional<int> ParseCommandLine(const CommandLine& command_line, int argc,
                                    const char* const* argv, google::protobuf::Message* message);

}  // namespace kaon::config

#endif  // KAON_SERVER_CONFIG_SERVER_CONFIG_H_
