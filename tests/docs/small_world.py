# SPDX-License-Identifier: Apache-2.0
"""Small files with the names that the pages use: models, runs, draft models, data, servers."""
import json
import os
import re
import shutil
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from small_tlt import DATA_OF_RECIPE

ROOT = Path(__file__).resolve().parents[2]
SMALL_TLT = Path(__file__).resolve().parent / "small_tlt.py"
LINKED = ["recipes", "models", "tools", "tests", "bench", "examples", "README.md", "docs"]
TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant: {% endif %}"

PROMPTS = [{"id": i, "prompt": f"{i},3,4:{i * 7}<think>", "solution": str(i * 7), "data_source": "openai/gsm8k"}
           for i in range(2, 6)]  # fmt: skip
QUESTIONS = [{"question": f"What is {i} + 1?", "problem": f"What is {i} + 1?", "answer": f"#### {i + 1}"} for i in range(4)]
CHATS = [{"messages": [{"role": "user", "content": f"Say {i}"}, {"role": "assistant", "content": f"It is {i}."}]}
         for i in range(4)]  # fmt: skip
PAIRS = [{"prompt": f"{i},3:{i * 3}<think>", "chosen": f"{i} * 3 = {i * 3}", "rejected": f"{i} + 3 = {i + 3}"}
         for i in range(4, 8)]  # fmt: skip
RECIPE = """[model]
path = "Qwen2.5-0.5B-Instruct"
[data]
train_files = ["problems.jsonl"]
max_prompt_length = 64
[reward]
functions = ["exact"]
[actor]
ppo_max_token_len_per_gpu = 1024
"""
VERL = """data:
  train_files: problems.jsonl
  train_batch_size: 2
  max_prompt_length: 64
actor_rollout_ref:
  model:
    path: Qwen2.5-0.5B-Instruct
  rollout:
    n: 4
    gpu_memory_utilization: 0.4
algorithm:
  adv_estimator: grpo
"""


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


class Stub(BaseHTTPRequestHandler):
    """A reward server and a judge: every response scores 0.5."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "messages" in body:
            answer = {"choices": [{"message": {"role": "assistant", "content": '{"score": 0.5}'}}]}
        else:
            answer = {"rewards": [0.5] * len(body["query"])}
        text = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


class SmallWorld:
    """The files, made once; pages get copies of those they name."""

    def __init__(self, program, folder):
        self.program, self.folder = program, folder
        self.lock = threading.Lock()
        self.stub = ThreadingHTTPServer(("127.0.0.1", 0), Stub)
        threading.Thread(target=self.stub.serve_forever, daemon=True).start()
        self.page_folder("fixture", linked=LINKED)
        self.made = {}

    def close(self):
        self.stub.shutdown()
        self.stub.server_close()

    def environment(self, **more):
        plain = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH", "LANG") if name in os.environ}
        plain["PATH"] = f"{self.folder}/bin:{plain['PATH']}"
        return {**plain, "HOME": str(self.folder), "TLT_REAL": str(self.program), "PYTHONDONTWRITEBYTECODE": "1", **more}

    def page_folder(self, name, linked=LINKED):
        """A working directory with build/tlt and the folders of the repository that commands read."""
        folder = self.folder / name
        (folder / "build").mkdir(parents=True)
        (self.folder / "bin").mkdir(exist_ok=True)
        for link in (folder / "build/tlt", self.folder / "bin/tlt"):
            if not link.is_symlink():
                link.symlink_to(SMALL_TLT)
        for entry in linked:
            (folder / entry).symlink_to(ROOT / entry)
        return folder

    # ---- what takes a command to make, once

    def once(self, name, make):
        with self.lock:
            if name not in self.made:
                make(self.folder / "fixture")
                self.made[name] = self.folder / "fixture" / name
            return self.made[name]

    def tlt(self, *words):
        ended = subprocess.run(["tlt", *words], cwd=self.folder / "fixture", env=self.environment(), text=True,
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               timeout=900, check=False)  # fmt: skip
        assert ended.returncode == 0, f"the fixture's tlt {words}: exit code {ended.returncode}\n{ended.stdout}"

    def chat_model(self):
        def make(folder):
            shutil.copytree(ROOT / "models/word_problems", folder / "shape")
            config = json.loads((folder / "shape/config.json").read_text())
            config.update(hidden_size=64, intermediate_size=128, num_hidden_layers=2)
            config.pop("layer_types", None)
            (folder / "shape/config.json").write_text(json.dumps(config))
            (folder / "shape/chat_template.jinja").write_text(TEMPLATE)
            write_rows(folder / "chats.jsonl", CHATS)
            self.tlt("sft", "model.path=shape", "model.random_seed=0", "data.train_files=chats.jsonl",
                     "trainer.experiment_name=chat")  # fmt: skip
            (folder / "runs/chat/policy/chat_template.jinja").write_text(TEMPLATE)

        return self.once("runs/chat/policy", make)

    def demo_run(self):
        return self.once("runs/demo", lambda folder: self.tlt("train", "recipes/demo.toml", "trainer.total_training_steps=2"))

    def drafter(self):
        return self.once("runs/draft_demo/drafter", lambda folder: self.tlt("draft", "recipes/draft_demo.toml"))

    def evaluation(self, name, seed):
        return self.once(f"evals/{name}", lambda folder: self.tlt(
            "eval", "--model", "models/demo", "--data", "countdown:seed=7,size=4", "--output", f"evals/{name}",
            f"trainer.seed={seed}"))  # fmt: skip

    # ---- files by name

    def makers(self):
        copy_of = lambda make: lambda path: shutil.copytree(make(), path, symlinks=True)  # noqa: E731
        rows = lambda values: lambda path: write_rows(path, values)  # noqa: E731
        text = lambda value: lambda path: path.write_text(value, encoding="utf-8")  # noqa: E731
        models = ("Qwen2.5-0.5B-Instruct", "Qwen2.5-7B-Instruct", "Qwen2.5-0.5B", "Qwen2.5-7B")
        return {
            **{name: copy_of(self.chat_model) for name in models},
            **{name: copy_of(self.demo_run) for name in ("runs/demo", "runs/a", "runs/b")},
            **{name: copy_of(self.drafter) for name in ("runs/draft_demo/drafter", "runs/headline_draft/drafter", "DRAFTER")},
            **{name: lambda path: path.symlink_to(ROOT / "models/demo") for name in ("runs/headline_sft/policy", "FOLDER", "MODEL")},
            "evals/before": copy_of(lambda: self.evaluation("before", 0)),
            "evals/after": copy_of(lambda: self.evaluation("after", 1)),
            "prompts.jsonl": rows(PROMPTS), "problems.jsonl": rows(PROMPTS), "gsm8k.jsonl": rows(QUESTIONS), "math500.jsonl": rows(QUESTIONS),
            "pairs.jsonl": rows(PAIRS), "held_out_pairs.jsonl": rows(PAIRS),
            "aime24.jsonl": rows(QUESTIONS), "chats.jsonl": rows(CHATS), "held_out.jsonl": rows(CHATS),
            "TRACE": lambda path: write_rows(path, [{"0": {"output_tokens": "{40: 0.5, 90: 0.5}"}}]),
            "ROWS.jsonl": rows([{"prompt": "2,3:6<think>", "response": "2*3=6</think>"}] * 4),
            "train.parquet": lambda path: shutil.copy(ROOT / "tests/golden/parquet/verl_gsm8k.parquet", path),
            "recipe.toml": text(RECIPE), "RECIPE.toml": text(RECIPE), "config.yaml": text(VERL),
            "my_scores.py": text("import sys\nfor line in sys.stdin:\n    print(0.5, flush=True)\n"),
        }  # fmt: skip

    def place(self, folder, text):
        """Makes the files that a command names and that are not there yet; of recipes, also those that they name."""
        for recipe in re.findall(r"[\w./-]+\.toml", text):
            if (folder / recipe).is_file():
                text += "\n" + (folder / recipe).read_text(encoding="utf-8")
            text += "\n" + " ".join(DATA_OF_RECIPE.get(recipe, []))
        for name, make in self.makers().items():
            path = folder / name
            if re.search(rf"(?<![\w./-]){re.escape(name)}(?![\w.-])", text) and not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                make(path)
                if path.suffix == ".toml":
                    self.place(folder, path.read_text(encoding="utf-8"))
        for run, step in re.findall(r"(runs/[\w.-]+)/checkpoints/(step_\d+)", text):
            checkpoints = folder / run / "checkpoints"
            if checkpoints.is_dir() and not (checkpoints / step).exists():
                newest = max(path for path in checkpoints.glob("step_*") if not path.is_symlink())
                (checkpoints / step).symlink_to(newest.name)
