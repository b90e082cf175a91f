// Journals in a temporary directory, their content, and damage to their files, for the tests of
// server/journal. One thread.
#ifndef KAON_TESTS_SERVER_JOURNAL_JOURNAL_FILES_H_
#define KAON_TESTS_SERVER_JOURNAL_JOURNAL_FILES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/disk/posix_directory.h"
#include "server/journal/history.h"
#include "server/journal/journal_log.h"
#include "server/journal/record.h"

namespace kaon::journal {

PromiseRecord Promise(uint64_t counter);
PrepareRecord Prepare(uint64_t position, uint64_t generation);
DecisionRecord Decision(uint64_t position);
// `values` outlives the slice.
GradientSlice Slice(uint64_t position, uint64_t generation, uint32_t parameter_id,
                    const std::vector<float>& values);

// Returns the content of an entry for comparison; values are shown by their number and a CRC.
std::string Describe(const Entry& entry);

// Returns an empty temporary directory.
std::unique_ptr<disk::PosixDirectory> TemporaryDirectory();

// Opens the journal there as if it had any snapshot. Appends its entries to `*found`, one line
// each. `history` may be null.
absl::StatusOr<std::unique_ptr<JournalLog>> OpenLog(disk::Directory& directory,
                                                    std::vector<std::string>* found,
                                                    uint64_t segment_bytes = uint64_t{1} << 20,
                                                    History* history = nullptr);

// Returns the positions of all records in their order. Expects each to be as Decision made it.
std::vector<uint64_t> PositionsIn(History& history);

// Read and replace a whole file without the code under test.
std::string ReadFile(const std::string& path);
void WriteFile(const std::string& path, const std::string& contents);

}  // namespace kaon::journal

#endif  // KAON_TESTS_SERVER_JOURNAL_JOURNAL_FILES_H_
