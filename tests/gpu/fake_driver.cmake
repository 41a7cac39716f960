# Writes the rest of the fake driver: a function for every symbol of the
# toolkit's stub that fake_driver.cc does not define.
#   cmake -DNM=nm -DSTUB=libcuda.so -DDEFINED=fake_driver.cc -DOUTPUT=rest.cc
#         -P fake_driver.cmake
execute_process(COMMAND ${NM} -D --defined-only ${STUB}
  OUTPUT_VARIABLE symbols RESULT_VARIABLE failed)
if(failed)
  message(FATAL_ERROR "nm ${STUB} failed")
endif()
file(READ ${DEFINED} defined)
string(REGEX MATCHALL "[TW] cu[A-Za-z0-9_]+" symbols "${symbols}")
# CUDA_ERROR_STUB_LIBRARY, cuda.h.
set(text "extern \"C\" {\n")
foreach(symbol ${symbols})
  string(SUBSTRING ${symbol} 2 -1 name)
  if(NOT defined MATCHES "int ${name}\\(")
    string(APPEND text "int ${name}() { return 34; }\n")
  endif()
endforeach()
string(APPEND text "}\n")
file(WRITE ${OUTPUT} "${text}")
