// The report as a tree of JSON, for those that do not want its text: its keys
// are those of docs/json-and-exit-codes.md.
#pragma once

#include <string>
#include <vector>

#include "sim/base/json.h"
#include "sim/report/report.h"

namespace pipewright {

Json ReportTree(const Report& report);

// Every key that a report may have, whatever is below it.
std::vector<std::string> ReportKeys();

}  // namespace pipewright
