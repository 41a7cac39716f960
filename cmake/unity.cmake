# Several files of one folder in one compilation, which reads the headers that
# they share once. For the presets whose time counts: demo, ci, dev. `release`
# compiles file by file, for clang-tidy, and shows what a file fails to include.
# Names in anonymous namespaces are therefore unique within a folder; not in
# schedules/ and topologies/, where each file is on its own.
option(PIPEWRIGHT_UNITY "Compile the files of a folder together" OFF)

# About so many, so that two compilers always have work, and none needs more than
# a GiB.
set(PIPEWRIGHT_UNITY_FILES 8)

# The header that most work touches. Files that see it are compiled together, and
# apart from the others, which a change of it then leaves alone.
set(PIPEWRIGHT_UNITY_HEADER sim/program/program.h)

# The templates of nlohmann's JSON take each compilation 3 to 7 s, so the few files
# that see them (tests/layering_test.cc names them) are compiled together; but for
# sim/base/json.cc, as Json means the other type in them.
set(PIPEWRIGHT_UNITY_JSON nlohmann/json.hpp)

# Is `header` among what `path` includes, or what that includes, as it was when
# CMake ran? An answer that has become wrong costs time only.
function(sees_header path header result)
  get_property(known GLOBAL PROPERTY sees_${header}_${path})
  if("${known}" STREQUAL "")
    set(known FALSE)
    set(file ${PROJECT_SOURCE_DIR}/${path})
    if(path STREQUAL header)
      set(known TRUE)
    elseif(EXISTS ${file})
      file(STRINGS ${file} includes
        REGEX "^#include (\"(sim|execute|calibrate)/|<nlohmann/)")
      foreach(include IN LISTS includes)
        string(REGEX REPLACE "^#include [\"<]([^\">]*)[\">].*" "\\1" next
          "${include}")
        sees_header(${next} ${header} known)
        if(known)
          break()
        endif()
      endforeach()
    endif()
    set_property(GLOBAL PROPERTY sees_${header}_${path} ${known})
  endif()
  set(${result} ${known} PARENT_SCOPE)
endfunction()

# Where `path` is compiled: with its folder, or with the files that see JSON.
function(unity_folder path result)
  cmake_path(GET path PARENT_PATH folder)
  string(MAKE_C_IDENTIFIER ${folder} folder)
  sees_header(${path} ${PIPEWRIGHT_UNITY_JSON} sees)
  if(sees)
    set(folder json)
  endif()
  sees_header(${path} ${PIPEWRIGHT_UNITY_HEADER} sees)
  if(sees)
    string(APPEND folder _program)
  endif()
  set(${result} ${folder} PARENT_SCOPE)
endfunction()

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
        OR path STREQUAL "sim/base/json.cc"
        OR path MATCHES "/simgrid_[a-z]+\\.cc$|_io\\.cc$")
      continue()
    endif()
    unity_folder(${path} folder)
    list(APPEND folders ${folder})
    list(APPEND files_${folder} ${source})
  endforeach()
  list(REMOVE_DUPLICATES folders)
  foreach(folder IN LISTS folders)
    list(LENGTH files_${folder} files)
    # One or two files over are no reason for one more.
    math(EXPR groups "(${files} + ${PIPEWRIGHT_UNITY_FILES} - 3)
      / ${PIPEWRIGHT_UNITY_FILES}")
    if(groups EQUAL 0)
      set(groups 1)
    endif()
    set(index 0)
    foreach(source IN LISTS files_${folder})
      math(EXPR group "${index} * ${groups} / ${files}")
      math(EXPR index "${index} + 1")
      set_source_files_properties(${source} PROPERTIES
        UNITY_GROUP ${folder}_${group})
    endforeach()
  endforeach()
  set_target_properties(${target} PROPERTIES
    UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
endfunction()
