# libpipewright_nccl.so, all that knows NCCL: the program loads it for
# `execute --transport nccl`, and starts without it. Needs nccl.h and the CUDA
# runtime's headers; NCCL is loaded at run time, and the CUDA runtime is that of
# libpipewright_cuda.so.
set(PIPEWRIGHT_NCCL AUTO CACHE STRING
  "The NCCL transport of execute: AUTO (where nccl.h is found), ON, OFF")
set_property(CACHE PIPEWRIGHT_NCCL PROPERTY STRINGS AUTO ON OFF)
# add_nccl_module(CUDA_INCLUDE...): with nccl.h from PIPEWRIGHT_NCCL_INCLUDE.
# tests/emulation calls it where there is no toolkit.
function(add_nccl_module)
  add_library(pipewright_nccl MODULE
    ${PROJECT_SOURCE_DIR}/execute/transport/nccl/module.cc
    ${PROJECT_SOURCE_DIR}/kernels/module.cc)
  target_include_directories(pipewright_nccl PRIVATE ${PROJECT_SOURCE_DIR})
  target_include_directories(pipewright_nccl SYSTEM PRIVATE
    ${ARGN} ${PIPEWRIGHT_NCCL_INCLUDE})
  target_link_libraries(pipewright_nccl PRIVATE
    pipewright_options ${CMAKE_DL_LIBS})
  set_target_properties(pipewright_nccl PROPERTIES
    CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
endfunction()

if(PIPEWRIGHT_NCCL STREQUAL "OFF")
  return()
endif()

if(PIPEWRIGHT_HAS_CUDA)
  # Python's wheels have headers and libnccl.so.2 in folders of their own.
  file(GLOB pipewright_nccl_wheels
    $ENV{VIRTUAL_ENV}/lib/python3*/site-packages/nvidia/nccl/include
    /usr/local/lib/python3*/*-packages/nvidia/nccl/include
    /usr/lib/python3*/*-packages/nvidia/nccl/include
    $ENV{HOME}/.local/lib/python3*/site-packages/nvidia/nccl/include)
  find_path(PIPEWRIGHT_NCCL_INCLUDE nccl.h
    HINTS ${CUDAToolkit_INCLUDE_DIRS} ENV NCCL_PATH ENV NCCL_HOME
      ${pipewright_nccl_wheels}
    PATH_SUFFIXES include)
endif()
if(NOT PIPEWRIGHT_HAS_CUDA OR NOT PIPEWRIGHT_NCCL_INCLUDE)
  set(reason "no nccl.h")
  if(NOT PIPEWRIGHT_HAS_CUDA)
    set(reason "no CUDA toolkit")
  endif()
  if(PIPEWRIGHT_NCCL STREQUAL "ON")
    message(FATAL_ERROR "PIPEWRIGHT_NCCL is ON, but there is ${reason}")
  endif()
  message(STATUS "NCCL: ${reason}, the NCCL transport is not built")
  return()
endif()

add_nccl_module(${CUDAToolkit_INCLUDE_DIRS})
set_target_properties(pipewright_nccl PROPERTIES
  BUILD_RPATH "${CUDAToolkit_LIBRARY_DIR};${PIPEWRIGHT_NCCL_INCLUDE}/../lib"
  INSTALL_RPATH
    "$ORIGIN;${CUDAToolkit_LIBRARY_DIR};${PIPEWRIGHT_NCCL_INCLUDE}/../lib")
place_module(pipewright_nccl cuda)
message(STATUS "NCCL: ${PIPEWRIGHT_NCCL_INCLUDE}")
