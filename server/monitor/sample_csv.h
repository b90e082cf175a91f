// Samples of one parameter as a CSV file, for kaonctl and the status page. A pure function; any
// thread.
#ifndef KAON_SERVER_MONITOR_SAMPLE_CSV_H_
#define KAON_SERVER_MONITOR_SAMPLE_CSV_H_

#include <string>

#include "kaon/v1/shard_control.pb.h"

namespace kaon::monitor {

// Returns a line of names and one for each sample. A value that there is not is empty.
std::string SampleCsv(const v1::ParameterHistory& history);

}  // namespace kaon::monitor

#endif  // KAON_SERVER_MONITOR_SAMPLE_CSV_H_
