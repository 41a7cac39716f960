# The CUDA backend of kernels/: libpipewright_cuda.so beside the binary, which
# loads it at run time. PIPEWRIGHT_CUDA: AUTO builds it where a toolkit is
# found and says so, ON fails without one, OFF does not look.
set(PIPEWRIGHT_CUDA AUTO CACHE STRING "CUDA kernels: AUTO, ON or OFF")
set_property(CACHE PIPEWRIGHT_CUDA PROPERTY STRINGS AUTO ON OFF)
if(NOT PIPEWRIGHT_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR
    "PIPEWRIGHT_CUDA is \"${PIPEWRIGHT_CUDA}\"; AUTO, ON and OFF are allowed")
endif()
set(PIPEWRIGHT_HAS_CUDA FALSE)
if(PIPEWRIGHT_CUDA STREQUAL "OFF")
  return()
endif()
if(PIPEWRIGHT_CUDA STREQUAL "AUTO" AND PIPEWRIGHT_SANITIZE)
  message(STATUS "CUDA: not built with sanitizers")
  return()
endif()

# Says why there are no CUDA kernels; an error where they were demanded.
function(pipewright_no_cuda reason)
  if(PIPEWRIGHT_CUDA STREQUAL "ON")
    message(FATAL_ERROR "PIPEWRIGHT_CUDA is ON, but ${reason}")
  endif()
  message(STATUS "CUDA: ${reason}, the CUDA kernels are not built")
endfunction()

# nvcc is often not on PATH.
if(NOT CMAKE_CUDA_COMPILER)
  find_program(PIPEWRIGHT_NVCC nvcc
    HINTS ENV CUDACXX ENV CUDA_HOME ENV CUDA_PATH /usr/local/cuda
    PATH_SUFFIXES bin)
  if(NOT PIPEWRIGHT_NVCC)
    pipewright_no_cuda("there is no nvcc")
    return()
  endif()
  set(CMAKE_CUDA_COMPILER ${PIPEWRIGHT_NVCC})
endif()
execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --version
  OUTPUT_VARIABLE pipewright_nvcc_version ERROR_QUIET)
if(NOT pipewright_nvcc_version MATCHES "release ([0-9]+)"
    OR CMAKE_MATCH_1 LESS 12)
  pipewright_no_cuda("${CMAKE_CUDA_COMPILER} is not nvcc 12 or later")
  unset(CMAKE_CUDA_COMPILER)
  return()
endif()
# Before the language is enabled: what is unset there becomes nvcc's default.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(pipewright_choose_architectures TRUE)
  set(CMAKE_CUDA_ARCHITECTURES 80)
endif()
# From here on a toolkit is there, and one that does not work is an error.
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)
find_path(PIPEWRIGHT_CUBLASLT_INCLUDE cublasLt.h
  HINTS ${CUDAToolkit_INCLUDE_DIRS} ENV CUBLAS_PATH PATH_SUFFIXES include)
if(NOT PIPEWRIGHT_CUBLASLT_INCLUDE)
  pipewright_no_cuda("there is no cublasLt.h")
  return()
endif()
find_path(PIPEWRIGHT_CUDNN_INCLUDE cudnn_graph.h
  HINTS ${CUDAToolkit_INCLUDE_DIRS} ENV CUDNN_PATH PATH_SUFFIXES include)

# sm_80, sm_90a, sm_100 as far as this nvcc knows them, and PTX of the last one
# for what comes after.
if(pipewright_choose_architectures)
  execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --list-gpu-arch
    OUTPUT_VARIABLE pipewright_known)
  set(CMAKE_CUDA_ARCHITECTURES)
  set(pipewright_last)
  foreach(pair 80:80 90:90a 100:100)
    string(REPLACE ":" ";" pair ${pair})
    list(GET pair 0 number)
    list(GET pair 1 name)
    if(pipewright_known MATCHES "compute_${number}[^0-9]")
      list(APPEND CMAKE_CUDA_ARCHITECTURES ${name}-real)
      set(pipewright_last ${number})
    endif()
  endforeach()
  list(APPEND CMAKE_CUDA_ARCHITECTURES ${pipewright_last}-virtual)
endif()
# CMake 3.25 does not know nvcc's -std=c++20; the .cu files do with 17.
set(CMAKE_CUDA_STANDARD 17)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)

# Everything is loaded by name at run time, so the library starts without
# cuBLASLt, cuDNN or a driver; its run path says where this machine has them.
file(GLOB PIPEWRIGHT_CUDA_SOURCES CONFIGURE_DEPENDS
  kernels/cuda/*.cc kernels/cuda/*.cu)
if(NOT PIPEWRIGHT_CUDNN_INCLUDE)
  message(STATUS "CUDA: no cudnn_graph.h, built without cuDNN's attention")
  list(FILTER PIPEWRIGHT_CUDA_SOURCES EXCLUDE REGEX "sdpa_(graph|build)\\.cc$")
endif()
add_library(pipewright_cuda SHARED ${PIPEWRIGHT_CUDA_SOURCES})
target_include_directories(pipewright_cuda PRIVATE ${PROJECT_SOURCE_DIR})
target_include_directories(pipewright_cuda SYSTEM PRIVATE
  ${CUDAToolkit_INCLUDE_DIRS} ${PIPEWRIGHT_CUBLASLT_INCLUDE})
if(PIPEWRIGHT_CUDNN_INCLUDE)
  target_include_directories(pipewright_cuda SYSTEM PRIVATE
    ${PIPEWRIGHT_CUDNN_INCLUDE})
  target_compile_definitions(pipewright_cuda PRIVATE PIPEWRIGHT_CUDNN)
endif()
target_link_libraries(pipewright_cuda PRIVATE
  CUDA::cudart_static ${CMAKE_DL_LIBS})
target_compile_options(pipewright_cuda PRIVATE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wshadow
    -Wno-missing-field-initializers>
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra
    --Wno-deprecated-gpu-targets>)
if(PIPEWRIGHT_WERROR)
  target_compile_options(pipewright_cuda PRIVATE
    $<$<COMPILE_LANGUAGE:CXX>:-Werror>
    $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings>)
endif()
# sqrt() need not set errno: the loop over parameters is vectorised.
set_source_files_properties(kernels/cuda/adam_host.cc PROPERTIES
  COMPILE_OPTIONS "-O3;-fno-math-errno;-fno-trapping-math")
set_target_properties(pipewright_cuda PROPERTIES
  CXX_VISIBILITY_PRESET hidden
  CUDA_VISIBILITY_PRESET hidden
  VISIBILITY_INLINES_HIDDEN ON
  BUILD_RPATH "${CUDAToolkit_LIBRARY_DIR}"
  INSTALL_RPATH "$ORIGIN;${CUDAToolkit_LIBRARY_DIR}")
# Nothing of the static runtimes shows either.
set(exports ${PROJECT_SOURCE_DIR}/kernels/cuda/exports.map)
target_link_options(pipewright_cuda PRIVATE
  -static-libstdc++ -static-libgcc -Wl,--version-script=${exports}
  -Wl,--no-undefined)
set_target_properties(pipewright_cuda PROPERTIES LINK_DEPENDS ${exports})
place_module(pipewright_cuda cuda)
set(PIPEWRIGHT_HAS_CUDA TRUE)
message(STATUS "CUDA: ${CMAKE_CUDA_COMPILER} for ${CMAKE_CUDA_ARCHITECTURES}, "
  "cuDNN headers: ${PIPEWRIGHT_CUDNN_INCLUDE}")
