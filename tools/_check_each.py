# SPDX-License-Identifier: Apache-2.0
"""Shared by the check_*.py: one line per folder, and the exit code."""


def check_each(folders, check):
    """Prints the result of check(folder), or why it failed. Returns 1 if any check failed, else 0."""
    failed = 0
    for folder in folders:
        try:
            print(f"ok    {folder}: {check(folder)}", flush=True)
        except Exception as error:  # continue with the other folders
            failed += 1
            print(f"FAIL  {folder}: {error}", flush=True)
    return 1 if failed else 0
