# Several files of one folder in one compilation, which reads the headers that
# they share once. For the presets whose time counts: demo, ci, dev. `release`
# compiles file by file, for clang-tidy, and shows what a file fails to include.
#
# A schedule, a shape, a table and a test has a namespace with the file's name
# around its anonymous one (tests/repository_test.cc). Elsewhere names in anonymous
# namespaces are unique within a compilation.
option(PIPEWRIGHT_UNITY "Compile the files of a folder together" OFF)

# Bytes of source in one compilation: two compilers always have work, and none
# needs more than a GiB.
set(PIPEWRIGHT_UNITY_BYTES 150000)

# What words, draws or compares a result, reads a file that somebody brought, or
# waits for kernels that it times. It runs once a command, and takes 20 to 40 %
# less to compile at -O1.
set(PIPEWRIGHT_LIGHT "(calibrate|sim/(report|profile|foreign)|\
sim/analysis/(reproduce|plot|explain|diagnose|compare))/\
|execute/report/|sim/analysis/search/memory_advice\\.cc$\
|sim/config/(.*_(text|texts|reference)|unused_fields|flags|check_texts)\\.cc$")

# What can corrupt memory: readers of files from outside, and what works on arrays
# by index. The sanitized tests of `ci` compile these files with sanitizers.
set(PIPEWRIGHT_EXPOSED "sim/(engine|program|schedule|trace|profile)/\
|sim/model/(hf_config|lengths|minibatch_time|packer|partition|pass_work)\\.cc$\
|sim/config/config_(io|mapping|message|textproto|tree|values)\\.cc$\
|sim/foreign/(given_keys|key_[a-z]*|layer_pattern|read_args|shell_words|titan)\\.cc$\
|sim/analysis/diagnose/(read_table|table_rows|kineto_job|trace_job)\\.cc$\
|sim/analysis/compare/(foreign_trace|log_report|run_summary)\\.cc$\
|sim/analysis/plot/read_points\\.cc$\
|sim/analysis/sweep/(reader|expression|sweep_file)\\.cc$\
|calibrate/(import|kineto)_[a-z_]*\\.cc$\
|execute/transport/[a-z_]*\\.cc$|kernels/cpu/")

# part_of(PATH RESULT): EXPOSED, LIGHT, EXPOSED_LIGHT or PLAIN.
function(part_of path result)
  set(part)
  if(path MATCHES "^(${PIPEWRIGHT_EXPOSED})")
    list(APPEND part EXPOSED)
  endif()
  if(path MATCHES "^(${PIPEWRIGHT_LIGHT})")
    list(APPEND part LIGHT)
  endif()
  list(JOIN part _ part)
  if(NOT part)
    set(part PLAIN)
  endif()
  set(${result} ${part} PARENT_SCOPE)
endfunction()

# set_light(FILE...): FILE is optimized less in a build for use.
function(set_light)
  set_source_files_properties(${ARGN} PROPERTIES
    COMPILE_OPTIONS $<$<CONFIG:Release>:-O1>)
endfunction()

# compile_folders_together(TARGET): groups are the same for each target of this
# directory. One group holds files of one folder and one part.
function(compile_folders_together target)
  get_target_property(sources ${target} SOURCES)
  set(groups)
  foreach(source IN LISTS sources)
    cmake_path(ABSOLUTE_PATH source)
    cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${PROJECT_SOURCE_DIR}
      OUTPUT_VARIABLE path)
    if(NOT path MATCHES "\\.cc$" OR path MATCHES "^(build|kernels|\\.\\.)/")
      continue()
    endif()
    part_of(${path} part)
    if(NOT PIPEWRIGHT_UNITY)
      if(part MATCHES LIGHT)
        set_light(${source})
      endif()
      continue()
    endif()
    cmake_path(GET path PARENT_PATH folder)
    string(MAKE_C_IDENTIFIER "${part}_${folder}" group)
    # Headers of SimGrid and protobuf are no others' business.
    if(path MATCHES "/simgrid_[a-z]+\\.cc$")
      string(APPEND group _simgrid)
    elseif(path MATCHES
        "_io\\.cc$|/config_(mapping|message|textproto|values)\\.cc$")
      string(APPEND group _proto)
    endif()
    file(SIZE ${source} bytes)
    set(part_${group} ${part})
    if(NOT group IN_LIST groups)
      list(APPEND groups ${group})
      set(bytes_${group} 0)
    endif()
    list(APPEND files_${group} ${source})
    math(EXPR bytes_${group} "${bytes_${group}} + ${bytes}")
    set(bytes_of_${source} ${bytes})
  endforeach()
  if(NOT PIPEWRIGHT_UNITY)
    return()
  endif()
  get_target_property(binary ${target} BINARY_DIR)
  foreach(group IN LISTS groups)
    # As many of the same size as fit, and no small one at the end.
    math(EXPR units "(${bytes_${group}} + ${PIPEWRIGHT_UNITY_BYTES} / 2)
      / ${PIPEWRIGHT_UNITY_BYTES}")
    if(units EQUAL 0)
      set(units 1)
    endif()
    set(before 0)
    foreach(source IN LISTS files_${group})
      math(EXPR unit "${before} * ${units} / ${bytes_${group}}")
      math(EXPR before "${before} + ${bytes_of_${source}}")
      set_source_files_properties(${source} PROPERTIES
        UNITY_GROUP ${group}_${unit})
      if(part_${group} MATCHES LIGHT)
        set_light(${binary}/CMakeFiles/${target}.dir/Unity/unity_${group}_${unit}_cxx.cxx)
      endif()
    endforeach()
  endforeach()
  set_target_properties(${target} PROPERTIES
    UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
endfunction()
