# Run after a link of tests: writes OUTPUT, which gives ctest one entry for each test
# file and kind (see entries.cmake). TESTS is the binary, FOLDER where it runs.
# Optional: LEFT_OUT, a tag whose cases are no entry; PREFIX of the entries' names;
# TAGS, files with cases of none of which are no entry; ENVIRONMENT of the entries.
# Files of one name in two folders are one entry.
cmake_minimum_required(VERSION 3.25)
if(LEFT_OUT)
  set(left_out "~${LEFT_OUT}")
endif()

# Writes the tags of the files with cases of `spec` to `result`. Catch2 tags each
# case with "#" and the name of its file; the count of cases stands in front.
function(files_of spec result)
  execute_process(
    COMMAND ${TESTS} --filenames-as-tags --list-tags "${spec}"
    OUTPUT_VARIABLE listed WORKING_DIRECTORY ${FOLDER})
  string(REGEX MATCHALL "\\[#[^]\n]+\\]" tags "${listed}")
  set(${result} "${tags}" PARENT_SCOPE)
endfunction()

files_of("[long]" slow)
files_of("${TAGS}" wanted)

function(add_entries kind spec properties)
  files_of("${spec}" tags)
  set(script)
  foreach(tag IN LISTS tags)
    string(REGEX REPLACE "^\\[#(.*)\\]$" "\\1" name "${tag}")
    if(NOT tag IN_LIST wanted)
      continue()
    endif()
    # The longest first, so that others run beside them to the end.
    set(cost 0)
    if(tag IN_LIST slow)
      set(cost 50)
    endif()
    set(name "${PREFIX}${kind}${name}")
    string(APPEND script "add_test(\"${name}\" \"${TESTS}\" "
      "--filenames-as-tags --warn NoTests \"${tag}${spec}\")\n"
      "set_tests_properties(\"${name}\" PROPERTIES COST ${cost} "
      "WORKING_DIRECTORY \"${FOLDER}\" ENVIRONMENT \"${ENVIRONMENT}\" "
      "${properties})\n")
  endforeach()
  file(APPEND ${OUTPUT}.new "${script}")
endfunction()

file(WRITE ${OUTPUT}.new "")
add_entries("" "~[mpi]~[nodes]${left_out}~[.]" "")
# They fill the machine with processes whose last words are under a time-out.
add_entries("mpi." "[mpi]~[nodes]${left_out}~[.]" "RUN_SERIAL ON")
add_entries("nodes." "[nodes]${left_out}~[.]" "RUN_SERIAL ON LABELS nodes")
file(RENAME ${OUTPUT}.new ${OUTPUT})
