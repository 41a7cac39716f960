# What ctest runs of pipewright_tests: each test file is one entry, so that a
# process is not started for each case. Labels: `nodes` are two Open MPI daemons
# over TCP, where the set-up of the network decides; not in the presets' default
# (ctest -L nodes). Cases tagged [long] are left to plain builds. The last entry,
# tests.all_entries, fails if ctest would not run every case.
set(left_out)
if(PIPEWRIGHT_SANITIZE)
  set(left_out "[long]")
endif()

# add_entries_of(TARGET ARGUMENT...): with the arguments of entries_of_files.cmake.
function(add_entries_of target)
  set(script ${CMAKE_CURRENT_SOURCE_DIR}/entries_of_files.cmake)
  set(entries ${CMAKE_CURRENT_BINARY_DIR}/${target}.ctest.cmake)
  add_custom_command(TARGET ${target} POST_BUILD
    COMMAND ${CMAKE_COMMAND} -E env ASAN_OPTIONS=detect_leaks=0
      ${CMAKE_COMMAND} -DTESTS=$<TARGET_FILE:${target}>
      -DOUTPUT=${entries} -DFOLDER=${CMAKE_CURRENT_BINARY_DIR} ${ARGN}
      -P ${script}
    BYPRODUCTS ${entries}
    VERBATIM)
  # Until the tests are built, ctest says so.
  set(start ${CMAKE_CURRENT_BINARY_DIR}/${target}.start.cmake)
  file(WRITE ${start} "if(EXISTS \"${entries}\")
  include(\"${entries}\")
else()
  add_test(${target}_NOT_BUILT ${target}_NOT_BUILT)
endif()
")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${start})
endfunction()

add_entries_of(pipewright_tests "-DLEFT_OUT=${left_out}")
if(TARGET pipewright_tests_sanitized)
  # The cases that reach the sanitized files, a few rounds of each. Eight frames
  # of each allocation are kept, not 30, which took 4 to 6 % of the time; all
  # frames of an error itself are there. Tables of Abseil poison what is empty;
  # code that is not sanitized fills it and says nothing, so that is not looked
  # at.
  set(options detect_leaks=0 malloc_context_size=8 allow_user_poisoning=0)
  list(JOIN options ":" options)
  add_entries_of(pipewright_tests_sanitized "-DLEFT_OUT=[long]"
    -DPREFIX=sanitized.
    "-DTAGS=[fuzz],[engine],[program],[trace],[sequences],[kernels],[sockets]"
    "-DENVIRONMENT=ASAN_OPTIONS=${options}\\;PIPEWRIGHT_FUZZ_SECONDS=4\\;\
PIPEWRIGHT_TEST_ROUNDS=0.125")
endif()

# No case drops out: what ctest would run is all that the binary has.
add_test(NAME tests.all_entries
  COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/entries_check.sh
    $<TARGET_FILE:pipewright_tests> ${CMAKE_CTEST_COMMAND}
    ${PROJECT_BINARY_DIR} ${left_out})
