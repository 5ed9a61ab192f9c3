# SPDX-License-Identifier: Apache-2.0
#
# build/libtlt_cuda.so, the plug-in that --device cuda opens: made wherever nvcc of CUDA 13 is, in the PATH, in
# $CUDA_HOME or in /usr/local/cuda. TLT_NVCC is empty without one; then the program lacks nothing but that file.
#
# Its C++ parts are compiled with the headers of libtorch_cuda and linked without the library, which is not unpacked from
# the wheel: with what it needs it has 3 GB. tests/cuda/symbols_test.py compares what stays open with what it has.
set(TLT_NVCC "")
if(NOT TLT_SANITIZE AND NOT TLT_TIDY)
  find_program(TLT_NVCC_PROGRAM nvcc PATHS "$ENV{CUDA_HOME}/bin" /usr/local/cuda/bin)
  if(TLT_NVCC_PROGRAM)
    execute_process(COMMAND "${TLT_NVCC_PROGRAM}" --version OUTPUT_VARIABLE nvcc_version ERROR_QUIET)
    string(REGEX MATCH "release ([0-9]+)" nvcc_release "${nvcc_version}")
    if(CMAKE_MATCH_1 EQUAL 13)
      set(TLT_NVCC "${TLT_NVCC_PROGRAM}")
    else()
      message(STATUS "${TLT_NVCC_PROGRAM} is not of CUDA 13: no libtlt_cuda.so")
    endif()
  endif()
endif()

if(TLT_NVCC)
  cmake_path(GET TLT_NVCC PARENT_PATH cuda_folder)
  cmake_path(GET cuda_folder PARENT_PATH cuda_folder)
  set(TLT_CUDA_INCLUDE "${cuda_folder}/include")
  foreach(header cuda_runtime_api.h cublasLt.h cusparse.h cusolverDn.h)  # which PyTorch's headers include
    if(TLT_NVCC AND NOT EXISTS "${TLT_CUDA_INCLUDE}/${header}")
      message(STATUS "no ${header} in ${TLT_CUDA_INCLUDE}: no libtlt_cuda.so")
      set(TLT_NVCC "")
    endif()
  endforeach()
endif()

if(TLT_NVCC)
  set(CMAKE_CUDA_COMPILER "${TLT_NVCC}")
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
  # Code for the A100 and for Hopper, and PTX for what comes after them.
  set(CMAKE_CUDA_ARCHITECTURES 80 90a-real)
  enable_language(CUDA)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")  # unknown to CMake 3.25
  find_path(TLT_NCCL_INCLUDE nccl.h PATHS "${TLT_CUDA_INCLUDE}")
endif()

# tlt_cuda_plugin(cuda DEPENDS … SOURCES … NCCL_SOURCES … KERNELS …): SOURCES of the folder by the C++ compiler,
# NCCL_SOURCES where nccl.h is, KERNELS (paths below src/) by nvcc.
function(tlt_cuda_plugin name)
  cmake_parse_arguments(PARSE_ARGV 1 folder "" "" "DEPENDS;SOURCES;NCCL_SOURCES;KERNELS")
  list(APPEND folder_SOURCES ${folder_NCCL_SOURCES})
  tlt_remember_folder(${name})
  if(NOT TLT_NVCC)
    return()
  endif()
  if(NOT TLT_NCCL_INCLUDE)
    list(REMOVE_ITEM folder_SOURCES ${folder_NCCL_SOURCES})
  endif()
  list(TRANSFORM folder_SOURCES PREPEND "${name}/")
  add_library(tlt_cuda_plugin MODULE ${folder_SOURCES} ${folder_KERNELS})
  target_link_libraries(tlt_cuda_plugin PRIVATE tlt_options)
  target_compile_options(tlt_cuda_plugin PRIVATE "$<TARGET_PROPERTY:tlt_torch,INTERFACE_COMPILE_OPTIONS>")
  foreach(folder "${TLT_CUDA_INCLUDE}" ${TLT_NCCL_INCLUDE})
    target_compile_options(tlt_cuda_plugin PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:SHELL:-idirafter \"${folder}\">")
  endforeach()
  # A multiplication and an addition are fused only where the source does so, as in the CPU's kernels.
  target_compile_options(tlt_cuda_plugin PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:-fmad=false;--expt-relaxed-constexpr>")
  target_compile_definitions(tlt_cuda_plugin PRIVATE USE_C10D_NCCL)
  # Its own RPATH stays empty: libtorch_cuda.so is open before it, with what both need.
  set_target_properties(tlt_cuda_plugin PROPERTIES OUTPUT_NAME tlt_cuda LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}"
    UNITY_BUILD OFF CUDA_RUNTIME_LIBRARY Shared BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "")
  # Also next to the test programs.
  add_custom_command(TARGET tlt_cuda_plugin POST_BUILD COMMAND "${CMAKE_COMMAND}" -E make_directory "${CMAKE_BINARY_DIR}/tests"
    COMMAND "${CMAKE_COMMAND}" -E create_symlink ../libtlt_cuda.so "${CMAKE_BINARY_DIR}/tests/libtlt_cuda.so")
endfunction()
