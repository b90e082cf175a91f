// What every program's flags refuse beyond their ranges: CLI11 reads numbers as the C library does,
// with blanks, signs, hexadecimal and nan, which passes any range. Any thread.
#ifndef KAON_CLIENT_NUMBER_FLAGS_H_
#define KAON_CLIENT_NUMBER_FLAGS_H_

#include <CLI/CLI.hpp>

namespace kaon::client {

// Makes each flag of `app` and its subcommands that takes numbers accept decimal ones alone, and
// finite ones. To be called once all flags are there.
void AcceptPlainNumbersOnly(CLI::App& app);

}  // namespace kaon::client

#endif  // KAON_CLIENT_NUMBER_FLAGS_H_
