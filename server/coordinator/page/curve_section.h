// The charts of the status page. Pure functions; any thread.
#ifndef KAON_SERVER_COORDINATOR_PAGE_CURVE_SECTION_H_
#define KAON_SERVER_COORDINATOR_PAGE_CURVE_SECTION_H_

#include <string>

#include "server/coordinator/page/step_curves.h"

namespace kaon::coordinator {

// Returns the charts of the points: loss, norms, clip factors, rates, ratios, seconds per step.
std::string CurvesHtml(const Curves& curves);
// Returns the points as a CSV file.
std::string CurvesCsv(const Curves& curves);

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_PAGE_CURVE_SECTION_H_
