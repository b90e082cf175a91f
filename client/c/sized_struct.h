// Copies structs of the C API that begin with their size. The caller's may be shorter or longer
// than ours: it may come from the headers of another release. Pure functions; any thread.
#ifndef KAON_CLIENT_C_SIZED_STRUCT_H_
#define KAON_CLIENT_C_SIZED_STRUCT_H_

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

#include "client/kaon/status.h"

namespace kaon::c {

// Copies the caller's struct over the defaults in `to`. INVALID_ARGUMENT if `size` does not even
// cover itself, or if a byte that this release does not know is set.
template <typename T>
Status ReadStruct(const char* what, const T* from, T& to) {
  const size_t size = from->size;
  if (size < sizeof(size_t)) {
    return Status(StatusCode::kInvalidArgument,
                  std::string(what) + ".size is " + std::to_string(size) + ", expecting " +
                      std::to_string(sizeof(T)) + ": set it to sizeof");
  }
  const char* bytes = reinterpret_cast<const char*>(from);
  for (size_t i = sizeof(T); i < size; ++i) {
    if (bytes[i] == 0) continue;
    return Status(StatusCode::kInvalidArgument,
                  std::string(what) + " has a field at byte " + std::to_string(i) +
                      " that this library does not know: install a newer one");
  }
  std::memcpy(&to, from, std::min(size, sizeof(T)));
  to.size = sizeof(T);
  return Status();
}

// Writes the first to->size bytes of `from`, and zeros after them. Leaves the size.
template <typename T>
Status WriteStruct(const char* what, const T& from, T* to) {
  const size_t size = to->size;
  if (size < sizeof(size_t)) {
    return Status(StatusCode::kInvalidArgument,
                  std::string(what) + ".size is " + std::to_string(size) + ": set it to sizeof");
  }
  std::memcpy(to, &from, std::min(size, sizeof(T)));
  if (size > sizeof(T)) std::memset(reinterpret_cast<char*>(to) + sizeof(T), 0, size - sizeof(T));
  to->size = size;
  return Status();
}

}  // namespace kaon::c

#endif  // KAON_CLIENT_C_SIZED_STRUCT_H_
