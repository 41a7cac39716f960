# What `pipewright version` says of the build: the commit, written at each build
# if it has changed, and the compiler and libraries, which are known when CMake
# configures. As a script (cmake -P) it writes the file.
if(CMAKE_SCRIPT_MODE_FILE)
  set(COMMIT "")
  set(COMMIT_DATE "")
  execute_process(COMMAND git -C ${SOURCE} log -1 --format=%H\ %cs
    OUTPUT_VARIABLE head ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(head MATCHES "^([0-9a-f]+) ([-0-9]+)$")
    set(COMMIT ${CMAKE_MATCH_1})
    set(COMMIT_DATE ${CMAKE_MATCH_2})
    # Without untracked files, which a clone has for many reasons.
    execute_process(COMMAND git -C ${SOURCE} diff --quiet HEAD
      RESULT_VARIABLE changed ERROR_QUIET)
    if(changed EQUAL 1)
      string(APPEND COMMIT "+changes")
    endif()
  endif()
  configure_file(${TEMPLATE} ${OUTPUT} @ONLY)
  return()
endif()

# version_in(VARIABLE HEADER MACRO...): the macros of a header, with dots.
function(version_in variable header)
  set(parts "")
  foreach(macro IN LISTS ARGN)
    file(STRINGS ${header} line REGEX "^#define ${macro} +[0-9]+")
    string(REGEX REPLACE "^.* +" "" number "${line}")
    list(APPEND parts ${number})
  endforeach()
  list(JOIN parts "." parts)
  set(${variable} "${parts}" PARENT_SCOPE)
endfunction()

set(rows "")
function(library_row name version)
  if(NOT version)
    set(version "not built in")
  endif()
  set(rows "${rows}    {\"${name}\", \"${version}\"},\n" PARENT_SCOPE)
endfunction()
library_row("Abseil" "${absl_VERSION}")
library_row("CLI11" "${CLI11_VERSION}")
library_row("nlohmann-json" "${nlohmann_json_VERSION}")
library_row("protobuf" "${Protobuf_VERSION}")
library_row("SQLite" "${SQLite3_VERSION}")
library_row("yaml-cpp" "${yaml-cpp_VERSION}")
library_row("zlib" "${ZLIB_VERSION_STRING}")
library_row("SimGrid" "${SIMGRID_VERSION}")
set(onednn_version "")
if(TARGET pipewright_onednn)
  find_file(PIPEWRIGHT_ONEDNN_VERSION oneapi/dnnl/dnnl_version.h
    HINTS ${PIPEWRIGHT_ONEDNN_INCLUDE})
  version_in(onednn_version ${PIPEWRIGHT_ONEDNN_VERSION}
    DNNL_VERSION_MAJOR DNNL_VERSION_MINOR DNNL_VERSION_PATCH)
endif()
library_row("oneDNN" "${onednn_version}")
set(mpi_version "")
if(TARGET pipewright_mpi)
  set(mpi_version "standard ${MPI_CXX_VERSION}")
  foreach(folder IN LISTS MPI_CXX_INCLUDE_DIRS MPI_CXX_HEADER_DIR)
    if(EXISTS ${folder}/mpi.h)
      file(STRINGS ${folder}/mpi.h is_open_mpi REGEX "define OMPI_MAJOR_VERSION")
      if(is_open_mpi)
        version_in(open_mpi ${folder}/mpi.h OMPI_MAJOR_VERSION
          OMPI_MINOR_VERSION OMPI_RELEASE_VERSION)
        set(mpi_version "Open MPI ${open_mpi}")
      endif()
    endif()
  endforeach()
endif()
library_row("MPI" "${mpi_version}")
library_row("CUDA" "${CUDAToolkit_VERSION}")

set(LIBRARIES "${rows}")
set(COMPILER "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}")
set(COMMIT "@COMMIT@")
set(COMMIT_DATE "@COMMIT_DATE@")
set(template ${PROJECT_BINARY_DIR}/build_facts.cc.in)
set(facts ${PROJECT_BINARY_DIR}/build_facts.cc)
configure_file(${PROJECT_SOURCE_DIR}/cmake/build_facts.cc.in ${template} @ONLY)
add_custom_target(write_build_facts
  COMMAND ${CMAKE_COMMAND} -DSOURCE=${PROJECT_SOURCE_DIR}
    -DTEMPLATE=${template} -DOUTPUT=${facts}
    -P ${CMAKE_CURRENT_LIST_FILE}
  BYPRODUCTS ${facts} VERBATIM)
# A file of its own: a commit compiles nothing else anew.
add_library(pipewright_build_facts OBJECT ${facts})
target_link_libraries(pipewright_build_facts PUBLIC pipewright_options)
add_dependencies(pipewright_build_facts write_build_facts)
