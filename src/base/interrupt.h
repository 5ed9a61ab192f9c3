// Interrupts: Ctrl-C or SIGTERM requests that the run saves and stops; a second one, at least half
// a second later, ends it immediately with exit code 130 or 143 (128 plus the signal, as in
// shells).
//
//   install_interrupt_handler();          // apps/main.cpp
//   while (!interrupted()) loop.run_step();
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tlt {

// Installs the handlers of SIGINT and SIGTERM. The first signal writes `acknowledgement` to stderr
// immediately; a string literal, or null for none.
void install_interrupt_handler(const char* acknowledgement = nullptr);

// Whether the run was requested to stop. Any thread.
bool interrupted();

// The first signal, or 0.
int interrupt_signal();

// Exit code of an interrupted program: 128 plus that signal, as in shells.
int interrupt_exit_code();

// Forgets the signal: the program continues.
void clear_interrupt();

}  // namespace tlt
