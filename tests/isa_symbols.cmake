# SPDX-License-Identifier: Apache-2.0
#
# Objects compiled for one instruction set must not define weak symbols (inline functions, template instances):
# the linker keeps one copy for the whole program, and that copy may not run on this CPU. A symbol with the
# instruction set in its name, as tlt::ops::avx2::f, has no other copy and is fine.
# cmake "-DOBJECTS=a.o;b.o" -DNM=nm "-DISAS=avx2;avx512" -P tests/isa_symbols.cmake
cmake_minimum_required(VERSION 3.25)
list(JOIN ISAS "|" isas)
foreach(object IN LISTS OBJECTS)
  execute_process(COMMAND "${NM}" -C --defined-only "${object}" OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "[^\n]* [VWu] [^\n]*" weak "${symbols}")
  list(FILTER weak EXCLUDE REGEX "::(${isas})::")
  if(weak)
    list(JOIN weak "\n  " text)
    message(SEND_ERROR "${object} defines weak symbols; make them static or constexpr, or keep them out of the file:\n  ${text}")
  endif()
endforeach()
