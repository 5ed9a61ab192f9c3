// The Python program of a tracker (tracker.h): passes a run's metrics to the Python package of an
// experiment tracker. It reads one JSON object per line and answers each with one:
//
//   {"find": package}               whether it is installed   -> {"found", "python"}
//   {"start": {"package", "project", "name", "id", "config"}} -> {"id", "where"}
//       `id`: of the tracker's run to continue; empty: a new one. `where`: its URL or folder.
//   {"log": {"step", metric: value …}}                        -> {}
//   {"table": {"name", "step", "columns", "rows"}}            -> {}
//   {"finish": exit code of the run}                          -> {}
//
// or with {"error": "why"}. A metric that is not finite is null. The packages get an empty standard
// input, and what they print goes to standard error, so that only answers are on standard output.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tlt::tracker {

inline constexpr const char* kTrackerProgram = R"py(
import importlib, importlib.util, inspect, json, os, re, sys

# Not inherited by programs that a package starts.
requests, answers = os.fdopen(os.dup(0), encoding="utf-8"), os.fdopen(os.dup(1), "w", encoding="utf-8")
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
os.dup2(2, 1)
sys.path[:] = [folder for folder in sys.path if folder]  # in the working folder wandb/ may be runs, not the package


def nested(config):
    """{"trainer.seed": 0} as {"trainer": {"seed": 0}}."""
    tree = {}
    for name, value in config.items():
        *groups, last = name.split(".")
        node = tree
        for group in groups:
            node = node.setdefault(group, {})
        node[last] = value
    return tree


def first_of(owner, *names):
    """The first of these attributes that is set; swanlab raises an error for a URL that a local run does not have."""
    for name in names:
        try:
            value = getattr(owner, name)
        except Exception:
            continue
        if value:
            return str(value)
    return ""


class Wandb:
    def start(self, package, project, name, id, config):
        os.environ.setdefault("WANDB_CONSOLE", "off")  # this program's output is not the run's
        self.table_of = package.Table
        self.run = package.init(project=project, name=name, id=id or None, resume="allow" if id else None)
        self.run.config.update(nested(config), allow_val_change=True)
        return {"id": self.run.id, "where": first_of(self.run, "url") or first_of(self.run.settings, "sync_dir")}

    def log(self, step, metrics):
        self.run.log(metrics, step=step, commit=True)

    def table(self, name, step, columns, rows):
        self.run.log({name: self.table_of(columns=columns, data=rows)}, step=step, commit=False)

    def finish(self, code):
        self.run.finish(exit_code=code)


class Mlflow:
    logged = -1  # last step that an earlier start of the run has logged

    def start(self, package, project, name, id, config):
        self.mlflow = package
        if id:
            run = package.start_run(run_id=id)
            client = package.MlflowClient()
            history = client.get_metric_history(id, "training/global_step")
            self.logged = max((point.step for point in history), default=-1)
        else:
            package.set_experiment(project)
            run = package.start_run(run_name=name)
        known = run.data.params
        config = {key: str(value) for key, value in config.items()}
        new = [(key, value) for key, value in config.items() if key not in known]
        for first in range(0, len(new), 100):  # the most of a request
            package.log_params(dict(new[first : first + 100]))
        for key, value in config.items():  # parameters are constant
            if key in known and known[key] != value and not known[key].startswith(value[:500]):
                package.set_tag("changed." + key, value)
        where = package.get_tracking_uri()
        self.has_files = where.startswith("file:") or ":" not in where and not where.startswith("databricks")
        return {"id": run.info.run_id, "where": where}

    def log(self, step, metrics):
        if step > self.logged:
            self.mlflow.log_metrics({self.name_of(key): value for key, value in metrics.items()}, step=step)

    def name_of(self, metric):
        name = re.sub(r"[^\w\-. /]", "_", metric.replace("@", "_at_"))
        if self.has_files:  # of the names of metrics: a metric a/b leaves no room for a/b/c
            group, _, rest = name.partition("/")
            name = group + "/" + rest.replace("/", "_") if rest else name
        return name

    def table(self, name, step, columns, rows):
        self.mlflow.log_dict({"columns": columns, "data": rows}, "%s/%06d.json" % (name, step))

    def finish(self, code):
        self.mlflow.end_run("FINISHED" if code == 0 else "KILLED" if code > 128 else "FAILED")


class Swanlab:
    def start(self, package, project, name, id, config):
        self.swanlab = package
        names = inspect.signature(package.init).parameters
        more = {"name" if "name" in names else "experiment_name": name}
        if id:
            more.update(id=id, resume="allow")
        self.run = package.init(project=project, config=nested(config), **more)
        id = first_of(self.run, "id") or self.run.public.run_id
        return {"id": id, "where": first_of(self.run, "url", "dir")}

    def log(self, step, metrics):
        self.swanlab.log(metrics, step=step)

    def table(self, name, step, columns, rows):
        table = self.swanlab.echarts.Table()
        table.add(columns, [[str(cell) for cell in row] for row in rows])
        self.swanlab.log({name: table}, step=step)

    def finish(self, code):
        if code == 0:
            self.swanlab.finish()
        else:
            self.swanlab.finish(state="crashed", error="tlt ended with exit code %d" % code)


class Trackio:
    def start(self, package, project, name, id, config):
        self.trackio = package
        run = package.init(project=project, name=id or name, config=nested(config), resume="allow" if id else "never")
        return {"id": run.name, "where": first_of(run, "url") or "trackio show --project " + project}

    def log(self, step, metrics):
        self.trackio.log(metrics, step=step)

    def table(self, name, step, columns, rows):
        self.trackio.log({name: self.trackio.Table(columns=columns, data=rows)}, step=step)

    def finish(self, code):
        self.trackio.finish()


def find(package):
    spec = importlib.util.find_spec(package)  # without an origin: a folder of that name, no package
    return {"found": spec is not None and spec.origin is not None, "python": sys.executable}


def start(request):
    global tracker
    package = request.pop("package")
    tracker = {"wandb": Wandb, "mlflow": Mlflow, "swanlab": Swanlab, "trackio": Trackio}[package]()
    return tracker.start(importlib.import_module(package), **request)


def log(request):
    step = request.pop("step")
    tracker.log(step, {key: float("nan") if value is None else value for key, value in request.items()})


def table(request):
    tracker.table(**request)


def finish(code):
    tracker.finish(code)


for line in requests:
    [(kind, request)] = json.loads(line).items()
    try:
        result = {"find": find, "start": start, "log": log, "table": table, "finish": finish}[kind](request) or {}
    except BaseException as error:  # a package that calls sys.exit(), too
        result = {"error": "%s: %s" % (type(error).__name__, str(error)[:600])}
    answers.write(json.dumps(result) + "\n")
    answers.flush()
)py";

}  // namespace tlt::tracker
