# The Python module: python/module.cc linked with the objects of the program, which
# are compiled once for both. build/PRESET/python is what PYTHONPATH or
# `pip install --no-index --no-build-isolation` takes.
option(PIPEWRIGHT_PYTHON "The Python module, where pybind11 and Python are" ON)
set(PIPEWRIGHT_PYTHON_PROGRAM /usr/bin/python3 CACHE FILEPATH
  "Python that the module is built for")
if(PIPEWRIGHT_PYTHON AND NOT PIPEWRIGHT_SANITIZE AND NOT PIPEWRIGHT_FUZZERS)
  set(Python3_EXECUTABLE ${PIPEWRIGHT_PYTHON_PROGRAM})
  find_package(Python3 3.11 COMPONENTS Interpreter Development.Module QUIET)
  find_path(PIPEWRIGHT_PYBIND11 pybind11/pybind11.h)
  if(NOT Python3_Development.Module_FOUND OR NOT PIPEWRIGHT_PYBIND11)
    message(STATUS "Python module left out (Debian: pybind11-dev python3-dev)")
    set(PIPEWRIGHT_PYTHON OFF)
  endif()
else()
  set(PIPEWRIGHT_PYTHON OFF)
endif()

if(PIPEWRIGHT_PYTHON)
  set(CMAKE_POSITION_INDEPENDENT_CODE ON)
  # Nobody replaces a function of ours, so the compiler may still inline it.
  target_compile_options(pipewright_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fno-semantic-interposition>)
endif()

# add_python_module(): once all objects are there.
function(add_python_module)
  set(folder ${PROJECT_BINARY_DIR}/python)
  set(package ${folder}/pipewright)
  Python3_add_library(pipewright_python MODULE WITH_SOABI python/module.cc)
  target_include_directories(pipewright_python SYSTEM PRIVATE
    ${PIPEWRIGHT_PYBIND11})
  target_link_libraries(pipewright_python PRIVATE ${PIPEWRIGHT_ALL})
  # pybind11's classes must not be others'; the objects export nothing either.
  target_compile_options(pipewright_python PRIVATE -fvisibility=hidden)
  target_link_options(pipewright_python PRIVATE
    -Wl,--version-script=${PROJECT_SOURCE_DIR}/python/exported.map)
  set_target_properties(pipewright_python PROPERTIES
    OUTPUT_NAME _core LIBRARY_OUTPUT_DIRECTORY ${package}
    LINK_DEPENDS ${PROJECT_SOURCE_DIR}/python/exported.map)
  build_modules_with(pipewright_python)
  configure_file(python/pyproject.toml.in ${folder}/pyproject.toml @ONLY)
  foreach(file setup.py pipewright/__init__.py pipewright/__init__.pyi
      pipewright/py.typed)
    configure_file(python/${file} ${folder}/${file} COPYONLY)
  endforeach()
  configure_file(LICENSE ${folder}/LICENSE COPYONLY)
  # What the library loads stands beside it, here and in the wheel.
  if(TARGET pipewright_simgrid)
    add_custom_command(TARGET pipewright_python POST_BUILD
      COMMAND ${CMAKE_COMMAND} -E create_symlink
        $<TARGET_FILE:pipewright_simgrid>
        ${package}/$<TARGET_FILE_NAME:pipewright_simgrid> VERBATIM)
  endif()
  if(PIPEWRIGHT_TESTS)
    add_test(NAME python.module
      COMMAND ${Python3_EXECUTABLE} -m unittest -v module_test
      WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}/tests/python)
    set_tests_properties(python.module PROPERTIES TIMEOUT 600 ENVIRONMENT
      "PYTHONPATH=${folder};PYTHONDONTWRITEBYTECODE=1;\
PIPEWRIGHT_BINARY=$<TARGET_FILE:pipewright>;PIPEWRIGHT_WHEEL_SOURCE=${folder}")
  endif()
endfunction()
