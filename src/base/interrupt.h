// Interrupts: Ctrl-C or SIGTERM asks the run to save and stop; a second one, half a second later or
// more, ends it at once with exit code 130 or 143 (128 and the signal, as shells have it).
//
//   install_interrupt_handler();          // apps/main.cpp
//   while (!interrupted()) loop.run_step();
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tlt {

// SIGINT and SIGTERM are handled so from now on. `acknowledgement` is written to stderr at once
// when the first one comes; a literal, or null for none.
void install_interrupt_handler(const char* acknowledgement = nullptr);

// Whether the run was asked to stop. Any thread.
bool interrupted();

// The signal that asked first, or 0.
int interrupt_signal();

// 128 and that signal, as shells have it: what a program that was interrupted exits with.
int interrupt_exit_code();

// Asks as a signal would; a test takes it back.
void request_interrupt();
void clear_interrupt();

}  // namespace tlt
