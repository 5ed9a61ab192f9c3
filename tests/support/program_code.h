// Where the functions of the program are in its file and in a running process.
//
// Not here   looking at a process: StackPeek, Breakpoint.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tlt::tests {

// Whether Breakpoint and StackPeek know this machine.
#if defined(__x86_64__)
inline constexpr bool kCanTrace = true;
#else
inline constexpr bool kCanTrace = false;
#endif

struct CodeRange {
  uint64_t begin, end;  // from the load address
  size_t function;      // of those asked for
};

// The code of these functions, by names as `nm -C` writes them, or a prefix of that; empty if the
// program has no symbols.
inline std::vector<CodeRange> code_of(const std::vector<std::string>& functions) {
  std::vector<CodeRange> ranges;
  FILE* table = popen("nm -C -S --defined-only " TLT_PROGRAM, "r");
  char line[1 << 14];
  while (table && std::fgets(line, sizeof line, table)) {
    uint64_t begin = 0, size = 0;
    char kind = 0;
    int name = 0;
    if (std::sscanf(line, "%lx %lx %c %n", &begin, &size, &kind, &name) != 3) continue;
    for (size_t i = 0; i < functions.size(); ++i)
      if (std::string_view(line + name).starts_with(functions[i]))
        ranges.push_back({begin, begin + size, i});
  }
  if (table) pclose(table);
  return ranges;
}

// Load address of the program in the process.
inline std::optional<uint64_t> load_address(pid_t process) {
  std::ifstream maps("/proc/" + std::to_string(process) + "/maps");
  uint64_t begin = 0;
  std::string line;
  if (!std::getline(maps, line) || std::sscanf(line.c_str(), "%lx", &begin) != 1)
    return std::nullopt;
  return begin;
}

}  // namespace tlt::tests
