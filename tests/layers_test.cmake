# SPDX-License-Identifier: Apache-2.0
#
# Does the layers check see what it is for? Plants each fault in a small tree and expects layers.cmake to name it.
cmake_minimum_required(VERSION 3.25)
set(failures "")

# expect(name wanted): runs the check on SCRATCH/src; `wanted` is a regular expression, or "" for no fault.
function(expect name wanted)
  execute_process(COMMAND "${CMAKE_COMMAND}" -DSOURCE=${SCRATCH}/src -DLAYERS=${SCRATCH}/layers.txt
    -P "${CMAKE_CURRENT_LIST_DIR}/layers.cmake" RESULT_VARIABLE code ERROR_VARIABLE text OUTPUT_QUIET)
  string(REGEX REPLACE "[ \n]+" " " text "${text}")
  if((wanted STREQUAL "" AND code) OR (NOT wanted STREQUAL "" AND (NOT code OR NOT text MATCHES "${wanted}")))
    list(APPEND failures "${name}: expected '${wanted}', got: ${code} ${text}")
    set(failures "${failures}" PARENT_SCOPE)
  endif()
endfunction()

# A correct tree of three layers.
function(plant)
  file(REMOVE_RECURSE "${SCRATCH}")
  file(WRITE "${SCRATCH}/layers.txt" "base::check.cpp\nkv:base:pool.cpp pool_test.cpp\nrl:kv:loop.cpp\n")
  file(WRITE "${SCRATCH}/src/base/check.h" "#include <string>\n")
  file(WRITE "${SCRATCH}/src/base/check.cpp" "#include \"base/check.h\"\n")
  file(WRITE "${SCRATCH}/src/kv/pool.h" "#include \"base/check.h\"\n#include <ATen/core/Tensor.h>\n")
  file(WRITE "${SCRATCH}/src/kv/pool.cpp" "#include \"kv/pool.h\"\n")
  file(WRITE "${SCRATCH}/src/kv/pool_test.cpp" "#include \"kv/pool.h\"\n")
  file(WRITE "${SCRATCH}/src/rl/loop.cpp" "#include \"kv/pool.h\"\n#include \"base/check.h\"\n")
endfunction()

plant()
expect("a correct tree" "")
file(APPEND "${SCRATCH}/src/kv/pool.cpp" "#include \"rl/loop.h\"\n")
expect("an upward include" "src/kv/pool.cpp.*kv may not see rl")
plant()
file(APPEND "${SCRATCH}/src/base/check.h" "  #  include \"kv/pool.h\"  // why\n")
expect("an upward include in a header, oddly written" "base may not see kv")
plant()
file(WRITE "${SCRATCH}/src/kv/forgotten_test.cpp" "")
expect("a test that is not listed" "src/kv/forgotten_test.cpp is in no list")
plant()
file(WRITE "${SCRATCH}/src/extra/file.h" "")
expect("a folder without a layer" "src/extra is not in")
plant()
file(APPEND "${SCRATCH}/src/kv/pool.h" "#include <torch/torch.h>\n")
expect("torch/torch.h in a header" "costs 8 s")
plant()
file(WRITE "${SCRATCH}/layers.txt" "base:rl:check.cpp\nkv:base:pool.cpp pool_test.cpp\nrl:kv:loop.cpp\n")
expect("a circle" "base depends on rl")

if(failures)
  list(JOIN failures "\n  " text)
  message(FATAL_ERROR "the layers check misses something:\n  ${text}")
endif()
