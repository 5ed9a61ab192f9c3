# SPDX-License-Identifier: Apache-2.0
"""kernel_resources_test.py SOURCE_FOLDER NVCC: compiles the kernels of a GPU for sm_80 and sm_90a and compares what
ptxas says of each with tests/cuda/kernel_resources.txt: no spills, and at most the registers and the shared memory that
stand there. Without nvcc the test is skipped (exit status 77)."""
import pathlib
import re
import subprocess
import sys
import tempfile

ARCHITECTURES = ("80", "90a")
FLAGS = ("-std=c++20", "-O3", "-fmad=false", "--expt-relaxed-constexpr", "-Xptxas", "-v")
ENTRY = re.compile(r"Compiling entry function '(\w+)' for 'sm_(\w+)'")
SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers")
SHARED = re.compile(r"(\d+) bytes smem")


def compile_kernels(nvcc, source, file):
    """What ptxas writes."""
    with tempfile.TemporaryDirectory() as folder:
        command = [nvcc, *FLAGS, f"-I{source}", "-c", str(file), "-o", f"{folder}/kernels.o"]
        for name in ARCHITECTURES:
            command += ["-gencode", f"arch=compute_{name},code=sm_{name}"]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        sys.exit(f"{' '.join(command)}\n{result.stdout}{result.stderr}")
    return result.stdout + result.stderr


def kernel_name(symbol):
    """AttentionForward<float, 64> of run_kernel<tlt::ops::cuda::AttentionForward<float, 64>>(…)."""
    text = subprocess.run(["c++filt", symbol], capture_output=True, text=True, check=True).stdout
    name = text[text.index("run_kernel<") + len("run_kernel<"):text.rindex(">(")]
    return name.replace("tlt::ops::cuda::", "").strip()


def measured(log):
    """By kernel and architecture: registers, bytes of shared memory, bytes spilled."""
    kernels = {}
    key = None
    for line in log.splitlines():
        if match := ENTRY.search(line):
            key = (kernel_name(match[1]), match[2])
            kernels[key] = [0, 0, 0]
        elif match := SPILLS.search(line):
            kernels[key][2] = int(match[1]) + int(match[2])
        elif match := USED.search(line):
            shared = SHARED.search(line)
            kernels[key][:2] = [int(match[1]), int(shared[1]) if shared else 0]
    return kernels


def read_limits(path):
    """By kernel: registers and bytes of shared memory."""
    limits = {}
    for line in path.read_text().splitlines():
        if line and not line.startswith("#"):
            registers, shared, name = line.split(maxsplit=2)
            limits[name] = (int(registers), int(shared))
    return limits


def faults_of(kernels, limits):
    for (name, architecture), (registers, shared, spilled) in kernels.items():
        place = f"{name} for sm_{architecture}"
        if spilled:
            yield f"{place}: {spilled} bytes of spills"
        if name not in limits:
            yield f"{place}: not in the list; it uses {registers} registers, {shared} bytes of shared memory"
        elif registers > limits[name][0] or shared > limits[name][1]:
            yield (f"{place}: {registers} registers and {shared} bytes of shared memory, of at most "
                   f"{limits[name][0]} and {limits[name][1]}")
    for name in limits:
        for architecture in ARCHITECTURES:
            if (name, architecture) not in kernels:
                yield f"{name}: in the list, but not compiled for sm_{architecture}"


def main():
    source, nvcc = pathlib.Path(sys.argv[1]), sys.argv[2]
    if not nvcc or nvcc.endswith("NOTFOUND"):
        print("skipped: no nvcc, so registers and spills of the kernels are not known")
        sys.exit(77)
    kernels = {}
    for file in sorted((source / "src/ops/cuda").glob("*.cu")):
        kernels |= measured(compile_kernels(nvcc, source / "src", file))
    faults = list(faults_of(kernels, read_limits(source / "tests/cuda/kernel_resources.txt")))
    for (name, architecture), (registers, shared, spilled) in sorted(kernels.items()):
        print(f"{registers:4} registers {shared:6} shared {spilled:4} spilled  sm_{architecture:3} {name}")
    if not kernels:
        faults = ["no kernel was compiled"]
    if faults:
        sys.exit("\n".join(faults))


if __name__ == "__main__":
    main()
