#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares finished runs of tlt train with what tlt simulate predicts for them.

    python tools/predict_check.py runs/demo [RUN ...] [--rounds 3] [--program build/tlt] [--within 0.1]

For each run: `tlt bench forward` and `tlt bench train` measure the costs on this machine, in as many processes at a
time as the run had workers, and passes also in one, as while the others wait; `tlt simulate` then rolls out the run's
own responses with them, step by step. Printed are seconds of a step and of its rollouts, and the idle share of the
workers, predicted and measured, as means of the run's steps after the first, which also measures what speculation
costs. From the run are its responses: their lengths, and the tokens in which suffix drafts are looked up
(`tlt bench suffix`); nothing is fitted to its times.
Needs a quiet machine, the one of the run. With --rounds its options are run again, so often, in turns with the
measurement of costs, and what these runs took counts: then a machine that is faster on one day than on another one is
met too. Exit code 1 if a prediction is off by more than --within (idle shares: by so much of the workers' time).
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import tomllib

ROWS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128)  # of passes, up to the sequences of a step
TREE_ROWS = (2, 4)  # of each sequence, where several have draft trees
CONTEXTS = (64, 512, 2048)  # up to the first one that no response is longer than
GROUP_ESTIMATORS = ("grpo", "grpo_passk", "pass_at_k", "rloo", "opo", "gpg", "max_rl")  # equal scores: no advantage
SEEDS = 4  # simulations of which the mean counts: which tokens of the draft model are accepted is drawn
PACKS = 2  # of the update that is measured
DEVICE_PEAK = 0.233e12  # of the simulator's device cpu


class Failure(Exception):
    """What the user has to change."""


def read_json_lines(path):
    if not path.is_file():
        raise Failure(f"{path} is missing; give the folder of a finished run of tlt train")
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


class Run:
    """A run's options and metrics."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        if not (self.folder / "options.toml").is_file():
            raise Failure(f"{folder} has no options.toml; give the folder of a finished run of tlt train")
        with open(self.folder / "options.toml", "rb") as file:
            self.options = tomllib.load(file)
        self.steps = [row for row in read_json_lines(self.folder / "metrics.jsonl") if "timing_s/step" in row][1:]
        if not self.steps:
            raise Failure(f"{folder}/metrics.jsonl has fewer than two steps; let the run finish them")

    def option(self, name):
        value = self.options
        for part in name.split("."):
            value = value[part]
        return value

    def mean(self, name, default=None):
        values = [row[name] for row in self.steps if name in row]
        if not values:
            if default is not None:
                return default
            raise Failure(f"{self.folder}/metrics.jsonl has no {name}")
        return sum(values) / len(values)

    def copy_rollouts(self, folder):
        """Those of the steps that count."""
        os.makedirs(folder)
        for row in self.steps:
            name = f"{row['step']:06}.jsonl"
            try:
                shutil.copy(self.folder / "rollouts" / name, folder)
            except FileNotFoundError as missing:
                raise Failure(f"{self.folder}/rollouts/{name} is missing; give a run with all its rollouts") from missing

    def sequences(self):
        """Of a step."""
        return self.option("data.train_batch_size") * self.option("rollout.n")

    def mean_context(self):
        """Mean of the responses' lengths, weighted by them: attention takes as long as if all had this length."""
        lengths = [row["response_tokens"] for step in self.steps
                   for row in read_json_lines(self.folder / "rollouts" / f"{step['step']:06}.jsonl")]  # fmt: skip
        return round(sum(length * length for length in lengths) / sum(lengths))

    def pack_tokens(self):
        """Of a pack of the update: smaller ones take longer for each token."""
        full = self.option("actor.ppo_max_token_len_per_gpu")
        packs = self.mean("actor/packs", 0)
        trained = self.mean("rollout/tokens", 0)
        if self.zero_std() == "skip":
            trained *= 1 - self.mean("rollout/frac_reward_zero_std", 0)
        return min(full, trained / packs) if packs > 0 else full

    def zero_std(self):
        """What the update does with groups whose scores are all the same."""
        actor, algorithm = self.option("actor"), self.option("algorithm")
        if (actor["entropy_coeff"] > 0 or actor["use_kl_loss"] and actor["kl_loss_coef"] > 0
                or algorithm["adv_estimator"] not in GROUP_ESTIMATORS or algorithm["use_kl_in_reward"]
                or self.option("distillation.teacher")):  # fmt: skip
            return "train"
        return "skip" if actor["ppo_mini_batch_size"] == 0 and actor["ppo_epochs"] == 1 else "forward"

    def workers(self):
        return round(self.mean("rollout/workers"))

    def way(self):
        way = "plain"
        if self.option("speculative.enable"):
            way = "tlt" if "eagle" in self.option("speculative.drafters") else "model-free"
        return way + "-early" if self.mean("rollout/early_gradient_seconds", 0) > 0 else way

    def model_config(self):
        path = pathlib.Path(self.option("model.path")) / "config.json"
        with open(path, encoding="utf-8") as file:
            return json.load(file)


def model_name(config):
    known = {(8, 512): "headline", (12, 128): "demo"}
    name = known.get((config["num_hidden_layers"], config["hidden_size"]))
    if name is None:
        raise Failure("tlt simulate has no shape of this model; models/demo and models/headline are known here")
    return name


def run_program(words):
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        raise Failure(f"{' '.join(words)}: {ended.stderr.strip()}")
    return [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]


def run_together(words, workers, processes=None):
    """Lines of as many processes at a time as there are workers, or of fewer."""
    words = [*words, "--threads", str(max(1, (os.cpu_count() or 1) // workers))]
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        return list(pool.map(run_program, [words] * (processes or workers)))


def mean_line(lines):
    """Numbers are averaged; the rest is that of the first line."""
    mean = dict(lines[0])
    for key, value in mean.items():
        if isinstance(value, float):
            mean[key] = sum(line[key] for line in lines) / len(lines)
    return mean


def measure_forward(program, run, processes):
    """Lines of `tlt bench forward`, means over the processes."""
    longest = max(row["response_length/max"] for row in run.steps)
    sizes = [rows for rows in ROWS if rows <= max(4, run.sequences())]
    positions = run.model_config().get("max_position_embeddings", CONTEXTS[-1] + sizes[-1])
    mean_lines = []
    for context in CONTEXTS[: 1 + sum(context < longest for context in CONTEXTS)]:
        words = [program, "bench", "forward", "--model", run.option("model.path"), "--rows", ",".join(map(str, sizes)),
                 "--as", "tree,trees,sequences", "--tree-rows", ",".join(map(str, TREE_ROWS)),
                 "--context", str(min(context, positions - sizes[-1])), "--repeat", "60"]  # fmt: skip
        mean_lines += map(mean_line, zip(*run_together(words, run.workers(), processes)))
    return mean_lines


def prompt_tokens(run):
    return max(1, round(run.mean("prompt_length/mean")))


def measure_update(program, run):
    """costs.train_efficiency: as CostModel::training in src/simulate/cost_model.cpp, solved for it."""
    config = run.model_config()
    length, tokens = run.mean_context(), run.pack_tokens()
    samples = min(run.option("rollout.n"), max(1, round(tokens / length)))
    prompts = max(1, round(PACKS * tokens / (samples * length)))
    words = [program, "bench", "train", "--model", run.option("model.path"), "--prompts", str(prompts), "--samples",
             str(samples), "--prompt-tokens", str(prompt_tokens(run)), "--new-tokens", str(length), "--repeat", "4"]
    line = mean_line([lines[-1] for lines in run_together(words, run.workers())])
    hidden, layers, heads = config["hidden_size"], config["num_hidden_layers"], config["num_attention_heads"]
    head = config.get("head_dim", hidden // heads)
    attention = hidden * head * (2 * heads + 2 * config["num_key_value_heads"])
    parameters = layers * (attention + 3 * hidden * config["intermediate_size"]) + config["vocab_size"] * hidden
    operations = 6 * parameters + 12 * layers * heads * head * length / 2
    return operations * line["train_tokens_per_second"] / DEVICE_PEAK


class Costs:
    """Measured passes and updates: means of all measurements so far."""

    def __init__(self, program, run):
        self.program, self.run = program, run
        self.forwards, self.alone, self.efficiencies = [], [], []
        self.measure()

    def measure(self):
        self.forwards.append(measure_forward(self.program, self.run, self.run.workers()))
        if self.run.workers() > 1:
            self.alone.append(measure_forward(self.program, self.run, processes=1))
        self.efficiencies.append(measure_update(self.program, self.run))

    @staticmethod
    def write(measurements, path):
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(mean_line(lines)) + "\n" for lines in zip(*measurements))

    def train_efficiency(self):
        return sum(self.efficiencies) / len(self.efficiencies)


def write_tokens(program, run, rollouts, path):
    words = ["--model", run.option("model.path"), "--rollouts", rollouts, "--out", path]
    run_program([program, "bench", "suffix", *words])


def run_again(program, run, folder):
    """A run of the same options; its folder is new."""
    run_program([program, "train", str(run.folder / "options.toml"), f"trainer.default_local_dir={folder}",
                 "--workers", str(run.workers())])
    return Run(folder)


def predict(program, run, costs, folder):
    config = run.model_config()
    forward, alone, rollouts, suffix = (
        f"{folder}/{name}" for name in ("forward.jsonl", "alone.jsonl", "rollouts", "suffix.jsonl"))  # fmt: skip
    costs.write(costs.forwards, forward)
    run.copy_rollouts(rollouts)
    write_tokens(program, run, rollouts, suffix)
    options = {
        "device": "cpu", "model": model_name(config), "workers": run.workers(), "ways": run.way(),
        "total_training_steps": len(run.steps), "train_batch_size": run.option("data.train_batch_size"),
        "n": run.option("rollout.n"), "prompt_length": prompt_tokens(run),
        "max_response_length": run.option("data.max_response_length"), "lengths": f"rollouts:{rollouts}",
        "max_num_seqs": run.option("rollout.max_num_seqs"),
        "ppo_max_token_len_per_gpu": run.option("actor.ppo_max_token_len_per_gpu"), "draft_acceptance": 0,
        "bench_suffix": suffix, "bench_forward": forward, "stride": 1,
        "zero_std": run.zero_std(),
        "costs.train_efficiency": f"{costs.train_efficiency():.4g}"}
    if costs.alone:
        costs.write(costs.alone, alone)
        options["bench_forward_alone"] = alone
    words = [program, "simulate", *(f"{name}={value}" for name, value in options.items()), "--json"]
    return mean_line([run_program([*words, f"seed={seed}"])[0] for seed in range(SEEDS)])


def errors_of(runs, predicted):
    """(what, predicted, measured, error), the error of a share as a difference. `runs`: of the same options."""
    def mean(name):
        return sum(run.mean(name) for run in runs) / len(runs)

    for what, ours, theirs in (("step, s", "step_seconds", "timing_s/step"),
                               ("rollout, s", "rollout_seconds", "timing_s/gen")):
        measured = mean(theirs)
        yield what, predicted[ours], measured, predicted[ours] / measured - 1
    measured = mean("rollout/idle_share")
    yield "idle share", predicted["idle_share"], measured, predicted["idle_share"] - measured


def compare(program, run, rounds, scratch):
    """errors_of() the run, or of `rounds` runs of its options."""
    costs, runs = Costs(program, run), []
    for number in range(rounds):
        runs.append(run_again(program, run, f"{scratch}/run_{number}"))
        costs.measure()
    runs = runs or [run]
    return errors_of(runs, predict(program, runs[0], costs, scratch))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", metavar="RUN")
    parser.add_argument("--program", default="build/tlt")
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--within", type=float, default=0.1)
    arguments = parser.parse_args()
    is_within = True
    print(f"{'run':<28}{'way':<11}{'workers':>8}  {'':<12}{'predicted':>10}{'measured':>10}{'error':>8}")
    for folder in arguments.runs:
        run = Run(folder)
        with tempfile.TemporaryDirectory() as scratch:
            errors = list(compare(arguments.program, run, arguments.rounds, scratch))
        for what, ours, theirs, error in errors:
            print(f"{folder:<28}{run.way():<11}{run.workers():>8}  {what:<12}{ours:>10.3f}{theirs:>10.3f}{error:>+8.0%}")
            is_within = is_within and abs(error) <= arguments.within
    return 0 if is_within else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as failure:
        sys.exit(f"predict_check.py: {failure}")
