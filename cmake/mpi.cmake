# libpipewright_mpi.so, all that is linked with MPI: the program loads it when
# mpirun has started it, and starts without it. It takes a second to build, and
# nobody who has mpirun should find it missing.
set(PIPEWRIGHT_MPI AUTO CACHE STRING
  "The MPI transport of execute: AUTO (where MPI is found), ON, OFF")
set_property(CACHE PIPEWRIGHT_MPI PROPERTY STRINGS AUTO ON OFF)

if(NOT PIPEWRIGHT_MPI STREQUAL OFF)
  find_package(MPI COMPONENTS CXX)
  if(MPI_CXX_FOUND)
    add_library(pipewright_mpi MODULE execute/transport/mpi/module.cc)
    # MPI's C interface only; its old C++ one would need a library of its own.
    target_compile_definitions(pipewright_mpi PRIVATE
      OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
    # Its functions are looked up by name (see module.cc).
    target_link_options(pipewright_mpi PRIVATE -Wl,--no-as-needed)
    target_link_libraries(pipewright_mpi PRIVATE
      pipewright_options MPI::MPI_CXX ${CMAKE_DL_LIBS})
    place_needed_module(pipewright_mpi mpi)
  elseif(PIPEWRIGHT_MPI STREQUAL ON)
    message(FATAL_ERROR "PIPEWRIGHT_MPI is ON, but MPI is not found "
      "(Debian: libopenmpi-dev openmpi-bin)")
  else()
    message(STATUS "MPI not found: execute runs ranks as threads only")
  endif()
endif()
