// Version of this build, for `--version` of every program. Constant; any thread.
#ifndef KAON_PROTO_VERSION_H_
#define KAON_PROTO_VERSION_H_

#include <string>

namespace kaon::proto {

struct Version {
  // Content of the file VERSION, such as 0.1.0.
  std::string version;
  // Commit of the sources (--define=kaon_commit=HASH, see deploy/commit.sh), or "unknown".
  std::string commit;
  // opt, fastbuild or dbg.
  std::string build;
};

Version ThisVersion();

// Returns "kaon-shard 0.1.0 (commit 5952d4ab1234, opt build)\nfeatures: " and `features`, which
// says what is built into the program.
std::string VersionText(const std::string& program, const std::string& features);

}  // namespace kaon::proto

#endif  // KAON_PROTO_VERSION_H_
