#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Disturbs small runs by random faults and requires the results of an undisturbed run.

  make torture                                            1,000 faults, seed 1: many hours; continues where it was
  tests/tools/torture.py --seed 7 --faults 50                   others
  tests/tools/torture.py --out FOLDER --kinds damage,partition --faults 10   these kinds only
  tests/tools/torture.py --out FOLDER --plant weights --faults 1       changes a byte of the results: must be reported

Each fault is one run of recipes/demo.toml in small, with 1 to 4 workers. It is killed, stopped, cut off, or gets a
full, slow, failing or read-only disk, too little memory or too few descriptors, at a moment that the seed decides, or
its files are damaged between two runs. Then the same command must finish it, with exit codes of docs/launching.md and
within a bound. Weights, optimizer state and rollouts of all steps must be those of an undisturbed run, by SHA-256.

OUT/faults.jsonl has a line per fault, OUT/report.md the table. The folder of a fault with a problem stays in OUT.
Kinds that this machine cannot have (root, namespaces, netem) are named and left out. Exit code 1: there were problems.
"""

import argparse
import collections
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import time

from _torture_faults import KINDS
from _torture_runs import (ROOT, SAME_RESULTS, STEPS, VARIANTS, Problem, Run, command_of, differences,
                           digests_of)

DOCUMENTED = {0, 1, 2, 3, 130, 143}
KILLED = 137  # of a worker or of a member that the fault may have ended by SIGKILL
INTERNALS = re.compile(r"terminate called|frame #|what\(\):|core dumped|Segmentation|LOG ERROR|Sanitizer")
MOST_STARTS = 5
PLANTS = ("weights", "rollouts", "exit_code", "hang")


class Scene:
    """Where a fault happens: the folders, the size of an undisturbed run, and what the fault adds."""

    def __init__(self, out, number, reference):
        self.out, self.base = out, out / f"fault_{number:05}"
        self.disk = self.base / "disk"
        self.folder = self.disk / "run"
        self.log = self.base / "log"
        self.hosts, self.prefix, self.workers = None, [], 1
        for name, value in reference["size"].items():
            setattr(self, name, value)
        shutil.rmtree(self.base, ignore_errors=True)
        self.disk.mkdir(parents=True)


class Campaign:
    def __init__(self, arguments):
        self.arguments = arguments
        self.out = arguments.out.resolve()
        if (self.out / "campaign.json").exists():
            if arguments.fresh:
                shutil.rmtree(self.out)
        elif self.out.exists() and any(self.out.iterdir()):
            sys.exit(f"torture: {self.out} holds other things than a campaign; give another --out")
        self.out.mkdir(parents=True, exist_ok=True)
        self.version = subprocess.run([str(arguments.program), "--version"], check=True, capture_output=True,
                                      text=True).stdout.strip()
        missing = {name: KINDS[name].missing() for name in arguments.kinds}
        self.skipped = {name: why for name, why in missing.items() if why}
        self.kinds = [name for name in arguments.kinds if name not in self.skipped]
        if not self.kinds:
            sys.exit(f"torture: none of the kinds is possible here: {self.skipped}")
        self.references = {}

    # ---- the undisturbed run

    def reference(self, variant):
        """Digests and sizes of the undisturbed run of a variant, made once per program."""
        path = self.out / f"reference_{variant}.json"
        if variant not in self.references and path.exists():
            kept = json.loads(path.read_text())
            if kept["program"] == self.version:
                self.references[variant] = kept
        if variant not in self.references:
            self.references[variant] = self.make_reference(variant)
            path.write_text(json.dumps(self.references[variant], indent=1))
        return self.references[variant]

    def make_reference(self, variant):
        folder, log = self.out / f"reference_{variant}", self.out / f"reference_{variant}.log"
        shutil.rmtree(folder, ignore_errors=True)
        run = Run(command_of(self.arguments.program, folder, variant, []), 1, log)
        begin = time.monotonic()
        codes = run.wait(self.arguments.bound)
        if codes != [0]:
            run.kill()
            sys.exit(f"torture: the undisturbed run failed ({codes}): {log}")
        files = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
        size = {"seconds": time.monotonic() - begin, "folder_bytes": sum(files), "largest_bytes": max(files),
                "memory_bytes": run.peak_kib << 10, "address_bytes": run.peak_address_kib << 10}
        digests = digests_of(folder)
        if len(digests) < 3 * STEPS or differences(folder, digests):
            sys.exit(f"torture: the undisturbed run is not whole: {folder}")
        shutil.rmtree(folder)
        return {"program": self.version, "size": size, "digests": digests}

    # ---- one fault

    def run_fault(self, number):
        """The line of the log. Draws another moment, at most MOST_STARTS times, when the run ended before it."""
        for attempt in range(MOST_STARTS):
            choice = random.Random(f"{self.arguments.seed}/{number}/{attempt}")
            kind = self.kinds[number % len(self.kinds)]
            variant = choice.choices(list(VARIANTS), weights=[4, 1, 1])[0]
            scene = Scene(self.out, number, self.reference(variant))
            fewest = KINDS[kind].min_workers
            scene.workers = choice.randint(fewest, max(fewest, self.arguments.workers))
            line = {"fault": number, "seed": self.arguments.seed, "attempt": attempt, "kind": kind,
                    "variant": variant, "workers": scene.workers, "program": self.version}
            fault = KINDS[kind](choice, scene)
            line |= {"options": choice.choice(SAME_RESULTS), "exit_codes": []}
            begin = time.monotonic()
            try:
                fault.set_up()
                self.disturb(fault, scene, line, choice)
                if line["outcome"] == "missed" and attempt + 1 < MOST_STARTS:
                    continue
                self.compare(fault, scene, variant)
            except Problem as problem:
                line |= {"outcome": "problem", "problem": str(problem), "folder": str(scene.base)}
                self.keep(scene)
            finally:
                fault.tear_down()
            line |= fault.details | {"seconds": round(time.monotonic() - begin, 1)}
            if line["outcome"] != "problem":
                shutil.rmtree(scene.base, ignore_errors=True)
            return line

    def disturb(self, fault, scene, line, choice):
        """Runs, strikes and finishes the run; writes into `line` what happened, also before a Problem."""
        command = command_of(self.arguments.program, scene.folder, line["variant"], line["options"])
        moment, text = self.draw_moment(scene, choice, fault.is_early)
        run = Run(command, scene.workers, scene.log, scene.hosts, **fault.launch())
        try:
            bound = self.arguments.bound + fault.extra_seconds
            if fault.has_moment:
                line["moment"] = text
                if run.wait_until(moment, bound):
                    fault.strike(run)
                    line["struck_after"] = round(time.monotonic() - run.begin, 2)
                else:
                    line["outcome"] = "missed"
            struck = time.monotonic()
            codes = self.finish(run, scene, bound, line)
            line["seconds_to_end"] = round(time.monotonic() - struck, 1)
        finally:
            run.kill()
        allowed = DOCUMENTED | ({KILLED} if fault.kills else set())
        self.check_end(run, scene, codes, allowed, fault.kills)
        if "outcome" in line:
            return
        fault.remove()
        others = [code for code in codes if not (fault.kills and code == KILLED)]
        is_done = others and all(code == 0 for code in others) and not fault.may_refuse
        line["outcome"] = "continued" if is_done else self.resume(fault, scene, command, line)

    @staticmethod
    def draw_moment(scene, choice, is_early):
        """A time, or a time after a file appears: a step's rollouts (its update begins), its checkpoint, half written
        or whole (the next rollouts begin)."""
        if not is_early and choice.random() < 0.4:
            at = choice.uniform(0, 1.2 * scene.seconds)
            return (lambda seconds: seconds >= at), f"after {at:.2f} s"
        step, delay = choice.randint(1, STEPS), choice.choice([0, choice.uniform(0, scene.seconds / STEPS / 2)])
        if is_early:
            step, delay = 1, 0
        name = choice.choice([f"rollouts/{step:06}.jsonl", f"checkpoints/step_{step:06}.writing",
                              f"checkpoints/step_{step:06}"])
        first = []

        def moment(seconds):
            if not first and (scene.folder / name).exists():
                first.append(seconds)
            return bool(first) and seconds >= first[0] + delay
        return moment, f"{delay:.3f} s after {name}"

    def finish(self, run, scene, bound, line):
        if self.arguments.plant == "hang":
            bound = 0
        codes = run.wait(bound)
        if codes is None:
            (scene.base / "threads.txt").write_text(run.stacks())
            raise Problem(f"no end within {bound:.0f} s")
        if self.arguments.plant == "exit_code":
            codes = [77]
        line["exit_codes"].append(codes)
        return codes

    @staticmethod
    def check_end(run, scene, codes, allowed, kills):
        unknown = [code for code in codes if code not in allowed]
        if unknown:
            raise Problem(f"exit code {unknown[0]} is not documented")
        found = INTERNALS.search(scene.log.read_text(errors="replace"))
        if found:
            raise Problem(f"the log has internals: {found.group()}")
        if not kills and run.survivors():
            raise Problem(f"processes survived the run: {run.survivors()}")

    def resume(self, fault, scene, command, line):
        """Starts the same command again until it is finished. Returns the outcome."""
        outcome = "resumed"
        for _ in range(MOST_STARTS):
            begin = time.monotonic()
            written = scene.log.stat().st_size
            run = Run(scene.prefix + command, scene.workers, scene.log, scene.hosts)
            try:
                codes = self.finish(run, scene, self.arguments.bound, line)
            finally:
                run.kill()
            self.check_end(run, scene, codes, DOCUMENTED, kills=False)
            if all(code == 0 for code in codes):
                line["seconds_to_resume"] = round(time.monotonic() - begin, 1)
                return outcome
            said = scene.log.read_bytes()[written:].decode(errors="replace")
            if not fault.may_refuse or outcome != "resumed" or str(scene.folder) not in said:
                raise Problem(f"the same command ended with the codes {codes}: {last_error(said)}")
            line["refusal"] = last_error(said)
            outcome = "refused by name, repaired"
            fault.restore()
        raise Problem("the same command does not finish the run")

    def compare(self, fault, scene, variant):
        fault.settle()
        self.plant(scene.folder)
        found = differences(scene.folder, self.reference(variant)["digests"], fault.exempt)
        if found:
            raise Problem("; ".join(found[:4]) + (f"; and {len(found) - 4} more" if len(found) > 4 else ""))

    def plant(self, folder):
        """A difference that compare() must find."""
        if self.arguments.plant == "weights":
            path = folder / f"checkpoints/step_{STEPS:06}/policy/model.safetensors"
            data = bytearray(path.read_bytes())
            data[-1] ^= 1
            path.write_bytes(data)
        elif self.arguments.plant == "rollouts":
            path = folder / f"rollouts/{STEPS:06}.jsonl"
            path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))

    @staticmethod
    def keep(scene):
        """Copies the run folder from a disk that is unmounted soon."""
        if os.path.ismount(scene.disk):
            shutil.copytree(scene.disk, scene.base / "kept", dirs_exist_ok=True)

    # ---- all faults

    def run(self):
        lines = self.done()
        with open(self.out / "faults.jsonl", "a", encoding="utf-8") as log:
            for number in range(self.arguments.faults):
                if number in lines:
                    continue
                lines[number] = line = self.run_fault(number)
                log.write(json.dumps(line) + "\n")
                log.flush()
                print(f"{number + 1}/{self.arguments.faults} {line['kind']}, {line['workers']} workers, "
                      f"{line['seconds']} s: {line.get('problem', line['outcome'])}", flush=True)
        text = report(lines, self.skipped)
        (self.out / "report.md").write_text(text)
        print(text)
        has_problem = any(line["outcome"] == "problem" for line in lines.values())
        if self.arguments.remove and has_problem == bool(self.arguments.plant):
            shutil.rmtree(self.out)
        return 1 if has_problem else 0

    def done(self):
        """The faults of the log, by number. The log of another seed, other kinds or another plant is refused."""
        path, header = self.out / "campaign.json", {"seed": self.arguments.seed, "kinds": self.kinds,
                                                    "workers": self.arguments.workers}
        if self.arguments.plant:
            header["plant"] = self.arguments.plant
        if path.exists() and json.loads(path.read_text()) != header:
            sys.exit(f"torture: {self.out} has faults of another campaign; give another --out")
        path.write_text(json.dumps(header))
        log = self.out / "faults.jsonl"
        rows = []
        for text in log.read_text().splitlines() if log.exists() else []:
            try:
                rows.append(json.loads(text))
            except ValueError:  # the line at which this program was killed
                continue
        return {row["fault"]: row for row in rows if row["fault"] < self.arguments.faults}


def last_error(text):
    said = [line for line in text.splitlines() if line.startswith("tlt")]
    return said[-1] if said else text.strip()[-300:]


def report(lines, skipped):
    """The table of the note: kinds, outcomes, worst times."""
    outcomes = ["continued", "resumed", "refused by name, repaired", "missed", "problem"]
    text = [f"{len(lines)} faults, seeds {sorted({line['seed'] for line in lines.values()})}, "
            f"programs {sorted({line['program'] for line in lines.values()})}", "",
            "| fault | runs | " + " | ".join(outcomes) + " | longest to the end, s | longest in all, s |",
            "|---" * (len(outcomes) + 4) + "|"]
    by_kind = collections.defaultdict(list)
    for line in lines.values():
        by_kind[line["kind"]].append(line)
    for kind, rows in [*sorted(by_kind.items()), ("all", list(lines.values()))]:
        counts = [str(sum(row["outcome"] == outcome for row in rows)) for outcome in outcomes]
        text.append(f"| {kind} | {len(rows)} | " + " | ".join(counts) +
                    f" | {max((row.get('seconds_to_end', 0) for row in rows), default=0)}"
                    f" | {max((row['seconds'] for row in rows), default=0)} |")
    text += ["", *(f"Skipped: {kind} ({why})" for kind, why in skipped.items())]
    text += [f"Problem of fault {line['fault']} ({line['kind']}): {line['problem']}; {line['folder']}"
             for line in lines.values() if line["outcome"] == "problem"]
    return "\n".join(text) + "\n"


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=pathlib.Path, default=ROOT / "build/tlt")
    parser.add_argument("--out", type=pathlib.Path, help="folder of the campaign (default: runs/torture/seed_SEED)")
    parser.add_argument("--fresh", action="store_true", help="delete the faults of an earlier campaign in --out")
    parser.add_argument("--remove", action="store_true",
                        help="delete --out in the end, if there was no problem or with --plant one")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=4, help="most workers of a run")
    parser.add_argument("--bound", type=float, default=300, help="seconds that a run may take before it counts as hung")
    parser.add_argument("--kinds", default=",".join(KINDS), help="of " + ", ".join(KINDS))
    parser.add_argument("--plant", choices=PLANTS, help="plants a problem that must be reported")
    arguments = parser.parse_args()
    arguments.out = arguments.out or ROOT / f"runs/torture/seed_{arguments.seed}"
    arguments.kinds = arguments.kinds.split(",")
    for name in arguments.kinds:
        if name not in KINDS:
            parser.error(f"--kinds: there is no {name}; use some of {', '.join(KINDS)}")
    if not os.access(arguments.program, os.X_OK):
        parser.error(f"no program {arguments.program}; type: make program, or give --program")
    arguments.program = arguments.program.resolve()
    return arguments


def enter_mount_namespace():
    """Mounts of faults vanish with this process, however it ends."""
    if os.geteuid() != 0 or "TORTURE_NAMESPACE" in os.environ:
        return
    if subprocess.run(["unshare", "-m", "true"], check=False, capture_output=True).returncode == 0:
        os.environ["TORTURE_NAMESPACE"] = "1"
        os.execvp("unshare", ["unshare", "-m", sys.executable, *sys.argv])


def main():
    arguments = parse_arguments()
    enter_mount_namespace()
    return Campaign(arguments).run()


if __name__ == "__main__":
    sys.exit(main())
