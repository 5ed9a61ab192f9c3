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
item is the score. Functions that do not take all four arguments, such as verl.utils.reward_score.gsm8k, get those that
they name. Missing fields of a row are None. A sample has no score if the function raises; output of the function goes to
standard error.
"""
import argparse
import json

from _reward_program import accepted, answer_rows, find_function, is_number, load_module, plain


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
    function = find_function(load_module(arguments.function), arguments.function, arguments.name)

    def answer(row):
        call = {"data_source": row["data_source"], "solution_str": row["response"], "ground_truth": row["ground_truth"],
                "extra_info": row["extra_info"] or {}, **arguments.kwargs}
        return answer_of(function(**accepted(function, call)))

    answer_rows(answer)


if __name__ == "__main__":
    main()
