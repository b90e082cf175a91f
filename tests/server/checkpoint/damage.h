// Damage to files on a disk: they vanish, end early, were written in part, or have a flipped bit.
// Used by tests that must detect every kind. Pure functions over a directory; one thread.
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
  // The second half is missing.
  kTruncated,
  // The second half was never written and reads as zeros.
  kTorn,
  // One bit in the middle is flipped.
  kFlipped,
};

inline constexpr std::array<Damage, 4> kEveryDamage = {Damage::kMissing, Damage::kTruncated,
                                                       Damage::kTorn, Damage::kFlipped};

// Returns a name such as "missing", which is valid in a checkpoint's id.
std::string NameOf(Damage damage);

// Ends the process if the file was missing, or if its second half was already empty.
void DamageFile(disk::Directory& directory, const std::string& name, Damage damage);

// Puts a file back, or in place of another one.
void PutFile(disk::Directory& directory, const std::string& name, absl::string_view contents);

// Returns every file and its content.
std::map<std::string, std::string> FilesOf(disk::Directory& directory);

}  // namespace kaon::checkpoint

#endif  // KAON_TESTS_SERVER_CHECKPOINT_DAMAGE_H_
