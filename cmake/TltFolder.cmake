# SPDX-License-Identifier: Apache-2.0
#
# tlt_folder(kv TORCH DEPENDS runtime base SOURCES page_pool.cpp … TESTS page_pool_test.cpp …)
#
# One folder of src/ is one static library tlt_<name> and at most one test program a kind, tlt_<name>_test,
# tlt_<name>_ranks_test … (one link, one ctest entry each). Files are listed, not globbed; tests/layers.cmake
# checks that none is forgotten and that includes follow DEPENDS.
#
#   TORCH               sees libtorch and the precompiled header
#   DEPENDS             exactly the folders that its files include; its tests may also include what those depend on
#   SOURCES             its .cpp files
#   LIBRARIES           third-party targets (fmt::fmt, tlt_pcre2 …)
#   PRIVATE_LIBRARIES   those whose headers no other folder needs to see
#   TESTS               label unit; RANKS_TESTS: label ranks
#   DEVICE_CASES        cases of TESTS that also run on other devices (tlt_test)
#   TORCH_FREE_SOURCES  in a TORCH folder: files that need no torch (parsers); with TORCH_FREE_TESTS they are
#   TORCH_FREE_TESTS    what the sanitized build takes from it
set_property(GLOBAL PROPERTY TLT_FOLDERS "")
set(TLT_TEST_KINDS TESTS RANKS_TESTS)

function(tlt_folder name)
  cmake_parse_arguments(PARSE_ARGV 1 folder "TORCH" ""
    "DEPENDS;DEVICE_CASES;SOURCES;LIBRARIES;PRIVATE_LIBRARIES;${TLT_TEST_KINDS};TORCH_FREE_SOURCES;TORCH_FREE_TESTS")
  if(folder_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "tlt_folder(${name}): unknown: ${folder_UNPARSED_ARGUMENTS}")
  endif()
  foreach(library IN LISTS folder_LIBRARIES folder_PRIVATE_LIBRARIES)
    if(NOT TARGET ${library})  # CMake would quietly make it -l${library}
      message(FATAL_ERROR "tlt_folder(${name}): no library ${library}; cmake/TltDependencies.cmake has their names")
    endif()
  endforeach()
  tlt_remember_folder(${name})

  if(folder_TORCH AND TLT_SANITIZE)
    set(folder_TORCH OFF)
    set(folder_SOURCES "")
    set(folder_TESTS "")
    set(folder_RANKS_TESTS "")
    set(folder_DEVICE_CASES "")
  endif()
  list(APPEND folder_SOURCES ${folder_TORCH_FREE_SOURCES})
  list(APPEND folder_TESTS ${folder_TORCH_FREE_TESTS})

  if(folder_SOURCES)
    list(TRANSFORM folder_SOURCES PREPEND "${name}/")
    add_library(tlt_${name} STATIC ${folder_SOURCES})
    set(scope PUBLIC)
  else()
    add_library(tlt_${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  list(TRANSFORM folder_DEPENDS PREPEND tlt_)
  target_link_libraries(tlt_${name} ${scope} tlt_options ${folder_DEPENDS} ${folder_LIBRARIES})
  if(folder_PRIVATE_LIBRARIES AND folder_SOURCES)
    target_link_libraries(tlt_${name} PRIVATE ${folder_PRIVATE_LIBRARIES})
  endif()
  set(torch "")
  if(folder_TORCH)
    set(torch TORCH)
    target_link_libraries(tlt_${name} ${scope} tlt_torch)
    if(folder_SOURCES)
      tlt_use_precompiled_header(tlt_${name})
      if(TLT_TIDY)
        tlt_move_torch_files()
      endif()
    endif()
  endif()

  foreach(kind IN LISTS TLT_TEST_KINDS)
    if(folder_${kind})
      string(REPLACE "TESTS" "" label "${kind}")
      string(REPLACE "_" "" label "${label}")
      string(TOLOWER "${label}" label)
      list(TRANSFORM folder_${kind} PREPEND "${name}/")
      set(device_cases "")
      if(kind STREQUAL TESTS)
        set(device_cases ${folder_DEVICE_CASES})
      endif()
      tlt_test(${name} "${label}" ${torch} FOLDERS ${name} SOURCES ${folder_${kind}} DEVICE_CASES ${device_cases})
    endif()
  endforeach()
endfunction()

# tlt_test(NAME LABEL [TORCH] FOLDERS … SOURCES … [TIMEOUT seconds] [SHARDS n] [DEVICE_CASES filter …]): one GoogleTest
# program and its ctest entry, or n entries that share its cases and run side by side.
# LABEL is "" (unit), ranks, invariant, far or slow; the entry is NAME or NAME_LABEL.
# DEVICE_CASES: the cases that match a filter also run on the far device (tests/support/far_device.h), an entry for each
# filter, label far; and where nvcc is also on CUDA, label cuda. An entry whose filter selects none fails; those of CUDA
# are skipped unless there is a card and the environment has TLT_TRY_CUDA=1 (tests/on_card.sh).
function(tlt_test name label)
  if(NOT TLT_TESTS)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 2 test "TORCH" "TIMEOUT;SHARDS" "FOLDERS;SOURCES;LIBRARIES;DEVICE_CASES")
  set(entry ${name})
  if(NOT label)
    set(label unit)
  elseif(NOT label STREQUAL name)
    string(APPEND entry _${label})
  endif()
  set(target tlt_${entry}_test)
  add_executable(${target} ${test_SOURCES})
  if(NOT TLT_SANITIZE)
    target_compile_options(${target} PRIVATE -O1)  # a fifth of the time to compile saved
  endif()
  list(TRANSFORM test_FOLDERS PREPEND tlt_)
  target_link_libraries(${target} PRIVATE ${test_FOLDERS} ${test_LIBRARIES} GTest::gmock GTest::gtest_main)
  target_include_directories(${target} PRIVATE "${CMAKE_SOURCE_DIR}")  # "tests/support/…"
  target_compile_definitions(${target} PRIVATE
    TLT_SOURCE_DIR="${CMAKE_SOURCE_DIR}" TLT_SHARED_DATA="${TLT_SHARED_DATA}" TLT_PROGRAM="${CMAKE_BINARY_DIR}/tlt"
    TLT_FAR_PROGRAM="${CMAKE_BINARY_DIR}/tests/tlt_far")
  if(test_TORCH)
    tlt_use_precompiled_header(${target})
  endif()
  tlt_run_in(${target} "${CMAKE_BINARY_DIR}/tests")

  if(NOT test_TIMEOUT)
    set(test_TIMEOUT 600)
  endif()
  if(NOT test_SHARDS)
    set(test_SHARDS 1)
  endif()
  foreach(shard RANGE 1 ${test_SHARDS})
    set(part ${entry})
    if(test_SHARDS GREATER 1)
      string(APPEND part _${shard})
    endif()
    math(EXPR index "${shard} - 1")
    add_test(NAME ${part} COMMAND ${target} --gtest_brief=1 "--gtest_output=xml:${CMAKE_BINARY_DIR}/tests/${part}.xml")
    set_tests_properties(${part} PROPERTIES LABELS ${label} TIMEOUT ${test_TIMEOUT}
      ENVIRONMENT "GTEST_TOTAL_SHARDS=${test_SHARDS};GTEST_SHARD_INDEX=${index}")
    if(label STREQUAL ranks)
      set_tests_properties(${part} PROPERTIES RUN_SERIAL ON)  # several processes each, with timeouts to observe
    elseif(label MATCHES "invariant|slow")
      set_tests_properties(${part} PROPERTIES COST 100)  # first, so that nothing waits for them in the end
    endif()
  endforeach()
  if(test_DEVICE_CASES)
    tlt_use_far_device(${target})
    tlt_device_tests(far)
    if(TLT_NVCC)
      add_dependencies(${target} tlt_cuda_plugin)
      tlt_device_tests(cuda "${CMAKE_SOURCE_DIR}/tests/on_card.sh")
    endif()
  endif()
endfunction()

# The entries of tlt_test for the cases test_DEVICE_CASES on a device, whose tests are run by this command.
macro(tlt_device_tests device)
  set(number 0)
  foreach(filter IN LISTS test_DEVICE_CASES)
    set_property(GLOBAL APPEND PROPERTY TLT_DEVICE_CASES "${target} ${filter}")
    math(EXPR number "${number} + 1")
    add_test(NAME ${entry}_${device}_${number} COMMAND ${ARGN} $<TARGET_FILE:${target}> "--gtest_filter=${filter}")
    set_tests_properties(${entry}_${device}_${number} PROPERTIES LABELS ${device} TIMEOUT ${test_TIMEOUT} COST 100
      ENVIRONMENT "TLT_TEST_DEVICE=${device}" FAIL_REGULAR_EXPRESSION "Running 0 tests")
    if("${device}" STREQUAL cuda)
      set_tests_properties(${entry}_${device}_${number} PROPERTIES RUN_SERIAL ON SKIP_RETURN_CODE 77)
    endif()
  endforeach()
endmacro()

# Gives a program the kernels of a GPU over emulated blocks (ops/cuda/kernels_emulated.h), for tests.
function(tlt_use_emulated_kernels target)
  if(NOT TARGET tlt_emulated_kernels)
    set(folder "${CMAKE_SOURCE_DIR}/src/ops/cuda")
    add_library(tlt_emulated_kernels OBJECT "${folder}/emulated_block.cpp" "${folder}/kernels_emulated.cpp"
      "${folder}/kernels_rows_emulated.cpp")
    set_target_properties(tlt_emulated_kernels PROPERTIES UNITY_BUILD OFF)
    target_link_libraries(tlt_emulated_kernels PRIVATE tlt_options)
    target_compile_options(tlt_emulated_kernels PRIVATE -ffp-contract=off -fno-trapping-math)
    if(NOT TLT_SANITIZE)
      target_compile_options(tlt_emulated_kernels PRIVATE -O3)
    endif()
    if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")  # as the CPU kernels need
      target_compile_options(tlt_emulated_kernels PRIVATE -mavx2 -mfma)
    endif()
  endif()
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:tlt_emulated_kernels>)
endfunction()

# Gives a program the device "far" (tests/support/far_device.h).
function(tlt_use_far_device target)
  if(NOT TARGET tlt_far_device)
    add_library(tlt_far_device OBJECT "${CMAKE_SOURCE_DIR}/tests/support/far_device.cpp")
    set_target_properties(tlt_far_device PROPERTIES UNITY_BUILD OFF)
    target_link_libraries(tlt_far_device PRIVATE tlt_options tlt_torch)
    target_include_directories(tlt_far_device PRIVATE "${CMAKE_SOURCE_DIR}")
    target_compile_options(tlt_far_device PRIVATE -O3 -ffp-contract=off)  # products without fused additions
    tlt_use_precompiled_header(tlt_far_device)
  endif()
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:tlt_far_device>)
  tlt_use_emulated_kernels(${target})
endfunction()

# tlt_isa_source(ops cpu/kernels.cpp avx2 "-mavx2 -mfma -mf16c"): one more copy of a file for another instruction
# set, with -DTLT_ISA=avx2. The file has no torch and no shared inline functions: the linker keeps one copy of
# those, and it may be the one the CPU cannot run (tests/isa_symbols.cmake looks).
function(tlt_isa_source folder file isa flags)
  if(TLT_SANITIZE OR NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    return()
  endif()
  get_filename_component(stem "${file}" NAME_WE)
  set(target tlt_${folder}_${stem}_${isa})
  add_library(${target} OBJECT "${folder}/${file}")
  target_link_libraries(${target} PRIVATE tlt_options)
  separate_arguments(flags UNIX_COMMAND "${flags}")
  target_compile_options(${target} PRIVATE ${flags})
  target_compile_definitions(${target} PRIVATE TLT_ISA=${isa})
  target_sources(tlt_${folder} PRIVATE $<TARGET_OBJECTS:${target}>)
  set_property(GLOBAL APPEND PROPERTY TLT_ISA_TARGETS ${target})
  set_property(GLOBAL APPEND PROPERTY TLT_ISAS ${isa})
  set_property(GLOBAL APPEND_STRING PROPERTY TLT_FILES_${folder} " ${file}")
endfunction()

# The one precompiled header: ATen and what nearly every file includes. A target that uses it must be compiled
# with the flags of tlt_options and tlt_torch and no others.
function(tlt_use_precompiled_header target)
  if(NOT TLT_PCH)
    return()
  endif()
  if(NOT TARGET tlt_pch)
    # Unlike file(WRITE), leaves a file with this content as it is: CMake runs again after each commit.
    file(CONFIGURE OUTPUT "${CMAKE_BINARY_DIR}/generated/pch.cpp" CONTENT "// compiled for its precompiled header only\n")
    add_library(tlt_pch OBJECT "${CMAKE_BINARY_DIR}/generated/pch.cpp")
    set_target_properties(tlt_pch PROPERTIES UNITY_BUILD OFF)
    target_link_libraries(tlt_pch PRIVATE tlt_options tlt_torch)
    target_precompile_headers(tlt_pch PRIVATE <algorithm> <array> <cmath> <cstdint> <cstring> <functional>
      <map> <memory> <optional> <span> <sstream> <string> <string_view> <unordered_map> <utility> <vector>
      <ATen/ATen.h>)
    target_compile_options(tlt_pch PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
  endif()
  # Collecting garbage would walk through the whole header: 50 MB more for a tenth of the time.
  target_compile_options(${target} PRIVATE
    "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fpch-preprocess;SHELL:--param ggc-min-heapsize=4000000>")
  target_precompile_headers(${target} REUSE_FROM tlt_pch)
endfunction()

# For clang-tidy, which spends 4 to 16 seconds on torch's headers: the files of all TORCH folders as two, one a core.
# tlt_folder() takes them from its library; the top folder, in which their properties do not hold, compiles them.
macro(tlt_move_torch_files)
  list(TRANSFORM folder_TORCH_FREE_SOURCES PREPEND "${name}/")
  set(moved ${folder_SOURCES})
  list(REMOVE_ITEM moved ${folder_TORCH_FREE_SOURCES})
  set_source_files_properties(${moved} PROPERTIES HEADER_FILE_ONLY ON)
  set_target_properties(tlt_${name} PROPERTIES LINKER_LANGUAGE CXX)
  list(TRANSFORM moved PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/")
  set_property(GLOBAL APPEND PROPERTY TLT_TORCH_FILES ${moved})
  set_property(GLOBAL APPEND PROPERTY TLT_TORCH_FILES_LINK tlt_${name} ${folder_PRIVATE_LIBRARIES})
endmacro()

function(tlt_compile_torch_files)
  get_property(files GLOBAL PROPERTY TLT_TORCH_FILES)
  get_property(libraries GLOBAL PROPERTY TLT_TORCH_FILES_LINK)
  list(LENGTH files count)
  math(EXPR half "(${count} + 1) / 2")
  add_library(tlt_torch_files OBJECT ${files})
  target_link_libraries(tlt_torch_files PRIVATE ${libraries})
  set_target_properties(tlt_torch_files PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${half})
endfunction()

# Puts a program into a folder of the build tree from which it finds the libraries of .deps by a relative path.
# RPATH, not RUNPATH: it also serves the libraries that libtorch_cpu itself needs.
function(tlt_run_in target folder)
  set(rpath "")
  foreach(library_folder IN LISTS TLT_RUNTIME_FOLDERS)
    file(RELATIVE_PATH relative "${folder}" "${library_folder}")
    list(APPEND rpath "\$ORIGIN/${relative}")
  endforeach()
  target_link_options(${target} PRIVATE -Wl,--disable-new-dtags)
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${folder}"
    INSTALL_RPATH "${rpath}" BUILD_WITH_INSTALL_RPATH ON)  # these and no absolute ones
endfunction()

# What tests/layers.cmake compares the sources with; tlt_write_layers() writes it.
macro(tlt_remember_folder name)
  set_property(GLOBAL APPEND PROPERTY TLT_FOLDERS ${name})
  set_property(GLOBAL PROPERTY TLT_DEPENDS_${name} "${folder_DEPENDS}")
  set(listed ${folder_SOURCES} ${folder_TORCH_FREE_SOURCES} ${folder_TORCH_FREE_TESTS})
  foreach(kind IN LISTS TLT_TEST_KINDS)
    list(APPEND listed ${folder_${kind}})
  endforeach()
  string(REPLACE ";" " " listed "${listed}")
  set_property(GLOBAL APPEND_STRING PROPERTY TLT_FILES_${name} "${listed}")
endmacro()

function(tlt_write_layers)
  get_property(folders GLOBAL PROPERTY TLT_FOLDERS)
  set(text "")
  foreach(folder IN LISTS folders)
    get_property(depends GLOBAL PROPERTY TLT_DEPENDS_${folder})
    get_property(files GLOBAL PROPERTY TLT_FILES_${folder})
    string(REPLACE ";" " " depends "${depends}")
    string(APPEND text "${folder}:${depends}:${files}\n")
  endforeach()
  file(CONFIGURE OUTPUT "${CMAKE_BINARY_DIR}/layers.txt" CONTENT "${text}" @ONLY)
endfunction()

# tlt_program(apps): build/tlt from apps/main.cpp.
function(tlt_program folder)
  if(TLT_SANITIZE OR NOT EXISTS "${CMAKE_CURRENT_SOURCE_DIR}/${folder}/main.cpp")
    return()
  endif()
  add_executable(tlt ${folder}/main.cpp)
  target_link_libraries(tlt PRIVATE tlt_${folder})
  tlt_run_in(tlt "${CMAKE_BINARY_DIR}")
  if(TARGET tlt_cuda_plugin)
    add_dependencies(tlt tlt_cuda_plugin)  # both are of one build
  endif()
  # Where setup/stage.sh puts the libraries of an installation. It has CMake replace the whole RPATH, which must not
  # become longer.
  set_property(TARGET tlt APPEND_STRING PROPERTY INSTALL_RPATH ";\$ORIGIN/../lib/tlt")
endfunction()
