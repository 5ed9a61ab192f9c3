# SPDX-License-Identifier: Apache-2.0
"""What the check_*.py share: one line a folder, and the exit code."""


def check_each(folders, check):
    """Prints what check(folder) returns, or why it failed; 1 when any failed, else 0."""
    failed = 0
    for folder in folders:
        try:
            print(f"ok    {folder}: {check(folder)}", flush=True)
        except Exception as error:  # one bad folder does not hide the others
            failed += 1
            print(f"FAIL  {folder}: {error}", flush=True)
    return 1 if failed else 0
