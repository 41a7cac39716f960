# Modules: libraries that the program loads when it needs them, because it must
# start without what they are linked with, or faster than with it. They stand
# beside the program in the build folder, and in lib/pipewright where it is
# installed; sim/base/load_module.h and kernels/module.h look there.
set(PIPEWRIGHT_MODULE_FOLDER lib/pipewright)

# Where a module is built, and where and with which component (cmake/packages.cmake)
# it is installed if it was built.
function(place_module target component)
  set_target_properties(${target} PROPERTIES
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}
    INSTALL_RPATH_USE_LINK_PATH ON)
  install(TARGETS ${target}
    LIBRARY DESTINATION ${PIPEWRIGHT_MODULE_FOLDER}
    COMPONENT ${component} OPTIONAL)
endfunction()

# For a module that every program needs: build_modules_with builds it too.
function(place_needed_module target component)
  place_module(${target} ${component})
  set_property(GLOBAL APPEND PROPERTY PIPEWRIGHT_NEEDED_MODULES ${target})
endfunction()

# `cmake --build --target program` builds what the program loads.
function(build_modules_with program)
  get_property(modules GLOBAL PROPERTY PIPEWRIGHT_NEEDED_MODULES)
  if(modules)
    add_dependencies(${program} ${modules})
  endif()
endfunction()
