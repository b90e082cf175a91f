// Owns OpenSSL's objects, so that none leaks. Pure functions; any thread.
#ifndef KAON_SERVER_AUTH_OPENSSL_TYPES_H_
#define KAON_SERVER_AUTH_OPENSSL_TYPES_H_

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string>

#include "absl/strings/string_view.h"

namespace kaon::auth {

template <auto kFree>
struct Free {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};

using Bio = std::unique_ptr<BIO, Free<BIO_free_all>>;
using Certificate = std::unique_ptr<X509, Free<X509_free>>;
using RevocationList = std::unique_ptr<X509_CRL, Free<X509_CRL_free>>;
using Names = std::unique_ptr<GENERAL_NAMES, Free<GENERAL_NAMES_free>>;

// Removes the errors that OpenSSL notes for this thread while it lives.
class ErrorMark {
 public:
  ErrorMark() { ERR_set_mark(); }
  ~ErrorMark() { ERR_pop_to_mark(); }
};

// Reads `text`, which must outlive the result.
inline Bio BioOf(absl::string_view text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// Returns the name in DER.
inline std::string DerOf(const X509_NAME* name) {
  const unsigned char* bytes = nullptr;
  size_t size = 0;
  if (X509_NAME_get0_der(name, &bytes, &size) != 1) return "";
  return std::string(reinterpret_cast<const char*>(bytes), size);
}

// Returns upper-case hexadecimal digits without leading zeros; "0" for zero.
std::string SerialOf(const ASN1_INTEGER* serial);

}  // namespace kaon::auth

#endif  // KAON_SERVER_AUTH_OPENSSL_TYPES_H_
