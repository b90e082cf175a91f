// Converts a decided record of the wire to the public record. Pure function; any thread.
#ifndef KAON_CLIENT_WIRE_RECORD_CONVERSION_H_
#define KAON_CLIENT_WIRE_RECORD_CONVERSION_H_

#include "client/kaon/step_record.h"
#include "kaon/v1/agreement.pb.h"

namespace kaon::client {

kaon::StepRecord ToPublic(const v1::StepRecord& record);

}  // namespace kaon::client

#endif  // KAON_CLIENT_WIRE_RECORD_CONVERSION_H_
