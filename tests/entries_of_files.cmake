# Run after a link of the tests with sanitizers: writes OUTPUT, which gives ctest
# one entry for each test file and kind (see entries.cmake). TESTS is the
# binary, FOLDER where it runs. Files of one name in two folders are one entry.
function(add_entries kind spec properties)
  # Catch2 tags each case with "#" and the name of its file; the count of cases
  # stands in front.
  execute_process(
    COMMAND ${TESTS} --filenames-as-tags --list-tags "${spec}"
    OUTPUT_VARIABLE listed WORKING_DIRECTORY ${FOLDER})
  string(REGEX MATCHALL "\\[#[^]\n]+\\]" tags "${listed}")
  set(script)
  foreach(tag IN LISTS tags)
    string(REGEX REPLACE "^\\[#(.*)\\]$" "\\1" name "${tag}")
    string(APPEND script "add_test(\"${kind}${name}\" \"${TESTS}\" "
      "--filenames-as-tags --warn NoTests \"${tag}${spec}\")\n"
      "set_tests_properties(\"${kind}${name}\" PROPERTIES "
      "WORKING_DIRECTORY \"${FOLDER}\" ${properties})\n")
  endforeach()
  file(APPEND ${OUTPUT}.new "${script}")
endfunction()

file(WRITE ${OUTPUT}.new "")
add_entries("" "~[mpi]~[nodes]~[long]~[.]" "")
# They fill the machine with processes whose last words are under a time-out.
add_entries("mpi." "[mpi]~[nodes]~[long]~[.]" "RUN_SERIAL ON")
add_entries("nodes." "[nodes]~[long]~[.]" "RUN_SERIAL ON LABELS nodes")
file(RENAME ${OUTPUT}.new ${OUTPUT})
