#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes arithmetic word problems in the form of GSM8K: {"question", "answer"}, the answer's last line "#### N".

  python3 tools/word_problems.py OUT_DIR [--seed 0]

  OUT_DIR/train.jsonl   8,192 problems to train on
  OUT_DIR/test.jsonl      512 held-out problems
  OUT_DIR/sft.jsonl    65,536 demonstrations of a hasty student, who leaves out the last step of every second problem and
                       so gives a wrong answer: the habit that RL has to remove

No question is in two files. A problem takes 2 to 4 steps with integers from 1 to 60. The same seed writes the same
files.
"""
import argparse
import json
import os
import random

NAMES = ["Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gina", "Hugo", "Ida", "Jan", "Kim", "Leo"]
ITEMS = ["apples", "books", "cards", "coins", "eggs", "marbles", "pencils", "shells", "stamps", "stickers"]
CONTAINERS = ["bags", "boxes", "jars", "packs"]
LARGEST = 60  # of all numbers in a problem
LARGEST_CHANGE = 20
HASTE = 0.5  # share of the demonstrations that leave out the last step


class Problem:
    """The story and the solution so far, and the current number of items."""

    def __init__(self, rng):
        self.rng = rng
        self.name, self.friend = rng.sample(NAMES, 2)
        self.item = rng.choice(ITEMS)
        self.story, self.solution, self.counts = [], [], []

    def calculate(self, left, operation, right):
        """Returns the expression with GSM8K's calculator annotation and sets the count to its result."""
        value = {"+": left + right, "-": left - right, "*": left * right, "/": left // right}[operation]
        self.count = value
        self.counts.append(value)
        return f"{left} {operation} {right} = <<{left}{operation}{right}={value}>>{value}"

    def begin(self):
        if self.rng.random() < 0.5:
            self.count = self.rng.randint(4, LARGEST)
            self.story.append(f"{self.name} has {self.count} {self.item}.")
            return
        number, size = self.rng.choice(
            [(a, b) for a in range(2, 13) for b in range(2, 13) if a * b <= LARGEST])
        self.story.append(f"{self.name} has {number} {self.rng.choice(CONTAINERS)} with {size} {self.item} each.")
        self.solution.append(f"{self.name} has {self.calculate(number, '*', size)} {self.item}.")

    def step(self):
        """Adds an event after which the count is from 1 to LARGEST; the last event may need no such check."""
        rng, name, friend, item, before = self.rng, self.name, self.friend, self.item, self.count
        events = []
        if before <= LARGEST - 2:
            events += [self.find, self.receive]
        if before >= 4:
            events += [self.give, self.lose]
        if before * 2 <= LARGEST:
            events.append(self.double)
        if before % 2 == 0:
            events.append(self.sell_half)
        if before * 3 <= LARGEST:
            events.append(self.triple)
        rng.choice(events)(name, friend, item, before)

    def find(self, name, friend, item, before):
        more = self.rng.randint(2, min(LARGEST_CHANGE, LARGEST - before))
        self.story.append(f"{name} finds {more} more {item}.")
        self.solution.append(f"With the new ones {name} has {self.calculate(before, '+', more)} {item}.")

    def receive(self, name, friend, item, before):
        more = self.rng.randint(2, min(LARGEST_CHANGE, LARGEST - before))
        self.story.append(f"{friend} gives {name} {more} {item}.")
        self.solution.append(f"With those of {friend} there are {self.calculate(before, '+', more)} {item}.")

    def give(self, name, friend, item, before):
        less = self.rng.randint(2, min(LARGEST_CHANGE, before - 1))
        self.story.append(f"{name} gives {less} of the {item} to {friend}.")
        self.solution.append(f"{name} keeps {self.calculate(before, '-', less)} {item}.")

    def lose(self, name, friend, item, before):
        less = self.rng.randint(1, min(LARGEST_CHANGE, before - 1))
        self.story.append(f"Then {name} loses {less} {item}.")
        self.solution.append(f"After the loss there are {self.calculate(before, '-', less)} {item}.")

    def double(self, name, friend, item, before):
        self.story.append(f"The next day {name} has twice as many {item}.")
        self.solution.append(f"The next day there are {self.calculate(before, '*', 2)} {item}.")

    def triple(self, name, friend, item, before):
        self.story.append(f"A week later {name} has three times as many {item}.")
        self.solution.append(f"A week later there are {self.calculate(before, '*', 3)} {item}.")

    def sell_half(self, name, friend, item, before):
        self.story.append(f"{name} sells half of the {item}.")
        self.solution.append(f"{name} sells {self.calculate(before, '/', 2)} {item}, and as many are left.")

    def ask(self):
        """Asks for the count: how many are left, in each group, or together with a friend's."""
        rng, count = self.rng, self.count
        parts = [p for p in range(2, 13) if count % p == 0 and count // p >= 2]
        other = rng.randint(2, LARGEST_CHANGE)
        choice = rng.random()
        if choice < 0.3 and parts:
            number = rng.choice(parts)
            container = rng.choice(CONTAINERS)
            self.story.append(f"{self.name} puts the {self.item} equally into {number} {container}. "
                              f"How many {self.item} are in each of them?")
            self.solution.append(f"Each has {self.calculate(count, '/', number)} {self.item}.")
        elif choice < 0.6 and count + other <= LARGEST:
            self.story.append(f"{self.friend} has {other} {self.item}. How many {self.item} do they have together?")
            self.solution.append(f"Together they have {self.calculate(count, '+', other)} {self.item}.")
        else:
            self.story.append(f"How many {self.item} does {self.name} have now?")

    def row(self, is_hasty):
        solution, count = self.solution, self.count
        if is_hasty:
            solution, count = solution[:-1], self.counts[-2]
        return {"question": " ".join(self.story), "answer": "\n".join([*solution, f"#### {count}"])}


def make(rng, is_hasty):
    while True:
        problem = Problem(rng)
        problem.begin()
        for _ in range(rng.randint(1, 3)):
            problem.step()
        problem.ask()
        if 2 <= len(problem.solution) <= 4:
            return problem.row(is_hasty)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out_dir")
    parser.add_argument("--seed", type=int, default=0)
    flags = parser.parse_args()
    rng = random.Random(flags.seed)
    seen = set()
    os.makedirs(flags.out_dir, exist_ok=True)
    for name, count, haste in [("test", 512, 0), ("train", 8192, 0), ("sft", 65536, HASTE)]:
        rows = []
        while len(rows) < count:
            row = make(rng, rng.random() < haste)
            if row["question"] not in seen:
                seen.add(row["question"])
                rows.append(row)
        with open(os.path.join(flags.out_dir, name + ".jsonl"), "w", encoding="utf-8") as out:
            out.writelines(json.dumps(row) + "\n" for row in rows)


if __name__ == "__main__":
    main()
