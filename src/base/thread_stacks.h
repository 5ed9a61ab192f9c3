// Stacks of all threads of this process, as text, for a report on a process that hangs.
//
// Threading  one call at a time.
//
//   for (const std::string& line : thread_stacks()) log_error("{}", line);
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace tlt {

// Loads what backtrace() needs: its first call allocates, which a signal handler must not.
void prepare_thread_stacks();

// The threads, the main thread first, without the calling one: a line for each, then one for each
// function on its stack, innermost first. A thread that a debugger has stopped, that blocks signals
// or that the kernel does not interrupt has no stack here; its line says so.
std::vector<std::string> thread_stacks();

}  // namespace tlt
