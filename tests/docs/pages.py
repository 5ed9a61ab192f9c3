# SPDX-License-Identifier: Apache-2.0
"""The code blocks of README.md and docs/*.md, and the commands in them."""
import re
from dataclasses import dataclass

# A block is one of commands if it begins with one of these words, or with a variable.
PROGRAMS = {"tlt", "build/tlt", "python3", "echo", "cat", "curl", "export", "source", "openssl", "make", "hf", "pip",
            "sudo", "docker", "apptainer", "torchrun", "mpirun", "srun", "sbatch", "kubectl", "sysctl", "sha256sum",
            "cmake", "ctest", "git", "wget", "apt-get", "ssh", "for", "cd", "mkdir", "tensorboard"}  # fmt: skip
PROGRAM_FILE = re.compile(r"(?:bench|build|tools|tests|setup)/[\w./-]+$")
VARIABLE = re.compile(r"[A-Z_]+=\S*$")


@dataclass
class Block:
    """A code block: where it is, its language (of an indented one None), its lines."""

    page: str
    line: int
    language: str
    lines: list

    @property
    def place(self):
        return f"{self.page}:{self.line}"

    def has_commands(self):
        if self.language not in (None, "", "sh", "bash", "shell", "console"):
            return False
        first = next((line.split() for line in self.lines if line.strip() and not line.startswith("#")), [])
        return bool(first) and is_program(first[0])


@dataclass
class Command:
    """What a shell runs as a whole: with its continued lines and here-documents."""

    place: str
    text: str

    def words(self):
        """Those before a pipe or redirection, without quotes and variables."""
        found = re.findall(r"(?:[^\s'\"]|'[^']*'|\"[^\"]*\")+", self.text)
        return [word.replace("'", "").replace('"', "") for word in found if not VARIABLE.match(word)]


def is_program(word):
    return word in PROGRAMS or bool(PROGRAM_FILE.match(word)) or bool(VARIABLE.match(word))


def blocks_of(page, text):
    """Fenced blocks, and those that are indented by four spaces after an empty line."""
    found, fenced, was_empty = [], None, True
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            fenced = None if fenced else Block(page, number + 1, line[3:].strip(), [])
            found += [fenced] if fenced else []
        elif fenced:
            fenced.lines.append(line)
        elif line.startswith("    ") and (was_empty or (found and found[-1].line + len(found[-1].lines) == number)):
            if was_empty or found[-1].language is not None:
                found.append(Block(page, number, None, []))
            found[-1].lines.append(line[4:])
        was_empty = not line.strip()
    return found


def commands_of(block):
    """The commands of a block that has some."""
    found, end = [], None
    for number, line in enumerate(block.lines, block.line):
        continues = found and found[-1].text.endswith("\\")
        if end is not None or continues:
            found[-1].text += "\n" + line
        elif line.strip() and not line.startswith("#"):
            found.append(Command(f"{block.page}:{number}", line))
        else:
            continue
        if end is None:
            here = re.search(r"<<-?\s*'?(\w+)'?", line)
            end = here[1] if here else None
        elif line.strip() == end:
            end = None
    return found
