// Applies to a running server what SIGHUP may change of its configuration. Called by the main
// thread.
#ifndef KAON_SERVER_CONFIG_RELOAD_H_
#define KAON_SERVER_CONFIG_RELOAD_H_

#include <string>

#include "google/protobuf/message.h"
#include "server/config/server_config.h"

namespace kaon::config {

// Sets the log level to the field `log_level`, if the message has that field.
void ApplyLogLevel(const google::protobuf::Message& config);

// Sets the form of the log to the field `log_format`, if the message has that field. `program` is
// named in each object. Call it before other threads start.
void ApplyLogFormat(const google::protobuf::Message& config, const std::string& program);

// Applies the log level of `reread` and checks the certificates of `running`, whose files gRPC
// reads again by itself within seconds. Logs one line that says the result, and names other fields
// that differ: they need a restart. A null `reread` stands for a configuration that cannot be read;
// everything stays as it is.
void Reload(const CommandLine& command_line, const google::protobuf::Message& running,
            const google::protobuf::Message* reread);

}  // namespace kaon::config

#endif  // KAON_SERVER_CONFIG_RELOAD_H_
