#include "server/listener/secured_port.h"

#include <memory>
#include <utility>

#include "proto/status_macros.h"
#include "server/auth/call_limits.h"
#include "server/auth/peer_policy.h"
#include "server/auth/server_credentials.h"

namespace kaon::listener {

absl::StatusOr<std::unique_ptr<Listener>> AddSecuredPort(grpc::ServerBuilder& builder,
                                                         const v1::TlsConfig& tls,
                                                         const std::string& listen,
                                                         monitor::EventCounts& counts) {
  KAON_ASSIGN_OR_RETURN(const std::shared_ptr<auth::PeerPolicy> policy,
                        auth::PeerPolicy::Create(tls));
  const auto limits = std::make_shared<auth::CallLimits>();
  KAON_ASSIGN_OR_RETURN(std::shared_ptr<grpc::ServerCredentials> credentials,
                        auth::CreateServerCredentials(
                            tls, listen, policy,
                            [&counts](const std::string& peer, const absl::Status& refusal) {
                              monitor::NoteUnauthorized(counts, peer, refusal);
                            },
                            [&counts] { counts.Add(monitor::Event::kCall); }, limits));
  auth::HardenServer(builder);
  KAON_ASSIGN_OR_RETURN(std::unique_ptr<Listener> listener, Listener::Bind(listen, counts));
  listener->AddTo(builder, std::move(credentials), policy, limits);
  return listener;
}

}  // namespace kaon::listener
