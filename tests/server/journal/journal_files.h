// Journals in a temporary directory, what is in them, and damage to their files, for the tests of
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

// Everything that an entry says, for comparison; of values their number and a CRC.
std::string Describe(const Entry& entry);

// An empty temporary directory.
std::unique_ptr<disk::PosixDirectory> TemporaryDirectory();

// Opens the journal there, as if it had any snapshot; what it holds goes to `*found`, one line per
// entry. `history` may be null.
absl::StatusOr<std::unique_ptr<JournalLog>> OpenLog(disk::Directory& directory,
                                                    std::vector<std::string>* found,
                                                    uint64_t segment_bytes = uint64_t{1} << 20,
                                                    History* history = nullptr);

// The positions of all records in it, in its order; each as Decision made it.
std::vector<uint64_t> PositionsIn(History& history);

// A whole file, read and replaced without the code under test.
std::string ReadFile(const std::string& path);
void WriteFile(const std::string& path, const std::string& contents);

}  // namespace kaon::journal

#endif  // KAON_TESTS_SERVER_JOURNAL_JOURNAL_FILES_H_
