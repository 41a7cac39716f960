# libpipewright_simgrid.so, all that is linked with SimGrid.
if(NOT PIPEWRIGHT_SIMGRID)
  return()
endif()
find_package(PkgConfig REQUIRED)
# SimGrid 3.32 ships no CMake configuration.
pkg_check_modules(SIMGRID REQUIRED IMPORTED_TARGET simgrid)

add_library(pipewright_simgrid MODULE sim/engine/simgrid_module.cc)
target_link_libraries(pipewright_simgrid PRIVATE
  pipewright_options PkgConfig::SIMGRID)
place_needed_module(pipewright_simgrid simgrid)
