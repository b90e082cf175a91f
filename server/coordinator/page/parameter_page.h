// The routing table of a job, as pages of HTML and as CSV. Pure functions; any thread.
#ifndef KAON_SERVER_COORDINATOR_PAGE_PARAMETER_PAGE_H_
#define KAON_SERVER_COORDINATOR_PAGE_PARAMETER_PAGE_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "kaon/v1/admin.pb.h"

namespace kaon::coordinator {

// Rows of a page. Names have at most 512 bytes, so that a page has at most 200 KB.
inline constexpr uint32_t kParametersOfPage = 150;

// Returns a page of the table. `search` and `first` are those of the request.
std::string ParametersHtml(const v1::ListParametersResponse& page, absl::string_view search,
                           absl::string_view first);
// Returns the search form with a problem instead of rows.
std::string ParametersProblemHtml(absl::string_view problem, absl::string_view search);

std::string ParametersCsvHeader();
std::string ParametersCsvRows(const v1::ListParametersResponse& page);

}  // namespace kaon::coordinator

#endif  // KAON_SERVER_COORDINATOR_PAGE_PARAMETER_PAGE_H_
