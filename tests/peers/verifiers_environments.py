# SPDX-License-Identifier: Apache-2.0
"""Environments of the classes of the package verifiers, on rows of their own: single turn, several turns, tools, tools with
state, and a group of environments. load_environment(kind=…) as the package's documentation has it."""
import difflib

import verifiers as vf
from datasets import Dataset

WORDS = ["stone", "river", "lantern", "orchard"]


def single():
    parser = vf.XMLParser(["think", "answer"], answer_field="answer")

    def exact(completion, answer, parser):
        return 1.0 if parser.parse_answer(completion) == answer else 0.0

    async def near(completion, answer, parser, **_):
        return difflib.SequenceMatcher(None, parser.parse_answer(completion) or "", answer).ratio()

    rubric = vf.Rubric([exact, near, parser.get_format_reward_func()], weights=[1.0, 0.5, 0.25], parser=parser)
    rows = [{"question": f"Reverse the word {word}.", "answer": word[::-1]} for word in WORDS]
    return vf.SingleTurnEnv(dataset=Dataset.from_list(rows), system_prompt="Put the word into <answer>.", parser=parser,
                            rubric=rubric)


class NumberGame(vf.MultiTurnEnv):
    """A number between 1 and 9; ends when it is found, or after four turns."""

    async def setup_state(self, state):
        state["answers"] = []
        return state

    @vf.stop
    async def found(self, state):
        last = state["trajectory"][-1]["completion"][-1]["content"] if state["trajectory"] else ""
        return state["answer"] in last.split()

    async def env_response(self, messages, state, **_):
        state["answers"].append(messages[-1]["content"])
        size = "longer" if len(messages[-1]["content"]) % 2 else "shorter"
        return [{"role": "user", "content": f"No. The right answer is {size}, in {len(state['answers'])}."}]


def several():
    def found(completion, answer):
        return 1.0 if answer in completion[-1]["content"].split() else 0.0

    def letters(completion):
        return sum(len(m["content"]) % 7 for m in completion if m["role"] == "assistant") / 28

    def turns(state):
        return len(state["answers"])

    rows = [{"question": f"Which number do I think of? It is not {i % 9 + 1}.", "answer": str(i)} for i in range(1, 9)]
    return NumberGame(dataset=Dataset.from_list(rows), max_turns=4, rubric=vf.Rubric([found, letters, turns], [1.0, 0.5, 0.0]))


def add(a: int, b: int) -> int:
    """Adds two numbers.

    Args:
        a: The first number.
        b: The second number.

    Returns:
        Their sum.
    """
    return a + b


def repeat(text: str, times: int = 2) -> str:
    """Repeats a text.

    Args:
        text: The text.
        times: How often.

    Returns:
        The repeated text.
    """
    return text * times


def tool_rows():
    return Dataset.from_list([{"question": f"What is {i} + 40?", "answer": str(i + 40), "info": {"calls": ["add"]}}
                              for i in range(3)])


def tool_rubric():
    def right(completion, answer):
        return 1.0 if answer in (completion[-1].get("content") or "") else 0.0

    def called(completion, info):
        names = [call["function"]["name"] if isinstance(call, dict) else call.function.name
                 for message in completion for call in message.get("tool_calls") or []]
        return 1.0 if names == info["calls"] else 0.0

    return vf.Rubric([right, called], weights=[1.0, 0.5])


def tools():
    counts = vf.ToolRubric(tools=[add, repeat])
    counts.weights = [0.125, 0.0, 0.0]
    return vf.ToolEnv(tools=[add, repeat], dataset=tool_rows(), max_turns=5,
                      rubric=vf.RubricGroup([tool_rubric(), counts]))


class Counting(vf.StatefulToolEnv):
    """The tool adds the number of calls so far, which the model does not see."""

    async def setup_state(self, state):
        state["calls"] = 0
        return state

    def update_tool_args(self, tool_name, tool_args, messages, state, **_):
        state["calls"] += 1
        return {**tool_args, "b": state["calls"]}


def stateful():
    environment = Counting(dataset=tool_rows(), rubric=tool_rubric(), max_turns=5)
    environment.add_tool(add, args_to_skip=["b"])
    return environment


def group():
    return vf.EnvGroup(envs=[single(), several()], env_names=["single", "several"])


def load_environment(kind="several"):
    return {"single": single, "several": several, "tools": tools, "stateful": stateful, "group": group}[kind]()
