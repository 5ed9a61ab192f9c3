#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs reward functions written for TRL as tlt's reward `command`, unchanged.

  tlt train recipe.toml 'reward.functions=["command"]' reward.command="python3 tools/trl_reward.py my_rewards.py"

  trl_reward.py FILE_OR_MODULE [FUNCTION …] [--weights W …]
  PYTHONPATH=/path/of/tlt/tools python3 -m trl_reward FILE_OR_MODULE …        from any folder

A function is called as TRL calls it, with lists of one item,
  reward_func(prompts=[...], completions=[...], completion_ids=[...], column=[...], ...)
where the columns are those of the data set except the prompt. A completion is a string or, if the prompt is a list of
messages, a list with the assistant's message. The function returns a list of one number, or of None if it does not
apply, and may be async. The score is the sum of all functions, each times its weight (default 1); each function's score
is a column of the rollout dump. Without FUNCTION it is `reward_func`, or the file's only function. A sample has no score
if a function raises or all return None; output of a function goes to standard error.
"""
import argparse
import asyncio
import inspect
import sys

from _reward_program import accepted, answer_rows, find_function, functions_of, load_module, plain


def default_names(module, path):
    names = functions_of(module)
    if "reward_func" in names:
        return ["reward_func"]
    if len(names) != 1:
        sys.exit(f"{path} has {len(names)} functions ({', '.join(names)}); name those that are rewards: "
                 f"trl_reward.py {path} {names[0] if names else 'FUNCTION'} …")
    return names


def arguments_of(row):
    """TRL's keyword arguments for a batch of this one sample."""
    columns = {name: [value] for name, value in (row["extra_info"] or {}).items()}
    for name in ("data_source", "ground_truth"):
        if row[name] is not None:
            columns.setdefault(name, [row[name]])
    is_chat = row["messages"] is not None
    completion = [{"role": "assistant", "content": row["response"]}] if is_chat else row["response"]
    call = {**columns, "prompts": [row["messages"] if is_chat else row["prompt"]], "completions": [completion]}
    if row["response_ids"] is not None:
        call["completion_ids"] = [row["response_ids"]]
    return call


def score_of(function, row):
    """A number, or None."""
    scores = function(**accepted(function, arguments_of(row)))
    if inspect.isawaitable(scores):
        scores = asyncio.run(scores)
    try:
        count = len(scores)
    except TypeError:
        raise TypeError(f"{function.__name__} returned {scores!r}; TRL's functions return a list of numbers") from None
    if count != 1:
        raise ValueError(f"{function.__name__} returned {count} scores for 1 completion")
    return None if scores[0] is None else plain(scores[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("module", metavar="FILE_OR_MODULE")
    parser.add_argument("names", metavar="FUNCTION", nargs="*")
    parser.add_argument("--weights", type=float, nargs="+")
    arguments = parser.parse_args()
    module = load_module(arguments.module)
    names = arguments.names or default_names(module, arguments.module)
    functions = {name: find_function(module, arguments.module, name) for name in names}
    weights = arguments.weights or [1.0] * len(functions)
    if len(weights) != len(functions):
        sys.exit(f"{len(weights)} weights for {len(functions)} functions; give one for each")

    def answer(row):
        scores = {name: score_of(function, row) for name, function in functions.items()}
        known = {name: score for name, score in scores.items() if score is not None}
        if not known:
            return {"error": f"None from {', '.join(functions)}: no function applies to this sample"}
        total = sum(weight * known[name] for name, weight in zip(functions, weights) if name in known)
        return {**(known if len(functions) > 1 else {}), "score": total}

    answer_rows(answer)


if __name__ == "__main__":
    main()
