# SPDX-License-Identifier: Apache-2.0
"""The kinds of faults of torture.py.

A fault takes part in a run at these points, in this order; each does nothing unless its kind says so:
  set_up()    before the run: its disk, its network
  launch()    limits and variables of the disturbed run
  strike()    at a random moment of the run
  remove()    when the run has ended: the cause is gone; or, for damaged files, comes
  restore()   after the program has refused by name to resume
  settle()    when the run is finished, before its results are compared
  tear_down() in the end, whatever happened
"""

import errno
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import time

from _torture_runs import JOB_SECRET, MASTER_PORT, ROOT, Hosts, Problem

HERE = pathlib.Path(__file__).resolve().parent
MISSING_ROWS = re.compile(r" W .*/metrics\.jsonl: \d+ of \d+ steps have no row")
CGROUPS = [pathlib.Path("/sys/fs/cgroup/memory"), pathlib.Path("/sys/fs/cgroup")]  # of version 1, 2


class Fault:
    has_moment = True       # strikes at a moment of the run
    kills = False           # may end processes by SIGKILL
    may_refuse = False      # the same command may refuse to resume, by the name of a file
    is_early = False        # strikes in the first step
    min_workers = 1
    extra_seconds = 0       # that the run may take longer

    def __init__(self, random, scene):
        self.random, self.scene, self.exempt = random, scene, set()
        self.details = {}   # for the log
        self.choose()

    @classmethod
    def missing(cls):
        """Why this machine cannot have the fault; empty: it can."""
        return ""

    def choose(self): pass
    def set_up(self): pass
    def launch(self): return {}
    def strike(self, run): pass
    def remove(self): pass
    def restore(self): pass
    def settle(self): pass
    def tear_down(self): pass

    def note(self, **details):
        self.details.update(details)

    def pick_worker(self, run):
        pids = run.worker_pids()
        rank = self.random.randrange(len(pids)) if pids else 0
        self.note(rank=rank)
        return pids[rank] if pids else run.members[0].pid


def send(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


class KillWorker(Fault):
    kills = True

    def strike(self, run):
        send(self.pick_worker(run), signal.SIGKILL)


class Join(Fault):
    """A worker is killed, if there are several, and another one joins the run."""
    kills = True
    is_early = True
    extra_seconds = 60

    def strike(self, run):
        pids = run.worker_pids()
        if len(pids) > 1:
            send(pids[-1], signal.SIGKILL)
        with open(self.scene.log, "ab") as output:
            joining = subprocess.Popen([*run.command, "--join"], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output,
                                       stderr=output, start_new_session=True)
        joined = re.compile(r"\d+ workers? from here on")
        end = time.monotonic() + self.extra_seconds  # then the run hangs, which the campaign finds
        while (run.poll() and time.monotonic() < end
               and not joined.search(self.scene.log.read_text(errors="replace"))):
            time.sleep(0.05)
        self.note(joined=bool(joined.search(self.scene.log.read_text(errors="replace"))))
        if run.running():
            run.add(joining)
        else:  # the run ended before its next step
            joining.kill()
            joining.wait()


class KillAll(Fault):
    kills = True

    def strike(self, run):
        run.signal_all(signal.SIGKILL)


class Terminate(Fault):
    """SIGTERM to the program, as a scheduler sends it."""

    def strike(self, run):
        for member in run.running():
            send(member.pid, signal.SIGTERM)


class Interrupt(Fault):
    """SIGINT to the process group, as a terminal sends it."""

    def strike(self, run):
        run.signal_all(signal.SIGINT)


class StopWorker(Fault):
    """SIGSTOP, and SIGCONT some seconds later: half of the times longer than a worker may be silent."""
    extra_seconds = 16

    def choose(self):
        self.seconds = self.random.choice([self.random.uniform(0.2, 4), self.random.uniform(11, 16)])
        self.note(stopped_seconds=round(self.seconds, 1))

    def strike(self, run):
        pid = self.pick_worker(run)
        send(pid, signal.SIGSTOP)
        time.sleep(self.seconds)
        send(pid, signal.SIGCONT)


def as_root():
    return "" if os.geteuid() == 0 else "needs root"


class OwnDisk(Fault):
    """The run folder is on a disk of its own: a tmpfs, in the mount namespace of torture.py."""

    @classmethod
    def missing(cls):
        return as_root() or ("" if os.environ.get("TORTURE_NAMESPACE") else "needs unshare -m")

    def mount(self, *options):
        subprocess.run(["mount", *options, str(self.scene.disk)], check=True, capture_output=True)

    def set_up(self):
        self.mount("-t", "tmpfs", "-o", "size=1g", "tmpfs")

    def tear_down(self):
        subprocess.run(["umount", "-l", str(self.scene.disk)], check=False, capture_output=True)


class FullDisk(OwnDisk):
    has_moment = False

    def set_up(self):
        size = int(self.scene.folder_bytes * self.random.uniform(0.02, 1.0))
        self.note(disk_bytes=size)
        self.mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs")

    def remove(self):
        self.mount("-o", "remount,size=1g")


class ReadOnly(OwnDisk):
    """The disk is read-only when the run is resumed; from the moment on if no file is open for writing."""
    may_refuse = True

    def strike(self, run):
        try:
            self.mount("-o", "remount,ro")
            self.note(read_only="in the run")
        except subprocess.CalledProcessError:  # a file is open for writing
            for member in run.running():
                send(member.pid, signal.SIGTERM)

    def remove(self):
        self.mount("-o", "remount,ro")

    def restore(self):
        self.mount("-o", "remount,rw")


class FileSize(Fault):
    has_moment = False

    def launch(self):
        limit = int(self.scene.largest_bytes * self.random.uniform(0.01, 1.0))
        self.note(file_bytes=limit)

        def prepare():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        return {"prepare": prepare}


class Descriptors(Fault):
    has_moment = False

    def launch(self):
        limit = self.random.randrange(16, 64)
        self.note(descriptors=limit)
        return {"prepare": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))}


class AddressSpace(Fault):
    has_moment = False

    def launch(self):
        limit = int(self.scene.address_bytes * self.random.uniform(0.8, 1.0))
        self.note(address_bytes=limit)
        return {"prepare": lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit))}


class Memory(Fault):
    """A control group with less memory than the run takes: the kernel kills a process."""
    has_moment = False
    kills = True

    @staticmethod
    def root():
        """The folder of control groups and the name of the limit in it."""
        for folder, limit in zip(CGROUPS, ("memory.limit_in_bytes", "memory.max")):
            controllers = folder / "cgroup.subtree_control"
            if limit == "memory.max" and not (controllers.exists() and "memory" in controllers.read_text()):
                continue
            if (folder / "cgroup.procs").exists() and os.access(folder, os.W_OK):
                return folder, limit
        return None

    @classmethod
    def missing(cls):
        return "" if cls.root() else "needs a writable control group with the memory controller"

    def launch(self):
        folder, name = self.root()
        self.group = folder / f"tlt_torture_{os.getpid()}"
        self.group.mkdir(exist_ok=True)
        limit = int(self.scene.memory_bytes * self.scene.workers * self.random.uniform(0.3, 0.9))
        self.note(memory_bytes=limit)
        (self.group / name).write_text(str(limit))
        processes = self.group / "cgroup.procs"
        return {"prepare": lambda: processes.write_text(str(os.getpid()))}

    def tear_down(self):
        for _ in range(50):  # processes that were just killed still count
            try:
                return self.group.rmdir()
            except OSError as error:
                if error.errno != errno.EBUSY:
                    raise
                time.sleep(0.1)


class Shim(Fault):
    """Needs a C compiler: system calls are intercepted by a small library."""
    has_moment = False
    library = None

    @classmethod
    def missing(cls):
        return "" if shutil.which("cc") else "needs a C compiler, cc"

    def shim(self, **variables):
        library = self.scene.out / "shim.so"
        if not library.exists():
            subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(HERE / "_torture_shim.c"), "-ldl"],
                           check=True)
        return {"environment": {"LD_PRELOAD": str(library), **{name: str(value) for name, value in variables.items()}}}


class SlowDisk(Shim):
    extra_seconds = 240

    def launch(self):
        delay = self.random.randrange(1_000, 100_000)
        self.note(disk_microseconds=delay)
        return self.shim(TORTURE_FOLDER=self.scene.folder, TORTURE_DISK_US=delay)


class FailingDisk(Shim):
    def launch(self):
        call = self.random.randrange(1, 400)
        self.note(fails_at_call=call)
        return self.shim(TORTURE_FOLDER=self.scene.folder, TORTURE_FAIL_AT=call)


class WallClock(Shim):
    """The wall clock jumps by up to a day, ahead or back."""

    def launch(self):
        jump, after = self.random.randrange(-86400, 86400), self.random.randrange(0, 8000)
        self.note(jump_seconds=jump, after_milliseconds=after)
        return self.shim(TORTURE_CLOCK_JUMP=jump, TORTURE_CLOCK_AFTER_MS=after)


class BootClock(KillAll):
    """Killed, and resumed as after a restart of the machine: the monotonic clock has another value."""

    @classmethod
    def missing(cls):
        made = subprocess.run(["unshare", "--time", "--monotonic", "1000", "true"], check=False, capture_output=True)
        return "" if made.returncode == 0 else "needs a time namespace (unshare --time)"

    def choose(self):
        self.scene.prefix = ["unshare", "--time", "--monotonic", str(self.random.randrange(10**6)),
                             "--boottime", str(self.random.randrange(10**6))]


class Damage(KillAll):
    """Killed, and then a file of the run folder is damaged: a bit, the end, a block of zeros, or all of it."""
    may_refuse = True

    def remove(self):
        files = sorted(path for path in self.scene.folder.rglob("*") if path.is_file() and path.stat().st_size > 0)
        if not files:
            return
        state = [path for path in files if "checkpoints" in path.parts]
        self.path = self.random.choice(state if state and self.random.random() < 0.5 else files)
        self.whole = self.path.read_bytes()
        damage = self.random.choice([self.flip, self.truncate, self.zeros, self.empty])
        self.damaged = damage(bytearray(self.whole))
        self.path.write_bytes(self.damaged)
        self.note(file=str(self.path.relative_to(self.scene.folder)), damage=damage.__name__)

    def flip(self, data):
        data[self.random.randrange(len(data))] ^= 1 << self.random.randrange(8)
        return bytes(data)

    def truncate(self, data):
        return bytes(data[:self.random.randrange(len(data))])

    def zeros(self, data):
        begin = self.random.randrange(len(data))
        data[begin:begin + 4096] = bytes(len(data[begin:begin + 4096]))
        return bytes(data)

    def empty(self, data):
        return b""

    def restore(self):
        if "file" in self.details:
            self.path.write_bytes(self.whole)
            self.damaged = None

    def settle(self):
        """A file of an earlier step that no later one reads stays as it was damaged: no difference of the run. A row of
        metrics exists only once: the run has to say that it is missing."""
        if "file" in self.details and self.path.exists() and self.path.read_bytes() == self.damaged:
            self.exempt.add(self.details["file"])
            self.note(stays_damaged=True)
        said = self.scene.log.read_text(errors="replace")
        if self.details.get("file") == "metrics.jsonl" and MISSING_ROWS.search(said):
            self.exempt.add("metrics.jsonl")
            self.note(rows_missing=True)


class Network(Fault):
    min_workers = 2
    qdisc = None  # the kind that the fault needs

    @classmethod
    def missing(cls):
        if as_root():
            return "needs root"
        if not shutil.which("ip") or not shutil.which("tc"):
            return "needs iproute2"
        hosts = None
        try:
            hosts = Hosts("torture_probe_", 1)
            if cls.qdisc:
                hosts.shape(0, *cls.qdisc)
        except subprocess.CalledProcessError as error:
            return (error.stderr or "no network namespaces").strip().splitlines()[0]
        finally:
            subprocess.run(["ip", "netns", "del", "torture_probe_w0"], check=False, capture_output=True)
            subprocess.run(["ip", "netns", "del", "torture_probe_hub"], check=False, capture_output=True)
        return ""

    def set_up(self):
        self.scene.hosts = Hosts(f"torture{os.getpid()}_", self.scene.workers)

    def tear_down(self):
        if self.scene.hosts:
            self.scene.hosts.remove()

    def pick_rank(self):
        rank = self.random.randrange(self.scene.workers)
        self.note(rank=rank)
        return rank


class KillHost(Network):
    """A worker on a host of its own is killed; the log says how long the others needed to continue."""
    kills = True
    min_workers = 3

    def strike(self, run):
        rank = self.random.randrange(1, self.scene.workers)
        self.note(rank=rank)
        send(run.members[rank].pid, signal.SIGKILL)

    def settle(self):
        took = re.search(r"forming the group again took ([\d.]+) s", self.scene.log.read_text(errors="replace"))
        if took:
            self.note(seconds_to_continue=float(took[1]))


class Stranger(Network):
    """A host on the same network without the secret: reads all packets, tries to join the run, and fills the ports of
    the workers with connections and garbage (_stranger.py)."""
    is_early = True
    extra_seconds = 120

    def set_up(self):
        self.scene.hosts = Hosts(f"torture{os.getpid()}_", self.scene.workers + 1)
        self.scene.hosts.flood()
        self.reader = self.start("read", JOB_SECRET, stdout=subprocess.PIPE)

    def start(self, *words, **streams):
        inside = ["ip", "netns", "exec", self.scene.hosts.names[-1]]
        return subprocess.Popen([*inside, sys.executable, str(HERE / "_stranger.py"), *words], text=True, **streams)

    def strike(self, run):
        places = [f"{Hosts.address(rank)}:{port}" for rank, member in enumerate(run.members)
                  for port in listening_ports(member.pid)]
        with self.start("attack", *places, stdout=subprocess.PIPE) as attack:
            while run.poll() and attack.poll() is None:
                time.sleep(0.1)
            attack.terminate()
            self.note(connections=json.loads(attack.communicate(timeout=60)[0]))
        for secret in ("", "stranger" * 4):
            self.note(**{"joins_with_another_secret" if secret else "joins_without_secret": self.join(run, secret)})

    def join(self, run, secret):
        """The exit code of a worker with this secret that says it is rank 1."""
        environment = {**os.environ, "RANK": "1", "WORLD_SIZE": str(self.scene.workers),
                       "MASTER_ADDR": Hosts.address(0), "MASTER_PORT": str(MASTER_PORT)}
        if secret:
            environment["TLT_JOB_SECRET"] = secret
        inside = ["ip", "netns", "exec", self.scene.hosts.names[-1]]
        folder = f"trainer.default_local_dir={self.scene.base}/stranger"
        return subprocess.run([*inside, *run.command, folder, "trainer.timeout_seconds=5"], cwd=ROOT, check=False,
                              capture_output=True, env=environment, timeout=300).returncode

    def settle(self):
        self.reader.send_signal(signal.SIGTERM)
        seen = json.loads(self.reader.communicate(timeout=60)[0])
        self.note(**seen)
        if not seen["keys_of_rendezvous"]:
            raise Problem(f"the stranger did not see the packets of the workers: {seen}")
        if seen["secret"]:
            raise Problem("the job secret was on the network")
        joined = [name for name in ("joins_without_secret", "joins_with_another_secret") if self.details.get(name) == 0]
        if joined:
            raise Problem(f"the stranger: {joined}")

    def tear_down(self):
        self.reader.kill()
        self.reader.wait()
        super().tear_down()


def listening_ports(pid):
    """Of the network namespace of the process."""
    listening = "0A"
    rows = [line.split() for line in pathlib.Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return [int(row[1].split(":")[1], 16) for row in rows if row[3] == listening]


class Partition(Network):
    """A worker's cable is out for some seconds: half of the times longer than the workers wait for each other."""
    extra_seconds = 30

    def choose(self):
        self.seconds = self.random.choice([self.random.uniform(0.2, 5), self.random.uniform(20, 30)])
        self.note(partition_seconds=round(self.seconds, 1))

    def strike(self, run):
        rank = self.pick_rank()
        self.scene.hosts.set_cable(rank, "down")
        time.sleep(self.seconds)
        self.scene.hosts.set_cable(rank, "up")


class FlappingLink(Network):
    extra_seconds = 20

    def strike(self, run):
        rank = self.pick_rank()
        for _ in range(self.random.randrange(3, 15)):
            for state, seconds in (("down", self.random.uniform(0.05, 0.3)), ("up", self.random.uniform(0.1, 1))):
                self.scene.hosts.set_cable(rank, state)
                time.sleep(seconds)


class Shaped(Network):
    extra_seconds = 120

    def strike(self, run):
        self.scene.hosts.shape(self.pick_rank(), *self.qdisc)


class SlowNetwork(Shaped):
    qdisc = ("tbf", "rate", "20mbit", "burst", "64kb", "latency", "500ms")


class Delay(Shaped):
    qdisc = ("netem", "delay", "50ms", "20ms")


class Loss(Shaped):
    qdisc = ("netem", "loss", "2%")


KINDS = {
    "kill_worker": KillWorker, "kill_all": KillAll, "terminate": Terminate, "interrupt": Interrupt,
    "stop_worker": StopWorker, "full_disk": FullDisk, "read_only": ReadOnly, "file_size": FileSize,
    "slow_disk": SlowDisk, "failing_disk": FailingDisk, "descriptors": Descriptors, "address_space": AddressSpace,
    "memory": Memory, "wall_clock": WallClock, "boot_clock": BootClock, "damage": Damage, "partition": Partition,
    "flapping_link": FlappingLink, "slow_network": SlowNetwork, "network_delay": Delay, "network_loss": Loss,
    "kill_host": KillHost, "join": Join, "stranger": Stranger,
}
