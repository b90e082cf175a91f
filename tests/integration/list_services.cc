// list_services HOST:PORT TLS_DIRECTORY NAME shard|coordinator: prints the services of a server, a
// line each, as an owner of the certificate NAME sees them. Ends with 1 and the error if it may
// not.
#include <iostream>

#include "client/environment.h"
#include "client/transport/channel.h"
#include "tests/testing/service_listing.h"

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  kaon::TlsFiles tls;
  kaon::client::FillTlsFiles(argv[2], argv[3], tls);
  const auto channel = kaon::client::CreateChannel(argv[1], tls,
                                                   std::string(argv[4]) == "shard"
                                                       ? kaon::proto::Role::kShard
                                                       : kaon::proto::Role::kCoordinator);
  if (!channel.ok()) {
    std::cerr << channel.status() << "\n";
    return 1;
  }
  const auto services = kaon::testing::ListServices(*channel);
  if (!services.ok()) {
    std::cerr << services.status() << "\n";
    return 1;
  }
  for (const std::string& service : *services) std::cout << service << "\n";
  return 0;
}
