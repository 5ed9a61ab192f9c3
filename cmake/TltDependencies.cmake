# SPDX-License-Identifier: Apache-2.0
#
# Third-party libraries, as targets for LIBRARIES of tlt_folder(): those of Debian by their own names, and
#   tlt_torch   libtorch 2.11 (.deps/torch)        tlt_arrow   Arrow and Parquet (.deps/pyarrow)
#   tlt_pcre2   PCRE2, 8 bit                       tlt_flint   FLINT and Arb (acb.h)
#   tlt_utf8proc   tlt_zeromq   tlt_yaml           tlt_httplib   cpp-httplib
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(tomlplusplus REQUIRED)
find_package(CLI11 REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
if(TLT_TESTS)
  find_package(GTest REQUIRED)
endif()

# A library that Debian ships without a CMake config.
function(tlt_system_library name package header file)
  find_path(TLT_${name}_INCLUDE ${header})
  find_library(TLT_${name}_LIBRARY ${file})
  if(NOT TLT_${name}_INCLUDE OR NOT TLT_${name}_LIBRARY)
    message(FATAL_ERROR "no ${header} or no lib${file}; type: make setup, or install the Debian package ${package}")
  endif()
  add_library(tlt_${name} INTERFACE)
  target_link_libraries(tlt_${name} INTERFACE "${TLT_${name}_LIBRARY}" ${ARGN})
endfunction()
tlt_system_library(pcre2 libpcre2-dev pcre2.h pcre2-8)
target_compile_definitions(tlt_pcre2 INTERFACE PCRE2_CODE_UNIT_WIDTH=8)
tlt_system_library(utf8proc libutf8proc-dev utf8proc.h utf8proc)
tlt_system_library(zeromq cppzmq-dev zmq.hpp zmq)
tlt_system_library(yaml libyaml-cpp-dev yaml-cpp/yaml.h yaml-cpp)
# The library's classes have other members with each of its definitions: those it was compiled with are in its
# pkg-config file.
tlt_system_library(httplib libcpp-httplib-dev httplib.h cpp-httplib)
find_file(TLT_httplib_FLAGS cpp-httplib.pc REQUIRED
  PATHS "/usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}" /usr/lib /usr/share PATH_SUFFIXES pkgconfig)
file(STRINGS "${TLT_httplib_FLAGS}" flags REGEX "^Cflags:")
string(REGEX MATCHALL "CPPHTTPLIB_[A-Z_]+" definitions "${flags}")
target_compile_definitions(tlt_httplib INTERFACE ${definitions})
tlt_system_library(gmp libgmp-dev gmp.h gmp)
tlt_system_library(flint libflint-dev flint/fmpq.h flint tlt_gmp)  # its inline functions call GMP
if(NOT EXISTS "${TLT_flint_INCLUDE}/flint/acb.h")  # from FLINT 3 on Arb is a part of it
  tlt_system_library(arb libflint-arb-dev acb.h flint-arb)
  target_link_libraries(tlt_flint INTERFACE tlt_arb)
endif()

# torch and pyarrow bring their own fmt, gtest and more: -idirafter lets the system's headers win.
function(tlt_include_after target)
  foreach(folder IN LISTS ARGN)
    target_compile_options(${target} INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:SHELL:-idirafter \"${folder}\">")
  endforeach()
endfunction()
add_library(tlt_torch INTERFACE)
add_library(tlt_arrow INTERFACE)
set(TLT_RUNTIME_FOLDERS "")  # for the rpath of executables

if(NOT TLT_SANITIZE)
  set(torch_header "${TLT_DEPS}/torch/include/torch/csrc/api/include/torch/version.h")
  set(torch_headeronly "${TLT_DEPS}/torch/include/torch/headeronly/version.h")
  if(EXISTS "${torch_headeronly}")
    set(torch_header "${torch_headeronly}")
  endif()
  if(NOT EXISTS "${torch_header}")
    message(FATAL_ERROR "no libtorch in ${TLT_DEPS}/torch; type: make setup")
  endif()
  file(STRINGS "${torch_header}" torch_minor REGEX "define TORCH_VERSION_(MAJOR|MINOR)")
  if(NOT torch_minor MATCHES "MAJOR 2.*MINOR 11")
    message(FATAL_ERROR "${TLT_DEPS}/torch is not torch 2.11; type: rm -rf .deps && make setup")
  endif()
  tlt_include_after(tlt_torch "${TLT_DEPS}/torch/include" "${TLT_DEPS}/torch/include/torch/csrc/api/include"
    "${CMAKE_SOURCE_DIR}/third_party/gloo_shim")  # headers that c10d's own include and the wheel lacks
  # libtorch_cpu of the CUDA wheel names symbols of libraries that are not installed for a CPU-only build.
  target_link_options(tlt_torch INTERFACE -Wl,--unresolved-symbols=ignore-in-shared-libs)
  target_link_directories(tlt_torch INTERFACE "${TLT_DEPS}/torch/lib")
  target_link_libraries(tlt_torch INTERFACE -Wl,--no-as-needed torch_cpu c10 -Wl,--as-needed Threads::Threads)
  list(APPEND TLT_RUNTIME_FOLDERS "${TLT_DEPS}/torch/lib" "${TLT_DEPS}/nvidia/cu13/lib")
endif()

# libparquet.so.NNNN: the wheel has no unversioned names.
file(GLOB arrow_libraries "${TLT_DEPS}/pyarrow/libparquet.so.*" "${TLT_DEPS}/pyarrow/libarrow.so.*")
list(LENGTH arrow_libraries arrow_count)
if(NOT arrow_count EQUAL 2)
  message(FATAL_ERROR "no Arrow in ${TLT_DEPS}/pyarrow; type: make setup")
endif()
tlt_include_after(tlt_arrow "${TLT_DEPS}/pyarrow/include")
target_link_libraries(tlt_arrow INTERFACE ${arrow_libraries})
list(APPEND TLT_RUNTIME_FOLDERS "${TLT_DEPS}/pyarrow")
