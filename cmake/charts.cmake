# uPlot draws the charts of pages. `npm ci` fetches it as its lock file says,
# where npm is there; without it pages show static pictures instead. Sets
# PIPEWRIGHT_CHARTS_FILES: its script, its style and its licence, or nothing.
option(PIPEWRIGHT_CHARTS "Fetch uPlot by npm for the charts of pages" ON)
set(PIPEWRIGHT_CHARTS_FILES "")
find_program(PIPEWRIGHT_NPM npm)
mark_as_advanced(PIPEWRIGHT_NPM)
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
  set(found "")
  if(EXISTS ${folder}/fetched)
    file(READ ${folder}/fetched found)
  endif()
  if(NOT found STREQUAL wanted)
    file(COPY ${web}/package.json ${web}/package-lock.json DESTINATION ${folder})
    execute_process(
      COMMAND ${PIPEWRIGHT_NPM} ci --ignore-scripts --no-audit --no-fund
      WORKING_DIRECTORY ${folder} TIMEOUT 120
      RESULT_VARIABLE failed OUTPUT_VARIABLE said ERROR_VARIABLE said)
    if(failed)
      message(STATUS "Charts of pages: static (npm ci failed: ${said})")
    else()
      set(uplot ${folder}/node_modules/uplot)
      # Names by which the program asks for them.
      file(COPY_FILE ${uplot}/dist/uPlot.iife.min.js ${folder}/uplot.js)
      file(COPY_FILE ${uplot}/dist/uPlot.min.css ${folder}/uplot-style.css)
      file(COPY_FILE ${uplot}/LICENSE ${folder}/uplot-licence.txt)
      file(READ ${uplot}/package.json package)
      string(JSON version GET "${package}" version)
      file(WRITE ${folder}/uplot-version.txt "${version}")
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
