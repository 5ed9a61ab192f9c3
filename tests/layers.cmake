# SPDX-License-Identifier: Apache-2.0
#
# The layers check: cmake -DSOURCE=src -DLAYERS=build/layers.txt -P tests/layers.cmake
# Fails when a file of a folder includes a file of a folder that its DEPENDS (and theirs) do not name, when
# DEPENDS has a circle, when a header includes torch/torch.h, or when a .cpp or .cu file is in no list of
# src/CMakeLists.txt - a test that is not listed never runs.
# LAYERS has a line `folder:its DEPENDS:its listed files` for each folder, from the ground up.
cmake_minimum_required(VERSION 3.25)
set(faults "")
set(folders "")

# What each folder may see: a folder is declared above what it depends on, so one pass is enough.
file(STRINGS "${LAYERS}" lines)
foreach(line IN LISTS lines)
  if(NOT line MATCHES "^([a-z]+):([a-z ]*):(.*)$")
    message(FATAL_ERROR "${LAYERS}: not a layer: ${line}")
  endif()
  set(folder ${CMAKE_MATCH_1})
  separate_arguments(listed_${folder} UNIX_COMMAND "${CMAKE_MATCH_3}")
  separate_arguments(depends UNIX_COMMAND "${CMAKE_MATCH_2}")
  set(seen_${folder} ${folder})
  foreach(lower IN LISTS depends)
    if(lower IN_LIST folders)
      list(APPEND seen_${folder} ${seen_${lower}})
    else()
      list(APPEND faults "${folder} depends on ${lower}, which is not declared below it in src/CMakeLists.txt")
    endif()
  endforeach()
  list(APPEND folders ${folder})
endforeach()

file(GLOB directories LIST_DIRECTORIES true RELATIVE "${SOURCE}" "${SOURCE}/*")
foreach(folder IN LISTS directories)
  if(NOT IS_DIRECTORY "${SOURCE}/${folder}")
    continue()
  endif()
  file(GLOB_RECURSE files RELATIVE "${SOURCE}/${folder}"
    "${SOURCE}/${folder}/*.h" "${SOURCE}/${folder}/*.cuh" "${SOURCE}/${folder}/*.cpp" "${SOURCE}/${folder}/*.cu")
  if(files AND NOT folder IN_LIST folders)
    list(APPEND faults "src/${folder} is not in src/CMakeLists.txt")
    continue()
  endif()
  foreach(file IN LISTS files)
    if(file MATCHES "\\.(cpp|cu)$" AND NOT file STREQUAL "main.cpp" AND NOT file IN_LIST listed_${folder})
      list(APPEND faults "src/${folder}/${file} is in no list of src/CMakeLists.txt")
    endif()
    file(STRINGS "${SOURCE}/${folder}/${file}" includes REGEX "^[ \t]*#[ \t]*include[ \t]*[\"<]")
    foreach(include IN LISTS includes)
      if(include MATCHES "\"([a-z_]+)/" AND CMAKE_MATCH_1 IN_LIST folders
          AND NOT CMAKE_MATCH_1 IN_LIST seen_${folder})
        list(APPEND faults "src/${folder}/${file}: ${include}: ${folder} may not see ${CMAKE_MATCH_1}")
      elseif(include MATCHES "torch/torch\\.h" AND file MATCHES "\\.(h|cuh)$")
        list(APPEND faults "src/${folder}/${file}: ${include}: costs 8 s a file; include ATen/core/Tensor.h")
      endif()
    endforeach()
  endforeach()
endforeach()

if(faults)
  list(JOIN faults "\n  " text)
  message(FATAL_ERROR "the layers do not hold:\n  ${text}")
endif()
