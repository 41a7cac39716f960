# The standard and Abseil headers that nearly every file includes, read once a
# target: half of the time of an average file. Off where warnings count: with
# them GCC 12 warns of what it inlines from the standard library, wrongly. Every
# file includes what it uses, and the builds without show what is missing.
#
# TESTS is for test cases and what they share, where warnings count too: they are
# compiled with little optimization, so they have none of these warnings.
set(PIPEWRIGHT_PCH OFF CACHE STRING
  "Precompile the headers that most files include: OFF, ON, TESTS")
set_property(CACHE PIPEWRIGHT_PCH PROPERTY STRINGS OFF ON TESTS)

function(precompile_common_headers target)
  if(NOT PIPEWRIGHT_PCH OR
      (PIPEWRIGHT_PCH STREQUAL "TESTS" AND
        NOT target MATCHES "^pipewright_test"))
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
