# What programs outside of this repository link: the simulator as one shared
# library, as a static one would drop the objects that only register, and the headers
# of pipewright/ with those of sim/ that they forward. find_package(pipewright) gives
# a target for each. It is linked of the objects of the Python module, which are
# position-independent.
if(NOT PIPEWRIGHT_PYTHON)
  return()
endif()
include(CMakePackageConfigHelpers)

add_library(pipewright_library SHARED)
target_link_libraries(pipewright_library PRIVATE pipewright_sim pipewright_proto)
target_compile_features(pipewright_library INTERFACE cxx_std_20)
# Its headers name types of Abseil.
target_link_libraries(pipewright_library INTERFACE
  absl::flat_hash_map absl::status absl::statusor absl::strings)
set_target_properties(pipewright_library PROPERTIES
  LINKER_LANGUAGE CXX OUTPUT_NAME pipewright EXPORT_NAME library
  SOVERSION ${PROJECT_VERSION})
target_include_directories(pipewright_library
  INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/pipewright>)
set(targets pipewright_library)
foreach(part schedules simulation plan)
  add_library(pipewright_${part} INTERFACE)
  target_link_libraries(pipewright_${part} INTERFACE pipewright_library)
  set_target_properties(pipewright_${part} PROPERTIES EXPORT_NAME ${part})
  list(APPEND targets pipewright_${part})
endforeach()

set(folder ${CMAKE_INSTALL_LIBDIR}/cmake/pipewright)
install(TARGETS ${targets} EXPORT pipewright-targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library)
install(EXPORT pipewright-targets NAMESPACE pipewright::
  DESTINATION ${folder} COMPONENT library)
write_basic_package_version_file(
  ${PROJECT_BINARY_DIR}/pipewright-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES cmake/pipewright-config.cmake
  ${PROJECT_BINARY_DIR}/pipewright-config-version.cmake
  DESTINATION ${folder} COMPONENT library)
install(DIRECTORY pipewright sim
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/pipewright COMPONENT library
  FILES_MATCHING PATTERN "*.h" PATTERN cli EXCLUDE PATTERN proto EXCLUDE
  PATTERN web EXCLUDE)
install(FILES ${PIPEWRIGHT_CONFIG}/config_choices.h
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/pipewright/sim/config
  COMPONENT library)
