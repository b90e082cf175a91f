// Version of this build, for `--version` of every program. Constant; any thread.
#ifndef KAON_PROTO_VERSION_H_
#define KAON_PROTO_VERSION_H_

#include <string>

namespace kaon::proto {

struct Version {
  // Content of the file VERSION, such as 0.1.0.
  std::string version;
  // Commit that a release was built from (--define=kaon_commit=HASH), or "unknown".
  std::string commit;
  // opt, fastbuild or dbg.
  std::string build;
};

Version ThisVersion();

// Returns "kaon-shard 0.1.0 (commit unknown, opt build)".
std::string VersionText(const std::string& program);

}  // namespace kaon::proto

#endif  // KAON_PROTO_VERSION_H_
