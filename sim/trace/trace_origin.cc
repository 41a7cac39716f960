#include "sim/trace/trace_origin.h"

#include <algorithm>

namespace pipewright {

bool TraceOrigin::Gave(absl::string_view times) const {
  return std::find(given.begin(), given.end(), times) != given.end();
}

}  // namespace pipewright
