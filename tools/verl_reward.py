#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a reward function written for verl as tlt's reward `command`, unchanged.

  tlt train recipe.toml 'reward.functions=["command"]' reward.command="python3 tools/verl_reward.py my_reward.py"

  verl_reward.py FILE_OR_MODULE [--name compute_score] [--kwargs '{"option": 1}']
  PYTHONPATH=/path/of/tlt/tools python3 -m verl_reward FILE_OR_MODULE …       from any folder

FILE_OR_MODULE is verl's custom_reward_function.path, or a module such as verl.utils.reward_score.gsm8k; --name and
--kwargs are its `name` and `reward_kwargs`. The function is called as verl calls it,
  compute_score(data_source=..., solution_str=..., ground_truth=..., extra_info=...)
and returns a number, a dict with "score" (its other numbers become columns of the rollout dump), or a list whose first
item is the score. verl.utils.reward_score.gsm8k and its like, which do not take all four, get those that they name. What
the function raises costs the sample its score; what it prints goes to standard error.
"""
import argparse
import importlib
import importlib.util
import inspect
import json
import math
import os
import sys


def load_function(path, name):
    if path.endswith(".py"):
        spec = importlib.util.spec_from_file_location("custom_reward", path)
        module = importlib.util.module_from_spec(spec)
        sys.modules["custom_reward"] = module  # as verl does: a dataclass of the file looks itself up there
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(path)
    return getattr(module, name)


def accepted(function, arguments):
    """Those of the arguments that the function has a name for."""
    parameters = inspect.signature(function).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return arguments
    names = {parameter.name for parameter in parameters}
    return {name: value for name, value in arguments.items() if name in names}


def is_number(value):
    return isinstance(value, (bool, int, float)) or hasattr(value, "item") and getattr(value, "size", 1) == 1


def plain(value):
    value = float(value)
    if not math.isfinite(value):
        raise ValueError(f"the score is {value}")
    return value


def answer_of(result):
    if isinstance(result, dict):
        extras = {str(name): plain(value) for name, value in result.items() if is_number(value)}
        return {**extras, "score": plain(result["score"])}
    return {"score": plain(result if is_number(result) else result[0])}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("function", metavar="FILE_OR_MODULE")
    parser.add_argument("--name", default="compute_score")
    parser.add_argument("--kwargs", type=json.loads, default={})
    arguments = parser.parse_args()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what the function prints is no score
    function = load_function(arguments.function, arguments.name)
    for line in sys.stdin.buffer:
        row = json.loads(line)
        call = {"data_source": row["data_source"], "solution_str": row["response"], "ground_truth": row["ground_truth"],
                "extra_info": row["extra_info"] or {}, **arguments.kwargs}
        try:
            answer = answer_of(function(**accepted(function, call)))
        except Exception as error:  # of the user's function: this sample's, not the run's
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps({**answer, "id": row["id"]}) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
