# SPDX-License-Identifier: Apache-2.0
"""read_tracker.py PACKAGE FOLDER: what trackers have logged offline, read by their own packages.

Prints {"runs": number of runs, "config", "rows": [{"step", metric: value …}], "tables": [text]} as one JSON object. NaN
is "nan".
"""
import glob
import json
import math
import struct
import sys


def wandb_records(path):
    """The records of a .wandb file: LevelDB's log format, with messages of wandb's own protocol."""
    from wandb.proto import wandb_internal_pb2

    with open(path, "rb") as file:
        data = file.read()
    place, record = 7, b""  # after the file's header
    while place + 7 <= len(data):
        left = 32768 - place % 32768
        if left < 7:
            place += left
            continue
        size, kind = struct.unpack("<HB", data[place + 4 : place + 7])
        record += data[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):  # whole; last part
            message = wandb_internal_pb2.Record()
            message.ParseFromString(record)
            record = b""
            yield message


def wandb(folder):
    runs, config, rows, tables = set(), {}, [], []
    for path in sorted(glob.glob(folder + "/wandb/wandb/offline-run-*/*.wandb")):
        for record in wandb_records(path):
            if record.HasField("run"):
                runs.add(record.run.run_id)
                updates = record.run.config.update
            else:
                updates = record.config.update
            for item in updates:
                config[item.key or "/".join(item.nested_key)] = json.loads(item.value_json)
            if record.HasField("history"):
                row = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
                row["step"] = record.history.step.num
                rows.append(row)
    for path in sorted(glob.glob(folder + "/wandb/wandb/offline-run-*/files/media/table/**/*.json", recursive=True)):
        with open(path) as file:
            tables.append(file.read())
    return len(runs), config, rows, tables


def mlflow(folder):
    from mlflow import MlflowClient

    client = MlflowClient()
    experiment = client.get_experiment_by_name("tracked")
    runs = client.search_runs([experiment.experiment_id])
    steps, tables = {}, []
    for run in runs:
        assert run.info.run_name == "a run" and run.info.status == "FINISHED", run.info
        for name in run.data.metrics:
            for point in client.get_metric_history(run.info.run_id, name):
                steps.setdefault(point.step, []).append((name, point.value))
        for file in client.list_artifacts(run.info.run_id, "val/generations"):
            tables.append(json.dumps(__import__("mlflow").artifacts.load_dict(run.info.artifact_uri + "/" + file.path)))
    rows = []
    for step in sorted(steps):
        row = {"step": step}
        for name, value in steps[step]:
            assert name not in row, (step, name, "logged twice")
            row[name] = value
        rows.append(row)
    return len(runs), dict(runs[0].data.params), rows, tables


def swanlab(folder):
    import yaml
    from swanlab.proto.swanlab.record.v1.record_pb2 import Record
    from swanlab.sdk.internal.core_python.store import DataStoreReader

    runs, config, steps, tables = set(), {}, {}, []
    for path in sorted(glob.glob(folder + "/swanlab/run-*/*.swanlab")):
        reader = DataStoreReader()
        reader.open(path)
        for data in reader:
            record = Record()
            record.ParseFromString(data)
            if record.HasField("start"):
                assert (record.start.project, record.start.name) == ("tracked", "a run"), record.start
                runs.add(record.start.id)
            if record.HasField("scalar"):
                steps.setdefault(record.scalar.step, {})[record.scalar.key] = record.scalar.value.number
            if record.HasField("media"):
                for item in record.media.value.items:
                    [file] = glob.glob(path.rsplit("/", 1)[0] + "/media/*/" + item.filename)
                    with open(file) as text:
                        tables.append(text.read())
        with open(path.rsplit("/", 1)[0] + "/files/config.yaml") as text:
            config = {name: item["value"] for name, item in yaml.safe_load(text).items()}
    return len(runs), config, [{"step": step, **row} for step, row in sorted(steps.items())], tables


def trackio(folder):
    import trackio
    from trackio.sqlite_storage import SQLiteStorage

    [run] = trackio.Api().runs("tracked")
    rows, tables = [], []
    for row in SQLiteStorage.get_logs("tracked", run.name):
        table = row.pop("val/generations", None)
        row.pop("timestamp")
        if table is not None:
            tables.append(json.dumps(table))
        if len(row) > 1:
            rows.append(row)
    return 1, run.config, rows, tables


runs, config, rows, tables = globals()[sys.argv[1]](sys.argv[2])
for row in rows:
    for name, value in row.items():
        if isinstance(value, float) and math.isnan(value):
            row[name] = "nan"
print(json.dumps({"runs": runs, "config": config, "rows": rows, "tables": tables}))
