# What ctest runs of pipewright_tests. Labels: `nodes` are two Open MPI daemons
# over TCP, where the set-up of the network decides; not in the presets'
# default (ctest -L nodes).
#
# In a plain build each TEST_CASE is one entry. With sanitizers a process needs
# seconds to start, so each test file is one entry, and cases tagged [long] are
# left to plain builds.
if(PIPEWRIGHT_SANITIZE)
  set(script ${CMAKE_CURRENT_SOURCE_DIR}/entries_of_files.cmake)
  set(entries ${CMAKE_CURRENT_BINARY_DIR}/entries_of_files.ctest.cmake)
  add_custom_command(TARGET pipewright_tests POST_BUILD
    COMMAND ${CMAKE_COMMAND} -DTESTS=$<TARGET_FILE:pipewright_tests>
      -DOUTPUT=${entries} -DFOLDER=${CMAKE_CURRENT_BINARY_DIR} -P ${script}
    BYPRODUCTS ${entries}
    VERBATIM)
  # Until the tests are built, ctest says so.
  set(start ${CMAKE_CURRENT_BINARY_DIR}/entries_of_files.start.cmake)
  file(WRITE ${start} "if(EXISTS \"${entries}\")
  include(\"${entries}\")
else()
  add_test(pipewright_tests_NOT_BUILT pipewright_tests_NOT_BUILT)
endif()
")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${start})
  set(left_out "[long]")
else()
  catch_discover_tests(pipewright_tests TEST_SPEC "~[mpi]~[nodes]~[.]")
  # They fill the machine with processes whose last words are under a time-out.
  catch_discover_tests(pipewright_tests TEST_SPEC "[mpi]~[nodes]~[.]"
    PROPERTIES RUN_SERIAL ON)
  catch_discover_tests(pipewright_tests TEST_SPEC "[nodes]~[.]"
    PROPERTIES RUN_SERIAL ON LABELS nodes)
  set(left_out "")
endif()

# No case drops out: what ctest would run is all that the binary has.
add_test(NAME tests.all_entries
  COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/entries_check.sh
    $<TARGET_FILE:pipewright_tests> ${CMAKE_CTEST_COMMAND}
    ${PROJECT_BINARY_DIR} ${left_out})
