# pipewright_sanitized: the files of PIPEWRIGHT_EXPOSED once more, with address and
# undefined-behaviour sanitizers. tests/CMakeLists.txt links them with the objects
# of everything else, as `ci` has compiled them. `./setup.sh sanitize` sanitizes all.
set(sources ${PIPEWRIGHT_SIM} ${PIPEWRIGHT_CALIBRATE} ${PIPEWRIGHT_TRANSPORT}
  ${PIPEWRIGHT_KERNELS})
set(exposed)
foreach(source IN LISTS sources)
  cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${PROJECT_SOURCE_DIR}
    OUTPUT_VARIABLE path)
  part_of(${path} part)
  if(part MATCHES "EXPOSED")
    list(APPEND exposed ${source})
  endif()
endforeach()

set(PIPEWRIGHT_SANITIZED_FLAGS -fsanitize=address,undefined)
add_library(pipewright_sanitized OBJECT ${exposed})
target_link_libraries(pipewright_sanitized
  PUBLIC pipewright_options pipewright_libraries Threads::Threads
  PRIVATE pipewright_proto)
add_dependencies(pipewright_sanitized config_rows)
target_compile_definitions(pipewright_sanitized PRIVATE
  $<TARGET_PROPERTY:pipewright_kernels,COMPILE_DEFINITIONS>)
target_compile_options(pipewright_sanitized PRIVATE
  -O1 -g1 -fno-omit-frame-pointer -fno-sanitize-recover=undefined
  -fno-math-errno -Wno-maybe-uninitialized ${PIPEWRIGHT_SANITIZED_FLAGS})
precompile_common_headers(pipewright_sanitized)
compile_folders_together(pipewright_sanitized)

# The objects that are linked beside them: those of everything else.
set(PIPEWRIGHT_REST)
foreach(part pipewright_sim pipewright_calibrate pipewright_execute
    pipewright_execute_report pipewright_transport pipewright_proto
    pipewright_cli pipewright_build_facts)
  list(APPEND PIPEWRIGHT_REST
    $<FILTER:$<TARGET_OBJECTS:${part}>,EXCLUDE,/unity_EXPOSED_>)
endforeach()
