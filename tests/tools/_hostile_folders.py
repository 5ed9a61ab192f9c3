# SPDX-License-Identifier: Apache-2.0
"""Hostile draft models and run folders, and the commands that read them (make_hostile_files.py, run_hostile_files.py).

The files of a run folder are not stored: a file of the corpus is an edit, a JSON object, of the file that a finished run
has: a text instead of it, a member with an extreme value, damaged bytes, or something else in its place (KINDS).
"""

import hashlib
import json
import os
import random
import resource
import shutil
import socket
import struct
import subprocess

from _hostile_texts import (EDGES, ESCAPES, GOLDEN, as_json, edges_of, fit, json_texts, nested, safetensors_file)

DRAFTER, TARGET = GOLDEN / "drafters/qwen2", GOLDEN / "models/qwen2_tied"
DRAFTER3, TARGET3 = GOLDEN / "drafters/eagle3", GOLDEN / "models/qwen2_bf16"

# ---- draft models


def draft_config():
    valid = json.loads((DRAFTER / "config.json").read_text())
    yield from json_texts()
    yield from edges_of(valid, ["architectures", "hidden_size", "intermediate_size", "num_attention_heads",
                                "num_key_value_heads", "vocab_size", "num_hidden_layers", "max_position_embeddings",
                                "rope_parameters", "rms_norm_eps", "dtype"])
    yield "deep_architectures", as_json(valid)[:-1] + ',"architectures":' + nested(400) + "}"


def draft3_config():
    valid = json.loads((DRAFTER3 / "config.json").read_text())
    yield from edges_of(valid, ["draft_vocab_size", "target_hidden_size", "eagle_config", "hidden_size"])
    for i, layers in enumerate([[], [0], [2, 1, 0], [-2, 0, 1], [0, 1, 2**63 - 1], [0, 1, 2**64], [0.5, 1, 2],
                                [0, 1, 2, 3], ["0", "1", "2"], list(range(50_000)), [None] * 3]):
        yield f"layers_{i}", as_json({**valid, "eagle_config": {"eagle_aux_hidden_state_layer_ids": layers}})


def read_tensors(whole):
    """The header of a safetensors file, without metadata, and its data."""
    length = struct.unpack("<Q", whole[:8])[0]
    header = json.loads(whole[8:8 + length])
    header.pop("__metadata__", None)
    return header, whole[8 + length:]


def with_tensor(header, data, name, dtype, shape, values):
    """The file with this tensor besides the others, or in place of one of them."""
    entry = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
    others = {key: value for key, value in header.items() if key != name}
    # Without holes: the bytes of the tensor in whose place it is are those of another one.
    if name in header:
        others["unused"] = header[name]
    return safetensors_file({**others, name: entry}, data + values)


def tensor_faults(path):
    """A file of tensors in which each has another shape or type, is missing, or has values that are not finite."""
    header, data = read_tensors(path.read_bytes())
    whole = path.read_bytes()
    for share in range(1, 8):
        yield f"cut_{share}", whole[:len(whole) * share // 8]
    yield "twice", whole + whole
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        flat = end - begin
        def changed(**change):
            return safetensors_file({**header, name: {**entry, **change}}, data)
        yield f"{name}_renamed", safetensors_file({("x." + key if key == name else key): value
                                                   for key, value in header.items()}, data)
        yield f"{name}_transposed", changed(shape=entry["shape"][::-1])
        yield f"{name}_flat", changed(shape=[flat // 4])
        yield f"{name}_of_bytes", changed(dtype="U8", shape=[flat])
        yield f"{name}_halves", changed(dtype="BF16", shape=[2] + entry["shape"])
        yield f"{name}_huge", changed(shape=[2**31, 2**31])
        for kind, pattern in {"nan": b"\0\0\xc0\x7f", "infinite": b"\0\0\x80\xff", "large": b"\xff\xff\x7f\x7f"}.items():
            filled = (pattern * (flat // 4 + 1))[:flat]
            yield f"{name}_{kind}", safetensors_file(header, data[:begin] + filled + data[end:])
    yield "all_nan", safetensors_file(header, b"\0\0\xc0\x7f" * (len(data) // 4) + b"\0" * (len(data) % 4))


def draft_weights():
    header, data = read_tensors((DRAFTER / "model.safetensors").read_bytes())
    yield from tensor_faults(DRAFTER / "model.safetensors")
    yield "bias", with_tensor(header, data, "fc.bias", "F32", [64], b"\0\0\x80\x3f" * 64)
    yield "embedding", with_tensor(header, data, "embed_tokens.weight", "F32", [1, 1], b"\0" * 4)
    yield "escapes", with_tensor(header, data, ESCAPES, "F32", [1], b"\0" * 4)
    yield "same_name", with_tensor(header, data, "model.fc.weight", "F32", [1], b"\0" * 4)
    yield "none", safetensors_file({})


def draft3_weights():
    """The tokens of EAGLE-3's LM head."""
    path = DRAFTER3 / "model.safetensors"
    header, data = read_tensors(path.read_bytes())
    for i, value in enumerate([-1, -2**63, 2**63 - 1, 512, 2**31, 311]):
        yield f"all_{i}", with_values(header, data, "d2t", struct.pack("<q", value) * 200)
    yield "d2t_as_floats", safetensors_file({**header, "d2t": {**header["d2t"], "dtype": "F64"}}, data)
    yield "t2d_none", with_values(header, data, "t2d", b"\0" * 512)
    yield "t2d_all", with_values(header, data, "t2d", b"\1" * 512)
    yield "t2d_no_boolean", with_values(header, data, "t2d", b"\xff" * 512)
    for name in ("d2t", "t2d"):
        yield f"{name}_renamed", safetensors_file({("x" if key == name else key): value
                                                   for key, value in header.items()}, data)
    yield "lm_head_nan", with_values(header, data, "lm_head.weight", b"\0\0\xc0\x7f" * (200 * 64))


def with_values(header, data, name, values):
    begin, end = header[name]["data_offsets"]
    assert end - begin == len(values)
    return safetensors_file(header, data[:begin] + values + data[end:])


def draft_tokens():
    """hot_token_id.json: the draft vocabulary."""
    yield from json_texts()
    for i, tokens in enumerate([[-1], [320], [2**63], [2**64 - 1], [0, 0], [0.5], ["0"], [None], [[0]], [True],
                                list(range(320)), list(range(321)), [1e308], [0] * 400_000]):
        yield f"tokens_{i}", as_json(tokens)


# ---- edits of a run's files

# What may stand in the place of a file.
KINDS = ("fifo", "folder", "socket", "zeros", "dangling", "circle", "itself", "terminal")


def edits(seed, texts=True, members=40, mutants=40):
    """Edits of a JSON file, or with members=0 of any; those that draw have a seed of their own."""
    for name, _ in json_texts() if texts else ():
        yield f"text_{name}", as_json({"edit": "text", "name": name})
    for i in range(members):
        yield f"member_{i:03}", as_json({"edit": "member", "seed": f"{seed}/{i}"})
    for i in range(mutants):
        yield f"bytes_{i:03}", as_json({"edit": "bytes", "seed": f"{seed}/{i}"})
    for i in range(1, 8):
        yield f"cut_{i}", as_json({"edit": "cut", "share": i / 8})


def edits_of_tensors(seed):
    yield from edits(seed, texts=False, members=0)
    for i in range(40):
        yield f"header_{i:03}", as_json({"edit": "header", "seed": f"{seed}/{i}"})


def edits_of_lines(seed):
    yield from edits(seed, texts=False, members=0)
    for name, _ in json_texts():
        yield f"line_{name}", as_json({"edit": "line", "name": name})
    for i in range(40):
        yield f"in_line_{i:03}", as_json({"edit": "in_line", "seed": f"{seed}/{i}"})


def places():
    """Something else in the place of each file of a run folder."""
    for file in ("run.json", "options.toml", "metrics.jsonl", "timeline.json", "log.txt", "unfinished_step",
                 "checkpoints/latest", "checkpoints", "rollouts/000001.jsonl", "report.html", "tensorboard", ".lock",
                 *(f"{CHECKPOINT}/{name}" for name in ("MANIFEST.json", "state", "policy", "policy/model.safetensors",
                                                       "state/loop.json", "state/speculation.json", "state/spot.json",
                                                       "state/critic.json", "state/optimizer.safetensors"))):
        for kind in KINDS:
            yield f"{file.replace('/', '_')}_{kind}", as_json({"file": file, "kind": kind, "reader": RESUME})
    for file in ("run.json", "options.toml", "metrics.jsonl", "timeline.json", "rollouts/000001.jsonl", "rollouts"):
        for kind in KINDS:
            yield f"report_{file.replace('/', '_')}_{kind}", as_json({"file": file, "kind": kind, "reader": REPORT})


def draft_places():
    for file in ("config.json", "model.safetensors", "hot_token_id.json"):
        for kind in KINDS:
            yield f"{file}_{kind}", as_json({"file": file, "kind": kind})


def members_of(value, path=()):
    """The paths of all members, those inside of strings that are JSON included."""
    if isinstance(value, str) and value[:1] in "{[":
        try:
            value = json.loads(value)
        except ValueError:
            return
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from members_of(item, (*path, key))


def with_member(value, path, edge):
    if not path:
        return edge
    if isinstance(value, str):
        return json.dumps(with_member(json.loads(value), path, edge))
    value = value.copy()
    value[path[0]] = with_member(value[path[0]], path[1:], edge)
    return value


def edit_member(text, seed):
    draw = random.Random(seed)
    value = json.loads(text)
    paths = list(members_of(value))
    if not paths:
        return as_json(draw.choice(EDGES))
    depth = draw.choice(sorted({len(path) for path in paths}))
    return as_json(with_member(value, draw.choice([path for path in paths if len(path) == depth]), draw.choice(EDGES)))


def edited(edit, whole):
    """The bytes of a file after an edit."""
    kind = edit["edit"]
    if kind == "text":
        return fit(dict(json_texts())[edit["name"]])
    if kind == "cut":
        return whole[:int(len(whole) * edit["share"])]
    if kind == "member":
        return fit(edit_member(whole.decode(), edit["seed"]))
    if kind == "header":
        header, data = read_tensors(whole)
        return safetensors_file(edit_member(as_json(header), edit["seed"]), data)
    if kind in ("line", "in_line"):
        lines = whole.splitlines(keepends=True)
        middle = len(lines) // 2
        text = dict(json_texts())[edit["name"]] if kind == "line" else edit_member(lines[middle].decode(), edit["seed"])
        return b"".join(lines[:middle]) + fit(text).replace(b"\n", b" ") + b"\n" + b"".join(lines[middle:])
    return mutate(random.Random(edit["seed"]), whole, whole)


def mutate(draw, data, other):
    """One to four changes of the bytes."""
    data = bytearray(data)
    for _ in range(draw.randint(1, 4)):
        begin = draw.randrange(len(data) + 1)
        end = min(len(data), begin + draw.choice([1, 4, 30, 1000]))
        change = draw.randrange(6)
        if change == 0 and begin < len(data):
            data[begin] ^= 1 << draw.randrange(8)
        elif change == 1:
            del data[begin:end]
        elif change == 2:
            data[begin:begin] = data[begin:end] * draw.choice([1, 10, 1000])
        elif change == 3:
            del data[begin:]
        elif change == 4:
            data[begin:end] = draw.randbytes(end - begin)
        else:
            data[begin:] = other[draw.randrange(len(other) + 1):]
    return bytes(data)


CHECKPOINT = "checkpoints/step_000001"
# What reads a file: `tlt report`; the same command again, of a run that is complete; or that does a further step.
REPORT, RESUME, STEP = "report", "resume", "step"
# Parser: the file of the run folder, and what reads it.
RUN_FILES = {
    "run_json": ("run.json", RESUME),
    "history": ("options.toml", RESUME),
    "speculation": (f"{CHECKPOINT}/state/speculation.json", STEP),
    "idle_training": (f"{CHECKPOINT}/state/spot.json", STEP),
    "draft_buffer": (f"{CHECKPOINT}/state/draft_buffer_0.bin", STEP),
    "critic": (f"{CHECKPOINT}/state/critic.json", RESUME),
    "optimizer": (f"{CHECKPOINT}/state/optimizer.safetensors", RESUME),
    "unfinished_step": ("unfinished_step", RESUME),
    "metrics": ("metrics.jsonl", REPORT),
    "rollouts": ("rollouts/000001.jsonl", REPORT),
    "timeline": ("timeline.json", REPORT),
}
SEALED = b"tlt unfinished step 4\n"  # first line; then the SHA-256 of the rest


def unfinished():
    """What follows the file's checksum: steps done, a hash, and pairs of a hash and packed rollouts."""
    def text(value):
        return struct.pack("<Q", len(value)) + value
    def step(number, *parts):
        return struct.pack("<q", number) + b"".join(parts)
    for name, data in {"empty": b"", "short": b"\1", "negative": step(-1, text(b"x")), "far": step(2**63 - 1, text(b"x")),
                       "lengths": step(1, struct.pack("<Q", 2**64 - 1)), "long": step(1, struct.pack("<Q", 2**32), b"x" * 9),
                       "open": step(1, text(b"s"), text(b"p")), "many": step(1, text(b"s"), text(b"") * 60_000),
                       "rollouts": step(1, text(b"0" * 64), text(b"0" * 64), text(b"\xff" * 900_000))}.items():
        yield name, as_json({"edit": "sealed", "hex": data.hex()[:900_000]})
    yield from edits("unfinished", members=0)


def makers():
    """Parser: extension, maker, and valid files to mutate."""
    def file(path):
        return lambda: [path.read_bytes()]
    def none():
        return []
    made = {
        "draft_config": ("json", draft_config, file(DRAFTER / "config.json")),
        "draft3_config": ("json", draft3_config, file(DRAFTER3 / "config.json")),
        "draft_weights": ("safetensors", draft_weights, file(DRAFTER / "model.safetensors")),
        "draft3_weights": ("safetensors", draft3_weights, file(DRAFTER3 / "model.safetensors")),
        "draft_tokens": ("json", draft_tokens, lambda: [b"[3, 1, 2]"]),
        "draft_places": ("json", draft_places, none),
        "places": ("json", places, none),
    }
    kinds = {"optimizer": edits_of_tensors, "draft_buffer": lambda seed: edits(seed, texts=False, members=0),
             "history": lambda seed: edits(seed, texts=False, members=0), "metrics": edits_of_lines,
             "rollouts": edits_of_lines, "unfinished_step": lambda seed: unfinished()}
    for parser in RUN_FILES:
        made[parser] = ("json", lambda parser=parser: kinds.get(parser, edits)(parser), none)
    return made


# ---- the commands that read them


class Folders:
    """The folders around a hostile file, and the command that reads it, by parser."""

    def __init__(self, program, root, scratch):
        self.program, self.root, self.scratch = program, root, scratch
        self.run_seconds = 0.0  # CPU time of finished_run(), which a run without its checkpoint takes again

    def command(self, parser, file):
        if parser.startswith("draft") and parser not in RUN_FILES:
            return self.draft(parser, file)
        name, reader = RUN_FILES.get(parser, ("", RESUME))
        folder, command = self.finished_run()
        if file:
            edit = json.loads(file.read_text())
            if parser == "places":
                self.put(folder / edit["file"], edit["kind"])
                reader = edit["reader"]
            else:
                self.replace(folder, name, edit)
        if reader == REPORT:
            return ["report", folder, "--output", "-"]
        return command + (["trainer.total_training_steps=2"] if reader == STEP else [])

    def draft(self, parser, file):
        is_third = parser.startswith("draft3")
        folder = self.scratch / "drafter"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        source = DRAFTER3 if is_third else DRAFTER
        for name in ("config.json", "model.safetensors"):
            shutil.copy(source / name, folder / name)
        if file and parser == "draft_places":
            edit = json.loads(file.read_text())
            self.put(folder / edit["file"], edit["kind"])
        elif file:
            name = parser.partition("_")[2]
            shutil.copy(file, folder / {"config": "config.json", "weights": "model.safetensors",
                                        "tokens": "hot_token_id.json"}[name])
        prompt = self.scratch / "drafted.jsonl"
        prompt.write_text('{"tokens": [5, 6, 7, 5, 6, 7]}\n')
        return ["generate", "--model", TARGET3 if is_third else TARGET, "--drafter", folder, "--speculation", "eagle",
                "--strategy", "3_2_6", "--prompts", prompt, "--max-new-tokens", "12", "--ignore-eos", "--kv-memory", "4MB",
                "--output", "-", "--threads", "1"]

    def finished_run(self):
        """The folder of a run of one step with all that a checkpoint can have, and the command that made it."""
        folder, whole = self.scratch / "trained", self.scratch / "whole_trained"
        command = ["train", "recipes/demo.toml", f"trainer.default_local_dir={folder}", "trainer.total_training_steps=1",
                   "data.train_batch_size=2", "rollout.n=2", "data.max_response_length=24", "trainer.val_before_train=false",
                   "trainer.test_freq=0", "trainer.save_freq=1", "actor.ppo_max_token_len_per_gpu=200",
                   "algorithm.adv_estimator=gae", "speculative.train.save_buffer=true", "speculative.train.gap_share=0.5",
                   "rollout.kv_memory_bytes=4000000", "trainer.threads=1"]
        if not whole.exists():
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            made = subprocess.run([self.program, *map(str, command)], cwd=self.root, capture_output=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            self.run_seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            if made.returncode:
                raise SystemExit(f"the run for hostile checkpoints failed: {made.stderr.decode()[-2000:]}")
            (folder / "unfinished_step").write_bytes(SEALED)
            shutil.copytree(folder, whole)
        self.remove(folder)
        shutil.copytree(whole, folder, copy_function=os.link)
        for name in ("log.txt", "timeline.json", ".lock"):  # written in place: not the other link's
            (folder / name).unlink(missing_ok=True)
            if (whole / name).exists():
                shutil.copy(whole / name, folder / name)
        return folder, command

    @staticmethod
    def remove(path):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.exists() or path.is_symlink():
            path.unlink()

    def replace(self, folder, name, edit):
        path = folder / name
        whole = path.read_bytes()
        data = bytes.fromhex(edit["hex"]) if edit["edit"] == "sealed" else edited(edit, whole)
        if edit["edit"] == "sealed":
            data = SEALED + hashlib.sha256(data).hexdigest().encode() + b"\n" + data
        path.unlink()  # the other link stays whole
        path.write_bytes(data)
        if name.startswith(CHECKPOINT):
            self.repair_sum(folder / CHECKPOINT, name.removeprefix(CHECKPOINT + "/"))

    @staticmethod
    def repair_sum(checkpoint, name):
        path = checkpoint / "MANIFEST.json"
        manifest = json.loads(path.read_text())
        data = (checkpoint / name).read_bytes()
        manifest["files"][name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        path.unlink()
        path.write_text(json.dumps(manifest))

    def put(self, path, kind):
        """Something else in the place of a file or folder."""
        self.remove(path)
        if kind == "fifo":
            os.mkfifo(path)
        elif kind == "folder":
            path.mkdir()
            (path / "file").write_text("x")
        elif kind == "socket":
            with socket.socket(socket.AF_UNIX) as server:
                short = self.scratch / "s"  # the name of a socket is short
                short.unlink(missing_ok=True)
                server.bind(str(short))
                short.rename(path)
        else:
            path.symlink_to({"zeros": "/dev/zero", "dangling": "/nonexistent/file", "circle": path.name + ".circle",
                             "itself": path.name, "terminal": "/dev/ptmx"}[kind])
            if kind == "circle":
                circle = path.with_name(path.name + ".circle")
                self.remove(circle)
                circle.symlink_to(path.name)
