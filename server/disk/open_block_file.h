// Opens a BlockFile of this machine by io_uring or by threads. Any thread.
#ifndef KAON_SERVER_DISK_OPEN_BLOCK_FILE_H_
#define KAON_SERVER_DISK_OPEN_BLOCK_FILE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/disk/block_file.h"
#include "server/disk/file_io.h"

namespace kaon::disk {

// Opens the file, and logs one line that says how it is read and written, and for kAuto why not by
// io_uring. `size_bytes` is a multiple of kBlockBytes, > 0. Errors are those of ReservedFile::Open,
// and for kUring:
//   FAILED_PRECONDITION  io_uring cannot be used here; says why and what to set, touches no file
absl::StatusOr<std::unique_ptr<BlockFile>> OpenBlockFile(const std::string& path,
                                                         uint64_t size_bytes, FileIo io);

}  // namespace kaon::disk

#endif  // KAON_SERVER_DISK_OPEN_BLOCK_FILE_H_
