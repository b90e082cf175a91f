// What becomes of files that lie on a disk: they vanish, end early, were written in part, have a
// bit that changed. For tests that must find every kind. Pure functions over a directory; one
// thread.
#ifndef KAON_TESTS_SERVER_CHECKPOINT_DAMAGE_H_
#define KAON_TESTS_SERVER_CHECKPOINT_DAMAGE_H_

#include <array>
#include <map>
#include <string>

#include "absl/strings/string_view.h"
#include "server/disk/disk.h"

namespace kaon::checkpoint {

enum class Damage {
  kMissing,
  // The second half is not there.
  kTruncated,
  // The second half was never written, and reads as zeros.
  kTorn,
  // One bit in the middle.
  kFlipped,
};

inline constexpr std::array<Damage, 4> kEveryDamage = {Damage::kMissing, Damage::kTruncated,
                                                       Damage::kTorn, Damage::kFlipped};

// As in "missing", fit for a checkpoint's id.
std::string NameOf(Damage damage);

// Ends the process if the file was not there, or already had nothing in its second half.
void DamageFile(disk::Directory& directory, const std::string& name, Damage damage);

// Puts a file where it was, or where another one is.
void PutFile(disk::Directory& directory, const std::string& name, absl::string_view contents);

// Every file and what it holds.
std::map<std::string, std::string> FilesOf(disk::Directory& directory);

}  // namespace kaon::checkpoint

#endif  // KAON_TESTS_SERVER_CHECKPOINT_DAMAGE_H_
