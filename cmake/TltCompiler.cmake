# SPDX-License-Identifier: Apache-2.0
#
# How every file is compiled: C++20, -O2 and no -ffast-math (the invariants promise bits), warnings, ccache, sanitizers.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
if(TLT_SANITIZE)  # compiles in two thirds of the time of -O1; with assertions
  set(CMAKE_CXX_FLAGS_RELEASE "-Og")
endif()

# tlt_options is linked by every target of ours.
add_library(tlt_options INTERFACE)
target_include_directories(tlt_options INTERFACE "${CMAKE_SOURCE_DIR}/src" "${CMAKE_BINARY_DIR}/generated")
# __FILE__ is src/… in messages, whatever machine built it.
target_compile_options(tlt_options INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic $<$<BOOL:${TLT_WERROR}>:-Werror>
    -fno-math-errno -fmacro-prefix-map=${CMAKE_SOURCE_DIR}/=>)

if(TLT_SANITIZE)
  # GCC does not follow values through the sanitizers' code: what it says of uninitialized ones is wrong there.
  target_compile_options(tlt_options INTERFACE -fsanitize=address,undefined -fno-sanitize-recover=undefined
    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized> -fno-omit-frame-pointer -g1)
  target_link_options(tlt_options INTERFACE -fsanitize=address,undefined)
endif()

if(TLT_LIBFUZZER)
  execute_process(COMMAND "${CMAKE_CXX_COMPILER}" --print-runtime-dir OUTPUT_VARIABLE runtime
    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  file(GLOB TLT_LIBFUZZER_RUNTIME "${runtime}/libclang_rt.fuzzer_no_main*${CMAKE_SYSTEM_PROCESSOR}.a"
    "${runtime}/libclang_rt.fuzzer_no_main.a")
  if(NOT TLT_LIBFUZZER_RUNTIME OR NOT TLT_SANITIZE)
    message(FATAL_ERROR "libFuzzer needs clang with its runtime (Debian: clang libclang-rt-dev) and -DTLT_SANITIZE=ON; "
      "type: make fuzz")
  endif()
  target_compile_options(tlt_options INTERFACE -fsanitize=fuzzer-no-link)
endif()

# A precompiled header is a cache hit only with this sloppiness (ccache manual, "Precompiled headers").
find_program(TLT_CCACHE ccache)
if(TLT_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(launcher "${CMAKE_COMMAND}" -E env
    "CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime" "${TLT_CCACHE}")
  set(CMAKE_CXX_COMPILER_LAUNCHER ${launcher})
endif()

# The headers of eight files are read once. Names in anonymous namespaces are therefore one file's in a folder's
# sources, and one file's in its tests. Compile each file by itself, with -DTLT_UNITY=OFF (preset `files`), to
# work on one of them, and to see that each includes what it needs.
if(TLT_UNITY)
  set(CMAKE_UNITY_BUILD ON)
  set(CMAKE_UNITY_BUILD_BATCH_SIZE 8)
  # GCC takes a class of an included .cpp file for one of a header.
  target_compile_options(tlt_options INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>)
endif()

# The commit in `tlt --version`; "unknown" outside a git checkout.
set(TLT_COMMIT unknown)
find_package(Git QUIET)
if(Git_FOUND AND EXISTS "${CMAKE_SOURCE_DIR}/.git")
  execute_process(COMMAND "${GIT_EXECUTABLE}" -C "${CMAKE_SOURCE_DIR}" rev-parse --short=12 HEAD
    OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  if(NOT failed)
    set(TLT_COMMIT "${commit}")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/.git/HEAD")
    if(EXISTS "${CMAKE_SOURCE_DIR}/.git/logs/HEAD")
      set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/.git/logs/HEAD")
    endif()
  endif()
endif()
configure_file("${CMAKE_SOURCE_DIR}/src/base/version.h.in" "${CMAKE_BINARY_DIR}/generated/base/version.h" @ONLY)
