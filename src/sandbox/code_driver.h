// The Python program inside the sandbox (sandbox.h): runs untrusted code in a process per test and
// reports the result. It reads one JSON object per line and answers each with one:
//
//   {"setup": {"memory": bytes, "file": bytes, "processes": n}}          -> {"ready": true}
//   {"code", "stdin", "seconds", "limit"}           run as a program     -> {"status", "out"}
//   {"code", "function", "arguments", …}            its result as JSON   -> the same
//   {"code", "check", "token", …}                   then these statements; out is the token
//
// status: ok (exited without an error), failed, late (after `seconds`), flood (wrote more than
// `limit` bytes). Expected outputs are not in here, so no code can read them.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tlt::sandbox {

inline constexpr const char* kCodeDriver = R"py(
import ctypes, errno, json, os, resource, seccomp, select, shutil, signal, sys, time

setup = {}

# What no solution needs: tracing, other processes' memory and files, keys, namespaces, mounts, modules, kexec, bpf,
# perf, userfaultfd, sockets, io_uring.
DENIED = ["ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd", "pidfd_send_signal", "add_key",
          "request_key", "keyctl", "unshare", "setns", "pivot_root", "mount", "umount2", "open_tree", "move_mount",
          "fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr", "init_module", "finit_module", "kexec_load", "kexec_file_load", "bpf", "perf_event_open",
          "userfaultfd", "socket", "io_uring_setup", "io_uring_enter", "io_uring_register"]
# Memory that is in no process.
UNSEEN = ["memfd_create", "memfd_secret", "shmget", "msgget", "semget", "mq_open"]


def deny_calls(names):
    """Installs a seccomp filter for this process and its children: EPERM for denied calls."""
    calls = seccomp.SyscallFilter(seccomp.ALLOW)
    calls.set_attr(seccomp.Attr.ACT_BADARCH, seccomp.KILL_PROCESS)  # another machine's call
    for name in names:
        calls.add_rule(seccomp.ERRNO(errno.EPERM), name)
    calls.load()


def limit_self(seconds):
    for what, most in ((resource.RLIMIT_AS, setup["memory"]), (resource.RLIMIT_FSIZE, setup["file"]),
                       (resource.RLIMIT_CPU, int(seconds) + 2), (resource.RLIMIT_NOFILE, 64),
                       (resource.RLIMIT_CORE, 0)):
        resource.setrlimit(what, (most, most))


def call(code, function, arguments):
    space = {"__name__": "solution"}
    exec(compile(code, "solution.py", "exec"), space)
    target = getattr(space["Solution"](), function) if "Solution" in space else space[function]
    return json.dumps(target(*arguments), default=list)


def run_code(request, answer):
    code = request["code"]
    if "function" in request:
        os.write(answer, call(code, request["function"], request["arguments"]).encode())
    elif "check" in request:
        space = {"__name__": "solution"}
        exec(compile(code, "solution.py", "exec"), space)
        exec(compile(request["check"], "check.py", "exec"), space)
        os.write(answer, request["token"].encode())
    else:
        exec(compile(code, "solution.py", "exec"), {"__name__": "__main__"})


def child(request, output):
    os.setsid()
    is_program = "stdin" in request
    given = os.memfd_create("stdin")
    os.write(given, request.get("stdin", "").encode("utf-8", "replace"))
    os.lseek(given, 0, os.SEEK_SET)
    nothing = os.open("/dev/null", os.O_RDWR)
    os.dup2(given, 0)
    os.dup2(output if is_program else nothing, 1)
    os.dup2(nothing, 2)
    os.dup2(output, 3, inheritable=False)
    os.closerange(4, 1024)
    sys.stdin, sys.stdout, sys.stderr = open(0, encoding="utf-8"), open(1, "w", encoding="utf-8"), open(2, "w")
    limit_self(request["seconds"])
    deny_calls(UNSEEN)
    status = 1
    try:
        run_code(request, 3)
        status = 0
    except SystemExit as ended:
        status = int(not is_program or ended.code not in (None, 0))
    finally:
        sys.stdout.flush()
        os._exit(status)


def read_output(source, pid, request):
    """Returns how the child's run ended, and its output."""
    deadline, out = time.monotonic() + request["seconds"], b""
    ended, is_open = os.pidfd_open(pid), True
    try:
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                return "late", out
            ready = select.select([source, ended] if is_open else [ended], [], [], left)[0]
            if source in ready:
                part = os.read(source, 65536)
                is_open = bool(part)
                out += part
                if len(out) > request["limit"]:
                    return "flood", b""
            elif ended in ready:
                return "ended", out
    finally:
        os.close(ended)


def remove_files():
    """Removes all files of a test, whatever their permissions."""
    os.chmod(os.getcwd(), 0o700)
    for folder, folders, _ in os.walk("."):  # a folder is opened before it is listed
        for name in folders:
            path = os.path.join(folder, name)
            if not os.path.islink(path):
                os.chmod(path, 0o700)
    for name in os.listdir("."):
        path = os.path.join(".", name)
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)


def end_processes(pid):
    """Ends all processes of a test; returns the status of the first one."""
    status = None
    while True:  # orphans are this process's children: see main()
        try:
            os.kill(-1, signal.SIGKILL)
        except ProcessLookupError:
            pass
        try:
            ended, how = os.waitpid(-1, 0)
        except ChildProcessError:
            break
        status = how if ended == pid else status
    return status


def run(request):
    source, output = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            child(request, output)
        finally:
            os._exit(1)
    os.close(output)
    how, out = read_output(source, pid, request)
    os.close(source)
    status = end_processes(pid)
    remove_files()  # an error ends the sandbox: no test runs among another's files
    if how == "ended":
        how = "ok" if status == 0 else "failed"
    return {"status": how, "out": out.decode("utf-8", "replace") if how == "ok" else ""}


def main():
    process = ctypes.CDLL(None).prctl
    process(4, 0, 0, 0, 0)   # PR_SET_DUMPABLE: no child may read or trace this process
    process(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    deny_calls(DENIED)
    for line in sys.stdin:
        request = json.loads(line)
        if "setup" in request:
            setup.update(request["setup"])
            most = setup["processes"]
            resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
            answer = {"ready": True}
        else:
            answer = run(request)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


main()
)py";

}  // namespace tlt::sandbox
