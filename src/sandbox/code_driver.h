// The Python program inside the sandbox (sandbox.h): runs untrusted code in a process per test and
// reports the result. It reads one JSON object per line and answers each with one:
//
//   {"setup": {"memory": bytes, "file": bytes, "processes": n}}          -> {"ready": true}
//   {"code", "stdin", "seconds", "wall", "limit"}   run as a program     -> {"status", "out", "cpu"}
//   {"code", "function", "arguments", …}            its result as JSON   -> the same
//   {"code", "check", …}                            these statements of a test
//
// status: ok (exited without an error), failed, late (after `seconds` of CPU time, or `wall`
// seconds), flood (wrote more than `limit` bytes); cpu: the CPU time it took.
//
// Processes. The main process reads the requests. The runner, forked before the first test, starts
// the code; it never has the statements of a test, so neither does the code in its own memory.
// Expected outputs are not in the sandbox at all. Each test has a PID namespace and a mount
// namespace with an empty /tmp. The first process of a test's namespace (which no signal from
// inside can end or stop) watches the second one, which runs the code; when the first one exits,
// the kernel ends all others and drops the files. Statements of a test run in a second such
// process; they reach the code as code_values.h says.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tlt::sandbox {

inline constexpr const char* kCodeDriver = R"py(
import ctypes, errno, importlib, json, os, resource, seccomp, select, signal, socket, struct, sys, time, types

libc = ctypes.CDLL(None, use_errno=True)
limits, values = {}, {"source": sys.argv.pop()}
NEW_MOUNTS, NEW_PROCESSES = 0x00020000, 0x20000000
OWN_PROCESSES = 7  # at most, of the sandbox itself, while code runs
TICK = 0.05        # seconds between two looks at the CPU time

# The system calls of Python programs. All others fail with EPERM, clone3 with ENOSYS: libc then uses clone.
ALLOWED = '''
read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2 open openat creat close close_range
stat fstat lstat newfstatat statx statfs fstatfs access faccessat faccessat2 lseek fcntl flock fsync fdatasync truncate
ftruncate fallocate fadvise64 readahead getdents getdents64 getcwd chdir fchdir rename renameat renameat2 mkdir
mkdirat rmdir link linkat unlink unlinkat symlink symlinkat readlink readlinkat chmod fchmod fchmodat fchmodat2
utime utimes utimensat futimesat umask dup dup2 dup3 pipe pipe2 sendfile copy_file_range splice
poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2 eventfd eventfd2
timerfd_create timerfd_settime timerfd_gettime signalfd signalfd4
sendto recvfrom sendmsg recvmsg shutdown getsockopt setsockopt getsockname getpeername
mmap munmap mprotect mremap madvise brk mincore msync membarrier
rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigtimedwait rt_sigsuspend sigaltstack kill tkill tgkill pause
alarm getitimer setitimer timer_create timer_settime timer_gettime timer_getoverrun timer_delete
nanosleep clock_nanosleep clock_gettime clock_getres gettimeofday time times
fork vfork execve exit exit_group wait4 waitid futex futex_waitv set_robust_list get_robust_list set_tid_address rseq
arch_prctl restart_syscall sched_yield sched_getaffinity sched_getparam sched_getscheduler sched_get_priority_max
sched_get_priority_min getpriority getcpu
getpid getppid gettid getpgrp getpgid setpgid getsid setsid getuid geteuid getgid getegid getresuid getresgid getgroups
getrlimit setrlimit getrusage sysinfo uname getrandom capget
'''.split()
NEW_NAMESPACES = 0x7e020000  # the flags of clone
TERMINAL_QUERIES = (0x5401, 0x802c542a, 0x5413, 0x541b, 0x5421, 0x5450, 0x5451)  # TCGETS … FIOCLEX


def call(name, *arguments):
    """A function of libc that returns a negative number on errors."""
    result = getattr(libc, name)(*arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), name)
    return result


def make_filter():
    """The seccomp program of the code's processes."""
    calls = seccomp.SyscallFilter(seccomp.ERRNO(errno.EPERM))
    calls.set_attr(seccomp.Attr.ACT_BADARCH, seccomp.KILL_PROCESS)  # another machine's call
    for name in ALLOWED:
        if seccomp.resolve_syscall(seccomp.Arch(), name) != -1:  # a newer kernel's: unknown here
            calls.add_rule(seccomp.ALLOW, name)
    calls.add_rule(seccomp.ERRNO(errno.ENOSYS), "clone3")
    calls.add_rule(seccomp.ALLOW, "clone", seccomp.Arg(0, seccomp.MASKED_EQ, NEW_NAMESPACES, 0))
    calls.add_rule(seccomp.ALLOW, "socketpair", seccomp.Arg(0, seccomp.EQ, socket.AF_UNIX))
    calls.add_rule(seccomp.ALLOW, "prlimit64", seccomp.Arg(0, seccomp.EQ, 0))
    for name in (15, 16):  # PR_SET_NAME, PR_GET_NAME
        calls.add_rule(seccomp.ALLOW, "prctl", seccomp.Arg(0, seccomp.EQ, name))
    for query in TERMINAL_QUERIES:
        calls.add_rule(seccomp.ALLOW, "ioctl", seccomp.Arg(1, seccomp.MASKED_EQ, 0xffffffff, query))
    source, output = os.pipe()
    with open(output, "wb") as out:
        calls.export_bpf(out)
    with open(source, "rb") as program:
        return program.read()


class FilterProgram(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("program", ctypes.c_char_p)]


def drop_rights():
    """Leaves this process without capabilities."""
    call("capset", (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)())


def deny_calls():
    program = limits["filter"]
    call("prctl", 38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
    call("prctl", 22, 2, ctypes.byref(FilterProgram(len(program) // 8, program)), 0, 0)  # PR_SET_SECCOMP


def limit_self(seconds):
    processes = limits["processes"] + OWN_PROCESSES - (0 if limits["is_checked"] else 2)
    for what, most in ((resource.RLIMIT_AS, limits["memory"]), (resource.RLIMIT_FSIZE, limits["file"]),
                       (resource.RLIMIT_CPU, int(seconds) + 2), (resource.RLIMIT_NOFILE, 64),
                       (resource.RLIMIT_NPROC, processes), (resource.RLIMIT_CORE, 0)):
        resource.setrlimit(what, (most, most))


# ---- what runs in a test's second process

def run_module(code, name):
    module = sys.modules[name] = types.ModuleType(name)
    exec(compile(code, "solution.py", "exec"), module.__dict__)
    return module.__dict__


def run_program(request):
    run_module(request["code"], "__main__")


def run_call(request):
    space, function = run_module(request["code"], "solution"), request["function"]
    target = getattr(space["Solution"](), function) if "Solution" in space else space[function]
    os.write(3, json.dumps(target(*request["arguments"]), default=list).encode())


def run_served(request):
    space = run_module(request["code"], "solution")
    values["serve"](space, 3)


def run_check(request):
    values["check"](request["check"], 3)


def second_process(request, body, output, channel):
    os.setsid()
    is_program = body is run_program
    given = os.memfd_create("stdin")
    os.write(given, request.get("stdin", "").encode("utf-8", "replace"))
    os.lseek(given, 0, os.SEEK_SET)
    nothing = os.open("/dev/null", os.O_RDWR)
    last = os.dup(output if channel is None else channel)
    os.dup2(given, 0)
    os.dup2(output if is_program else nothing, 1)
    os.dup2(nothing, 2)
    os.dup2(last, 3, inheritable=False)
    os.closerange(4, 1024)
    sys.stdin, sys.stdout, sys.stderr = open(0, encoding="utf-8"), open(1, "w", encoding="utf-8"), open(2, "w")
    signal.signal(signal.SIGINT, signal.default_int_handler)
    limit_self(request["seconds"])
    deny_calls()
    status = 1
    try:
        body(request)
        status = 0
    except SystemExit as ended:
        status = int(not is_program or ended.code not in (None, 0))
    finally:
        sys.stdout.flush()
        os._exit(status)


# ---- a test's first process

def reap(pid, spent):
    """Reaps ended processes, and adds up their CPU time; returns the status of `pid` if it is among them."""
    found = None
    while True:
        try:
            ended, status, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if ended == 0:
            return found
        spent[0] += usage.ru_utime + usage.ru_stime
        found = status if ended == pid else found


def watch(source, pid, request):
    """Returns how the process ended, its output, and the CPU time it took with its children."""
    end, spent, out, status = time.monotonic() + request["wall"], [0.0], b"", None
    ended, is_open = os.pidfd_open(pid), True
    while True:
        cpu = spent[0] + (time.clock_gettime(~pid << 3 | 2) if status is None else 0)  # its CPU clock
        left = min(request["seconds"] - cpu, end - time.monotonic())
        if left <= 0:
            return "late", b"", cpu
        watched = [source] * is_open + [ended] * (status is None)
        ready = select.select(watched, [], [], min(left, TICK) if status is None else 0)[0]
        if source in ready:
            part = os.read(source, 65536)
            is_open = bool(part)
            out += part
            if len(out) > request["limit"]:
                return "flood", b"", cpu
        elif status is not None:  # it has ended, and everything is read
            return "ok" if status == 0 else "failed", out, cpu
        else:
            status = reap(pid, spent)


def first_process(request, body, result, channel):
    call("unshare", NEW_MOUNTS)
    call("mount", b"tmpfs", b"/tmp", b"tmpfs", 6, b"mode=700,size=%d" % (4 * limits["file"]))  # nosuid, nodev
    os.chdir("/tmp")
    drop_rights()
    source, output = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            second_process(request, body, output, channel)
        finally:
            os._exit(1)
    os.close(output)
    if channel is not None:
        os.close(channel)
    how, out, cpu = watch(source, pid, request)
    text = out.decode("utf-8", "replace") if how == "ok" else ""
    with open(result, "wb") as answer:
        answer.write(json.dumps({"status": how, "out": text, "cpu": cpu}).encode())
    os._exit(0)  # ends the namespace, and so all its processes


# ---- the runner, and the main process

def run_test(request, body, channel=None):
    """Runs `body` in namespaces of its own. Closes the channel, which only `body` keeps."""
    limits["is_checked"] = channel is not None
    source, result = os.pipe()
    own = os.pidfd_open(os.getpid())
    call("unshare", NEW_PROCESSES)  # of the next child
    pid = os.fork()
    if pid == 0:
        try:
            first_process(request, body, result, channel)
        finally:
            os._exit(1)
    call("setns", own, NEW_PROCESSES)
    os.close(own)
    os.close(result)
    if channel is not None:
        os.close(channel)
    with open(source, "rb") as answers:
        answer = answers.read()
    os.waitpid(pid, 0)  # returns when all processes of the namespace have ended
    return json.loads(answer)


def send(connection, message):
    text = json.dumps(message).encode()
    connection.sendall(struct.pack("!Q", len(text)) + text)


def receive(connection):
    def read(size):
        text = b""
        while len(text) < size:
            part = connection.recv(size - len(text))
            if not part:
                os._exit(0)  # the other side has ended
            text += part
        return text
    return json.loads(read(*struct.unpack("!Q", read(8))))


def load_values():
    if "serve" not in values:
        exec(compile(values["source"], "code_values.py", "exec"), values)


def run_runner(connection):
    while True:
        request = receive(connection)
        if "serve" in request:
            load_values()
            answer = run_test(request, run_served, socket.recv_fds(connection, 1, 1)[1][0])
        else:
            answer = run_test(request, run_call if "function" in request else run_program)
        send(connection, answer)


def run_checked(request, runner):
    """The code runs in one process, the statements in another one."""
    load_values()
    importlib.import_module("ast")  # for all tests, whose processes are copies of this one
    ours, theirs = socket.socketpair()
    send(runner, {"serve": True, **{name: request[name] for name in ("code", "seconds", "wall", "limit")}})
    socket.send_fds(runner, [b"c"], [theirs.fileno()])
    theirs.close()
    checked = run_test(request, run_check, ours.detach())
    served = receive(runner)  # it ends with the connection
    if checked["status"] != "ok":
        return {**checked, "status": "late" if served["status"] == "late" else checked["status"], "cpu": served["cpu"]}
    return {"status": "ok", "out": "passed", "cpu": served["cpu"]}


def become_first():
    """The main process has a PID namespace of its own, into which it can return."""
    call("unshare", NEW_PROCESSES)
    pid = os.fork()
    if pid != 0:
        os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) & 255)


def main():
    become_first()
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a first process only gets signals that it handles
    call("prctl", 4, 0, 0, 0, 0)  # PR_SET_DUMPABLE: no other process may read or trace this one
    limits.update(json.loads(sys.stdin.readline())["setup"])
    limits["filter"] = make_filter()
    runner, theirs = socket.socketpair()
    if os.fork() == 0:
        runner.close()
        run_runner(theirs)
    theirs.close()
    answer = {"ready": True}
    while True:
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
        line = sys.stdin.readline()
        if not line:
            break
        request = json.loads(line)
        if "check" in request:
            answer = run_checked(request, runner)
        else:
            send(runner, request)
            answer = receive(runner)


main()
)py";

}  // namespace tlt::sandbox
