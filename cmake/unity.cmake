# Several files of one folder in one compilation, which reads the headers that
# they share once. For the presets whose time counts: demo, ci, dev. `release`
# compiles file by file, for clang-tidy, and shows what a file fails to include.
# Names in anonymous namespaces are therefore unique within a folder; not in
# schedules/ and topologies/, where each file is on its own.
option(PIPEWRIGHT_UNITY "Compile the files of a folder together" OFF)

# So that two compilers always have work, and none needs more than a GiB.
set(PIPEWRIGHT_UNITY_FILES 8)

function(compile_folders_together target)
  if(NOT PIPEWRIGHT_UNITY)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${PROJECT_SOURCE_DIR}
      OUTPUT_VARIABLE path)
    # Headers of SimGrid and protobuf are no others' business.
    if(NOT path MATCHES "^(sim|calibrate|execute)/.*\\.cc$"
        OR path MATCHES "^sim/reproduce/"
        OR path MATCHES "/simgrid_[a-z]+\\.cc$|_io\\.cc$")
      continue()
    endif()
    cmake_path(GET path PARENT_PATH folder)
    string(MAKE_C_IDENTIFIER ${folder} folder)
    if(NOT DEFINED count_${folder})
      set(count_${folder} 0)
    endif()
    math(EXPR group "${count_${folder}} / ${PIPEWRIGHT_UNITY_FILES}")
    math(EXPR count_${folder} "${count_${folder}} + 1")
    set_source_files_properties(${source} PROPERTIES
      UNITY_GROUP ${folder}_${group})
  endforeach()
  set_target_properties(${target} PROPERTIES
    UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
endfunction()
