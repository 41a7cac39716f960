# Objects that another build of the same sources has compiled, in
# PIPEWRIGHT_TEST_OBJECTS: what is not to be sanitized is not compiled twice.

# Moves those of the list `sources_name` that were compiled for `target` there to
# the list `objects_name`. What follows remains.
function(take_compiled target sources_name objects_name)
  cmake_path(RELATIVE_PATH CMAKE_CURRENT_SOURCE_DIR
    BASE_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE folder)
  set(kept)
  set(taken)
  foreach(source IN LISTS ${sources_name})
    cmake_path(ABSOLUTE_PATH source)
    set(file ${source})
    cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
    if(NOT PIPEWRIGHT_TEST_OBJECTS OR source IN_LIST ARGN)
      list(APPEND kept ${file})
      continue()
    endif()
    set(object
      ${PIPEWRIGHT_TEST_OBJECTS}/${folder}/CMakeFiles/${target}.dir/${source})
    cmake_path(SET object NORMALIZE ${object}${CMAKE_CXX_OUTPUT_EXTENSION})
    if(NOT EXISTS ${object} OR ${file} IS_NEWER_THAN ${object})
      message(FATAL_ERROR "PIPEWRIGHT_TEST_OBJECTS: ${object} is not there, or "
        "older than its source; build pipewright_tests there first")
    endif()
    set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT ON)
    list(APPEND taken ${object})
  endforeach()
  set(${sources_name} ${kept} PARENT_SCOPE)
  set(${objects_name} ${taken} PARENT_SCOPE)
endfunction()

# Links the objects behind those of `target`, whose inline functions are then the
# ones that are taken; all of them, as they register themselves. What follows is
# what they call.
function(link_compiled target objects)
  if(NOT objects)
    return()
  endif()
  add_library(${target}_compiled STATIC ${objects})
  set_target_properties(${target}_compiled PROPERTIES LINKER_LANGUAGE CXX)
  target_link_libraries(${target}_compiled PUBLIC ${ARGN})
  target_link_libraries(${target} PUBLIC
    "$<LINK_LIBRARY:WHOLE_ARCHIVE,${target}_compiled>")
endfunction()
