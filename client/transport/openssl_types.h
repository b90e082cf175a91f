// Owns OpenSSL's objects, so that none leaks. Pure functions; any thread.
#ifndef KAON_CLIENT_TRANSPORT_OPENSSL_TYPES_H_
#define KAON_CLIENT_TRANSPORT_OPENSSL_TYPES_H_

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <memory>

#include "absl/strings/string_view.h"

namespace kaon::client {

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

// While it lives, collects OpenSSL's errors of the calling thread; removes them from the queue at
// the end.
class ErrorMark {
 public:
  ErrorMark() { ERR_set_mark(); }
  ~ErrorMark() { ERR_pop_to_mark(); }
};

// Reads `text`, which must outlive the result.
inline Bio BioOf(absl::string_view text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

}  // namespace kaon::client

#endif  // KAON_CLIENT_TRANSPORT_OPENSSL_TYPES_H_
