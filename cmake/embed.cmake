# embed_files(OUT Function FILE...): writes a C++ file that defines
#   const std::vector<std::pair<std::string, std::string>>& Function();
# in namespace pipewright, with (name, content) of each FILE, and puts its
# path into OUT. The name is without ending; below experiments/papers it
# includes the folder.
function(embed_files out function)
  set(target ${PROJECT_BINARY_DIR}/embedded/${function}.cc)
  add_custom_command(
    OUTPUT ${target}
    COMMAND ${CMAKE_COMMAND} -DFUNCTION=${function} -DOUTPUT=${target}
      "-DFILES=${ARGN}" -P ${PROJECT_SOURCE_DIR}/cmake/embed_script.cmake
    DEPENDS ${ARGN} ${PROJECT_SOURCE_DIR}/cmake/embed_script.cmake
    VERBATIM)
  set(${out} ${target} PARENT_SCOPE)
endfunction()
