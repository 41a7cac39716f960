# The standard and Abseil headers that nearly every file includes, read once a
# target: half of the time of an average file. Every file includes what it uses,
# and the builds without show what is missing.
option(PIPEWRIGHT_PCH "Precompile the headers that most files include" OFF)

function(precompile_common_headers target)
  if(NOT PIPEWRIGHT_PCH)
    return()
  endif()
  target_precompile_headers(${target} PRIVATE
    <algorithm> <array> <cmath> <cstdint> <functional> <map> <memory>
    <optional> <set> <string> <utility> <vector>
    <absl/status/status.h> <absl/status/statusor.h> <absl/strings/match.h>
    <absl/strings/str_cat.h> <absl/strings/str_format.h>
    <absl/strings/str_join.h> <absl/strings/str_split.h>
    <absl/strings/string_view.h> <absl/types/span.h>
    ${ARGN})
endfunction()

# The same of a target with the same flags, read for that one already.
function(reuse_common_headers target from)
  if(PIPEWRIGHT_PCH)
    target_precompile_headers(${target} REUSE_FROM ${from})
  endif()
endfunction()
