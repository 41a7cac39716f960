# find_package(pipewright): targets pipewright::schedules, pipewright::simulation and
# pipewright::plan, with the headers pipewright/schedule.h, simulate.h and plan.h.
include(CMakeFindDependencyMacro)
find_dependency(absl)
include(${CMAKE_CURRENT_LIST_DIR}/pipewright-targets.cmake)
