# Kernels of calibration and of the executor: the CPU backend, the passes of a
# layer on any backend, and the loader of modules. Needs a compiler only; oneDNN
# makes the CPU's GEMMs faster, a CUDA toolkit adds a backend.
set(PIPEWRIGHT_ONEDNN AUTO CACHE STRING
  "GEMMs of the CPU backend by oneDNN: AUTO (where found), ON, OFF")
set_property(CACHE PIPEWRIGHT_ONEDNN PROPERTY STRINGS AUTO ON OFF)

file(GLOB PIPEWRIGHT_KERNELS CONFIGURE_DEPENDS kernels/*.cc kernels/cpu/*.cc)
add_library(pipewright_kernels STATIC ${PIPEWRIGHT_KERNELS})
target_link_libraries(pipewright_kernels
  PUBLIC pipewright_options PRIVATE ${CMAKE_DL_LIBS})
# Square roots as one instruction; no result depends on it.
target_compile_options(pipewright_kernels PRIVATE
  -fno-math-errno $<$<CONFIG:Release>:-O3>)
set_target_properties(pipewright_kernels PROPERTIES
  POSITION_INDEPENDENT_CODE ON)

if(NOT PIPEWRIGHT_ONEDNN STREQUAL OFF)
  # Not by its CMake configuration: that one also demands OpenCL's headers.
  find_path(PIPEWRIGHT_ONEDNN_INCLUDE dnnl.hpp)
  find_library(PIPEWRIGHT_ONEDNN_LIBRARY NAMES dnnl libdnnl.so.2)
  if(PIPEWRIGHT_ONEDNN_INCLUDE AND PIPEWRIGHT_ONEDNN_LIBRARY)
    target_compile_definitions(pipewright_kernels PRIVATE PIPEWRIGHT_ONEDNN)
    # libpipewright_onednn.so, all that is linked with oneDNN and OpenMP.
    add_library(pipewright_onednn MODULE kernels/onednn/module.cc)
    target_include_directories(pipewright_onednn PRIVATE
      ${PIPEWRIGHT_ONEDNN_INCLUDE})
    target_link_libraries(pipewright_onednn PRIVATE
      pipewright_options ${PIPEWRIGHT_ONEDNN_LIBRARY} gomp)
    place_needed_module(pipewright_onednn pipewright)
  elseif(PIPEWRIGHT_ONEDNN STREQUAL ON)
    message(FATAL_ERROR "PIPEWRIGHT_ONEDNN is ON, but dnnl.hpp or libdnnl "
      "is not found (Debian: libdnnl-dev)")
  else()
    message(STATUS "oneDNN not found: the CPU backend uses its own GEMM")
  endif()
endif()

include(cmake/cuda.cmake OPTIONAL)
