# uPlot draws the charts of pages. `npm ci` fetches it as its lock file says,
# where npm is there; without it pages show static pictures instead. A fetch that
# failed is tried again where the lock file is another one, in CI, or with
# -DPIPEWRIGHT_CHARTS_RETRY=ON, which counts for one configuration: without a
# network each try costs seconds. Sets PIPEWRIGHT_CHARTS_FILES: its script, its
# style and its licence, or nothing.
option(PIPEWRIGHT_CHARTS "Fetch uPlot by npm for the charts of pages" ON)
option(PIPEWRIGHT_CHARTS_RETRY "Fetch uPlot again though it failed before" OFF)
set(PIPEWRIGHT_CHARTS_FILES "")
find_program(PIPEWRIGHT_NPM npm)
mark_as_advanced(PIPEWRIGHT_NPM)
set(how_to_retry "to try again: cmake -DPIPEWRIGHT_CHARTS_RETRY=ON \
${PROJECT_BINARY_DIR}")

# Into `folder`, with the names by which the program asks for the files; sets
# `failed` to why not, or to nothing, and `said` to what npm said of it.
function(fetch_uplot web folder)
  set(said "" PARENT_SCOPE)
  file(COPY ${web}/package.json ${web}/package-lock.json DESTINATION ${folder})
  set(retries --fetch-retries 1 --fetch-retry-mintimeout 1000
    --fetch-retry-maxtimeout 2000)
  if("$ENV{CI}" STREQUAL "true")
    set(retries --fetch-retries 5)
  endif()
  execute_process(
    COMMAND ${PIPEWRIGHT_NPM} ci --ignore-scripts --no-audit --no-fund
      --prefer-offline ${retries}
    WORKING_DIRECTORY ${folder} TIMEOUT 120
    RESULT_VARIABLE failed OUTPUT_VARIABLE said ERROR_VARIABLE said)
  if(failed)
    set(failed "npm ci failed" PARENT_SCOPE)
    set(said "\n${said}" PARENT_SCOPE)
    return()
  endif()
  set(uplot ${folder}/node_modules/uplot)
  foreach(file dist/uPlot.iife.min.js dist/uPlot.min.css LICENSE package.json)
    if(NOT EXISTS ${uplot}/${file})
      set(failed "npm ci left no ${uplot}/${file}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  file(COPY_FILE ${uplot}/dist/uPlot.iife.min.js ${folder}/uplot.js)
  file(COPY_FILE ${uplot}/dist/uPlot.min.css ${folder}/uplot-style.css)
  file(COPY_FILE ${uplot}/LICENSE ${folder}/uplot-licence.txt)
  file(READ ${uplot}/package.json package)
  string(JSON version GET "${package}" version)
  file(WRITE ${folder}/uplot-version.txt "${version}")
  set(failed "" PARENT_SCOPE)
endfunction()

# The hash of the lock file that `file` is about; nothing where it is not there.
function(read_hash file out)
  set(hash "")
  if(EXISTS ${file})
    file(READ ${file} hash)
  endif()
  set(${out} "${hash}" PARENT_SCOPE)
endfunction()

if(NOT PIPEWRIGHT_CHARTS)
  message(STATUS "Charts of pages: static (PIPEWRIGHT_CHARTS is off)")
elseif(NOT PIPEWRIGHT_NPM)
  message(STATUS "Charts of pages: static (no npm)")
else()
  set(web ${PROJECT_SOURCE_DIR}/sim/report/web)
  set(folder ${PROJECT_BINARY_DIR}/charts)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
    ${web}/package.json ${web}/package-lock.json)
  file(SHA256 ${web}/package-lock.json wanted)
  read_hash(${folder}/fetched found)
  read_hash(${folder}/failed failed_before)
  set(try_again OFF)
  if(PIPEWRIGHT_CHARTS_RETRY OR "$ENV{CI}" STREQUAL "true"
      OR NOT failed_before STREQUAL wanted)
    set(try_again ON)
  endif()
  if(NOT found STREQUAL wanted AND NOT try_again)
    message(STATUS "Charts of pages: static (npm ci failed before; "
      "${how_to_retry})")
  elseif(NOT found STREQUAL wanted)
    fetch_uplot(${web} ${folder})
    if(failed)
      file(WRITE ${folder}/failed ${wanted})
      message(STATUS "Charts of pages: static (${failed}; ${how_to_retry})${said}")
    else()
      file(REMOVE ${folder}/failed)
      file(WRITE ${folder}/fetched ${wanted})
      set(found ${wanted})
    endif()
  endif()
  if(found STREQUAL wanted)
    file(READ ${folder}/uplot-version.txt version)
    message(STATUS "Charts of pages: uPlot ${version}")
    set(PIPEWRIGHT_CHARTS_FILES ${folder}/uplot.js ${folder}/uplot-style.css
      ${folder}/uplot-licence.txt ${folder}/uplot-version.txt)
  endif()
endif()
set(PIPEWRIGHT_CHARTS_RETRY OFF CACHE BOOL
  "Fetch uPlot again though it failed before" FORCE)
