# Packages of Debian: `cpack` in a build folder writes one for each component that
# is built there. packaging/make.sh builds them all.
#
# `cpack` takes what is built, as `cmake --install` does.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_CONTACT "The Pipewright authors <pipewright@localhost>")
set(CPACK_PACKAGE_HOMEPAGE_URL "")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_COMPONENTS_ALL "")

# package(COMPONENT NAME DEPENDS RECOMMENDS SUMMARY): what the package says of
# itself beside the libraries, which dpkg-shlibdeps finds.
function(package component name depends recommends summary)
  string(TOUPPER ${component} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${name} PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_PACKAGE_DEPENDS "${depends}" PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_PACKAGE_RECOMMENDS "${recommends}" PARENT_SCOPE)
  set(CPACK_COMPONENT_${upper}_DESCRIPTION "${summary}" PARENT_SCOPE)
  set(CPACK_COMPONENTS_ALL ${CPACK_COMPONENTS_ALL} ${component} PARENT_SCOPE)
  install(FILES ${PROJECT_SOURCE_DIR}/LICENSE RENAME copyright
    DESTINATION share/doc/${name} COMPONENT ${component})
endfunction()

set(same "pipewright (= ${PROJECT_VERSION})")
package(pipewright pipewright "" pipewright-simgrid
  "Simulates, plans and calibrates pipeline-parallel training")
install(FILES NOTICE CITATION.cff README.md CHANGELOG.md
  DESTINATION share/doc/pipewright COMPONENT pipewright)
install(DIRECTORY docs DESTINATION share/doc/pipewright COMPONENT pipewright)
if(TARGET pipewright_simgrid)
  package(simgrid pipewright-simgrid "${same}" ""
    "The engine simgrid of Pipewright")
endif()
if(TARGET pipewright_mpi)
  package(mpi pipewright-mpi "${same}" "" "Ranks of Pipewright as processes of MPI")
endif()
if(PIPEWRIGHT_HAS_CUDA)
  package(cuda pipewright-cuda "${same}" "" "Kernels of Pipewright on NVIDIA GPUs")
endif()
if(TARGET pipewright_library)
  package(library libpipewright-dev "libabsl-dev" pipewright-simgrid
    "The simulator of Pipewright as a library for C++")
endif()
if(PIPEWRIGHT_PYTHON)
  math(EXPR next "${Python3_VERSION_MINOR} + 1")
  package(python python3-pipewright
    "python3 (>= 3.${Python3_VERSION_MINOR}), python3 (<< 3.${next})"
    "python3-numpy, pipewright-simgrid" "The simulator of Pipewright as a module")
  # Debian's folder for packages of Python, whatever the version.
  set(folder lib/python3/dist-packages/pipewright)
  install(TARGETS pipewright_python LIBRARY DESTINATION ${folder}
    COMPONENT python OPTIONAL)
  install(FILES python/pipewright/__init__.py python/pipewright/__init__.pyi
    python/pipewright/py.typed DESTINATION ${folder} COMPONENT python)
endif()
include(CPack)
