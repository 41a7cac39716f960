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

# embed_binaries(OUT Function FILE...): the same for files of any bytes, which
# the assembler takes over as they are. Function() returns
#   const std::vector<std::pair<std::string, absl::string_view>>&
# with the part of the name before the first dot.
function(embed_binaries out function)
  set(target ${PROJECT_BINARY_DIR}/embedded/${function}.cc)
  set(blobs "")
  set(names "")
  set(rows "")
  set(number 0)
  foreach(file IN LISTS ARGN)
    get_filename_component(name ${file} NAME_WE)
    set(symbol pipewright_${function}_${number})
    string(APPEND blobs "asm(\".section .rodata\\n.global ${symbol}\\n\"\n"
      "    \"${symbol}:\\n.incbin \\\"${file}\\\"\\n\"\n"
      "    \".global ${symbol}_end\\n${symbol}_end:\\n.byte 0\\n.previous\\n\");\n")
    string(APPEND names "extern const char ${symbol}[];\n"
      "extern const char ${symbol}_end[];\n")
    string(APPEND rows "      {\"${name}\", {${symbol},\n"
      "       static_cast<size_t>(${symbol}_end - ${symbol})}},\n")
    math(EXPR number "${number} + 1")
  endforeach()
  set(type "std::vector<std::pair<std::string, absl::string_view>>")
  file(CONFIGURE OUTPUT ${target} CONTENT "#include <string>
#include <utility>
#include <vector>

#include \"absl/strings/string_view.h\"

@blobs@
extern \"C\" {
@names@}

namespace pipewright {

const @type@& @function@();

const @type@& @function@() {
  static const @type@ files = {
@rows@  };
  return files;
}

}  // namespace pipewright
" @ONLY)
  set_source_files_properties(${target} PROPERTIES OBJECT_DEPENDS "${ARGN}"
    SKIP_UNITY_BUILD_INCLUSION ON)
  set(${out} ${target} PARENT_SCOPE)
endfunction()
