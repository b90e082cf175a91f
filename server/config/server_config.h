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
  // Has a row for every field of the message (CHECK).
  std::vector<Flag> flags;
  // Fills in the defaults. Rejects a configuration that the server would reject.
  std::function<absl::Status(google::protobuf::Message*)> complete;
};

// Fills `message` from --config FILE (or KAON_CONFIG), then the environment, then the flags.
// Repeated fields take comma-separated values. Then runs `complete`, so that --print-config and
// --check-config use the configuration that the server would run with.
// Returns the exit status if the process should end now:
//   0  after --help, --print-config and --check-config
//   2  a bad value, a bad file or an unknown flag; the reason is on stderr
std::optional<int> ParseCommandLine(const CommandLine& command_line, int argc,
                                    const char* const* argv, google::protobuf::Message* message);

}  // namespace kaon::config

#endif  // KAON_SERVER_CONFIG_SERVER_CONFIG_H_
