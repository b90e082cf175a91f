// Makes command line flags reject unusual numbers. CLI11 reads numbers as the C library does: it
// accepts blanks, signs and hexadecimal, and nan passes any range. Any thread.
#ifndef KAON_CLIENT_NUMBER_FLAGS_H_
#define KAON_CLIENT_NUMBER_FLAGS_H_

#include <CLI/CLI.hpp>

namespace kaon::client {

// Makes each numeric flag of `app` and of its subcommands accept only finite decimal numbers. Call
// it after all flags are added.
void AcceptPlainNumbersOnly(CLI::App& app);

}  // namespace kaon::client

#endif  // KAON_CLIENT_NUMBER_FLAGS_H_
