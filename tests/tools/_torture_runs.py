# SPDX-License-Identifier: Apache-2.0
"""One run of tlt under torture.py: its command, its processes, and the digests of its results."""

import hashlib
import json
import os
import pathlib
import signal
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
STEPS = 3
POLL_SECONDS = 0.002
MASTER_PORT = 29500

# `tlt train` of recipes/demo.toml in small, as in tests/support/small_run.h, with idle training and early gradients.
SMALL_RUN = [
    "model.path=tests/data/small_model",
    f"trainer.total_training_steps={STEPS}", "data.train_batch_size=4", "rollout.n=4",
    "data.max_response_length=200", "trainer.val_before_train=false", "trainer.test_freq=0", "trainer.save_freq=1",
    "trainer.max_ckpt_to_keep=0", "trainer.threads=1", "trainer.timeout_seconds=100",
    "actor.ppo_max_token_len_per_gpu=400", "actor.ppo_mini_batch_size=2",
    "actor.use_kl_loss=true", "actor.entropy_coeff=0.001", "speculative.train.gap_share=0.5",
    "speculative.train.step_tokens=512", "speculative.train.optim.lr=0.004",
]
# Options that change the results: each needs a reference of its own. Those of the second list do not.
VARIANTS = {
    "full": [],
    "adapter": ["model.lora_rank=3", "model.lora_alpha=12", "actor.optim.lr=1e-3"],
    "dynamic_sampling": ["algorithm.filter_groups.enable=true", "data.gen_batch_size=3", "data.train_max_samples=3"],
}
SAME_RESULTS = [[], ["actor.use_distributed_optimizer=true"], ["actor.early_gradients=false"]]

RESULTS = ["checkpoints/step_*/policy/model.safetensors", "checkpoints/step_*/adapter/adapter_model.safetensors",
           "checkpoints/step_*/state/optimizer.safetensors", "checkpoints/step_*/state/loop.json", "rollouts/*.jsonl"]


JOB_SECRET = "torture" * 4  # of workers in network namespaces


class Problem(Exception):
    """What the campaign looks for; the fault's folder is kept."""


def sha256_of(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def digests_of(folder):
    """SHA-256 of every file that two runs of the same options must have in common, by relative path."""
    files = [path for pattern in RESULTS for path in sorted(folder.glob(pattern))]
    return {str(path.relative_to(folder)): sha256_of(path) for path in files}


def steps_of(folder):
    """The steps of metrics.jsonl; a sentence if it cannot be read."""
    try:
        return [json.loads(line)["step"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
    except (OSError, ValueError, KeyError) as error:
        return f"unreadable: {error!r}"


def differences(folder, wanted, exempt=()):
    """Sentences about results of the run in `folder` that are not those of `wanted`, of digests_of()."""
    got = digests_of(folder)
    found = []
    for name in sorted(set(got) | set(wanted)):
        if name in exempt:
            continue
        if name not in got:
            found.append(f"{name} is missing")
        elif name not in wanted:
            found.append(f"{name} is not in the undisturbed run")
        elif got[name] != wanted[name]:
            found.append(f"{name} differs")
    steps = steps_of(folder)
    if "metrics.jsonl" not in exempt and steps != list(range(1, STEPS + 1)):
        found.append(f"steps of metrics.jsonl: {steps}")
    found += [f"{path.relative_to(folder)} was left over" for path in folder.rglob("*.writing")]
    return found


def command_of(program, folder, variant, more):
    return [str(program), "train", "recipes/demo.toml", f"trainer.default_local_dir={folder}", *SMALL_RUN,
            *VARIANTS[variant], *more]


class Hosts:
    """Network namespaces, one per worker, with a cable each to a bridge. Needs root and iproute2."""

    def __init__(self, name, count):
        self.names = [f"{name}w{rank}" for rank in range(count)]
        self.hub = f"{name}hub"
        self.call("ip", "netns", "add", self.hub)
        self.in_hub("link", "add", "bridge", "type", "bridge")
        self.in_hub("link", "set", "bridge", "up")
        for rank, host in enumerate(self.names):
            self.call("ip", "netns", "add", host)
            self.in_hub("link", "add", f"cable{rank}", "type", "veth", "peer", "name", "cable", "netns", host)
            self.in_hub("link", "set", f"cable{rank}", "master", "bridge")
            self.in_hub("link", "set", f"cable{rank}", "up")
            self.call("ip", "-n", host, "addr", "add", f"{self.address(rank)}/24", "dev", "cable")
            for device in ("lo", "cable"):
                self.call("ip", "-n", host, "link", "set", device, "up")

    @staticmethod
    def address(rank):
        return f"10.231.78.{rank + 1}"

    @staticmethod
    def call(*command):
        return subprocess.run(command, check=True, capture_output=True, text=True)

    def in_hub(self, *words):
        self.call("ip", "-n", self.hub, *words)

    def set_cable(self, rank, state):
        """`state` is up or down. The hub's end, so that the worker keeps its routes."""
        self.in_hub("link", "set", f"cable{rank}", state)

    def shape(self, rank, *qdisc):
        """Delays, drops or slows what the worker receives."""
        self.call("ip", "netns", "exec", self.hub, "tc", "qdisc", "replace", "dev", f"cable{rank}", "root", *qdisc)

    def flood(self):
        """Sends every packet to all hosts, as a hub does: each can read what the others send."""
        self.in_hub("link", "set", "bridge", "type", "bridge", "ageing_time", "0")

    def remove(self):
        for name in [*self.names, self.hub]:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


class Run:
    """Running processes of one command: `tlt train --workers N`, or a rank in each of some network namespaces."""

    def __init__(self, command, workers, log, hosts=None, prepare=None, environment=None):
        self.command, self.workers, self.log, self.hosts = command, workers, log, hosts
        self.begin = time.monotonic()
        self.peak_kib = self.peak_address_kib = 0
        self.codes = {}
        self.members = []
        for rank in range(workers if hosts else 1):
            self.members.append(self.start(command, rank, prepare, environment or {}))

    def start(self, command, rank, prepare, environment):
        if self.hosts:
            environment = {**environment, "RANK": str(rank), "WORLD_SIZE": str(self.workers),
                           "MASTER_ADDR": self.hosts.address(0), "MASTER_PORT": str(MASTER_PORT),
                           "TLT_JOB_SECRET": JOB_SECRET}
            command = ["ip", "netns", "exec", self.hosts.names[rank], *command]
        elif self.workers > 1:
            command = [*command, "--workers", str(self.workers)]
        with open(self.log, "ab") as output:
            return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                    start_new_session=True, preexec_fn=prepare, env={**os.environ, **environment})

    def add(self, member):
        """A process that has joined the run, of subprocess.Popen()."""
        self.members.append(member)

    def running(self):
        return [member for member in self.members if member.pid not in self.codes]

    def worker_pids(self):
        """Of the workers that run, in the order of ranks. Fewer while they are being started."""
        if self.hosts or self.workers == 1:
            return [member.pid for member in self.running()]
        try:
            pid = self.members[0].pid
            return [int(word) for word in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        except OSError:
            return []

    def poll(self):
        """True while a process runs."""
        for member in self.running():
            self.look_at(member.pid)
            pid, status, usage = os.wait4(member.pid, os.WNOHANG)
            if pid:
                self.codes[pid] = member.returncode = os.waitstatus_to_exitcode(status)
                self.peak_kib = max(self.peak_kib, usage.ru_maxrss)
        return bool(self.running())

    def look_at(self, pid):
        if self.workers > 1:
            return
        try:
            for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
                if line.startswith("VmPeak:"):
                    self.peak_address_kib = int(line.split()[1])
        except (OSError, ValueError):
            pass

    def wait_until(self, moment, bound):
        """False: the run ended, or `bound` seconds passed, before moment(seconds since the start) was true."""
        while self.poll():
            seconds = time.monotonic() - self.begin
            if moment(seconds):
                return True
            if seconds > bound:
                return False
            time.sleep(POLL_SECONDS)
        return False

    def wait(self, bound):
        """The exit codes, 128 + n after signal n as shells count; None: processes still run after `bound` seconds."""
        end = time.monotonic() + bound
        while self.poll():
            if time.monotonic() > end:
                return None
            time.sleep(0.02)
        return [128 - code if code < 0 else code for code in self.codes.values()]

    def signal_all(self, number):
        for member in self.running():
            try:
                os.killpg(member.pid, number)
            except ProcessLookupError:
                pass

    def kill(self):
        self.signal_all(signal.SIGKILL)
        while self.poll():
            time.sleep(POLL_SECONDS)

    def survivors(self):
        """Processes of its sessions that are alive although their parents ended."""
        sessions = {member.pid for member in self.members}
        found = []
        for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:
                name, fields = stat.read_text().rsplit(")", 1)
            except OSError:
                continue
            fields = fields.split()
            if int(fields[3]) in sessions and fields[0] not in "ZX":
                found.append(name + ")")
        return found

    def stacks(self):
        """Where every thread waits, for a run that hangs."""
        lines = []
        for pid in self.worker_pids():
            for task in sorted(pathlib.Path(f"/proc/{pid}/task").glob("*")):
                try:
                    lines.append(f"{pid} {task.name} {(task / 'comm').read_text().strip()} "
                                 f"{(task / 'wchan').read_text()} {(task / 'syscall').read_text().strip()}")
                except OSError:
                    continue
        return "\n".join(lines) + "\n"
