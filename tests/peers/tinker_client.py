#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tinker_client.py URL WHAT [ARGUMENT …]: drives a running `tlt serve --train` of the demo's model with the official
Tinker client (package tinker).

WHAT is loops, errors, sft ROWS or train ROLLOUTS. Prints "ok" at the end; an assertion names what differs. Tests of
src/apps/serve_tinker_test.cpp run it.
"""
import json
import math
import os
import sys
import urllib.request

import numpy as np
import tinker
from tinker import types

KEY = "tml-0123456789abcdef"
PROMPTS = ["4,6,8:24", "3,5,7:22", "2,9,4:15", "1,8,6:14"]


def encode(url, text):
    request = urllib.request.Request(
        url + "/tokenize",
        data=json.dumps({"prompt": text}).encode(),
        headers={"Content-Type": "application/json", "X-API-Key": KEY},
    )
    return json.load(urllib.request.urlopen(request))["tokens"]


def service(url):
    return tinker.ServiceClient(base_url=url, api_key=KEY)


def supervised_datum(prompt, response, weight=1.0):
    tokens = prompt + response
    weights = [0.0] * (len(prompt) - 1) + [weight] * len(response)
    return types.Datum(
        model_input=types.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={"target_tokens": tokens[1:], "weights": np.asarray(weights, dtype=np.float32)},
    )


def policy_datum(prompt, response, logprobs, advantages):
    tokens, padding = prompt + response, [0.0] * (len(prompt) - 1)
    return types.Datum(
        model_input=types.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={
            "target_tokens": tokens[1:],
            "logprobs": np.asarray(padding + list(logprobs), dtype=np.float32),
            "advantages": np.asarray(padding + list(advantages), dtype=np.float32),
        },
    )


def logprobs_of(output):
    return [datum["logprobs"].data for datum in output.loss_fn_outputs]


def supervised_loop(url, training, is_first=False):
    response = encode(url, "1,2,3")
    data = [supervised_datum(encode(url, prompt), response) for prompt in PROMPTS]
    losses, futures = [], []
    for _ in range(4):  # pipelined: nothing is retrieved before all is sent
        futures.append(training.forward_backward(data, "cross_entropy"))
        training.optim_step(types.AdamParams(learning_rate=3e-3))
    for future in futures:
        output = future.result()
        losses.append(output.metrics["loss:sum"])
        expected = -sum(sum(row[-len(response) :]) for row in logprobs_of(output))
        assert math.isclose(losses[-1], expected, rel_tol=1e-5), (losses[-1], expected)
    forward = training.forward(data, "cross_entropy").result().metrics["loss:sum"]
    if is_first:
        assert forward < losses[-1] < 0.8 * losses[0], losses
    return losses + [forward]


def policy_loop(url, training, loss_fn, config=None):
    """Two steps of GRPO that reward commas: tokens, logprobs and losses."""
    seen = []
    for step in range(2):
        sampler = training.save_weights_and_get_sampling_client().result()
        params = types.SamplingParams(max_tokens=16, temperature=1.0, stop=[encode(url, ")")[0], 1])
        prompts = [encode(url, prompt) for prompt in PROMPTS[:2]]
        answers = [sampler.sample(types.ModelInput.from_ints(prompt), 4, params) for prompt in prompts]
        data, sampled = [], []
        for prompt, future in zip(prompts, answers):
            sequences = future.result().sequences
            assert len(sequences) == 4
            rewards = np.asarray([sequence.tokens.count(prompt[1]) for sequence in sequences], dtype=np.float64)
            for sequence, advantage in zip(sequences, rewards - rewards.mean()):
                scored = sampler.compute_logprobs(types.ModelInput.from_ints(prompt + sequence.tokens)).result()
                assert scored[0] is None
                assert scored[len(prompt) :] == sequence.logprobs, "scored as they were sampled"
                assert sequence.stop_reason in ("stop", "length")
                seen.append((sequence.tokens, sequence.logprobs))
                sampled.append(sequence.logprobs)
                data.append(
                    policy_datum(prompt, sequence.tokens, sequence.logprobs, [advantage] * len(sequence.tokens))
                )
        assert any(any(datum.loss_fn_inputs["advantages"].data) for datum in data)
        gradients = training.forward_backward(data, loss_fn, config)
        training.optim_step(types.AdamParams(learning_rate=1e-3)).result()
        output = gradients.result()
        for logprobs, row in zip(sampled, logprobs_of(output)):
            assert row[-len(logprobs) :] == logprobs, "the trainer's logprobs are the sampler's"
        seen.append(output.metrics["loss:sum"])
    return seen


def dro_loss(url, training):
    """The loss is that of the documentation's formula."""
    prompt, response = encode(url, PROMPTS[0]), encode(url, "1,2,3")
    data = [supervised_datum(prompt, response)]
    scored = logprobs_of(training.forward(data, "cross_entropy").result())[0][-len(response) :]
    sampled, advantages = [x - 0.5 for x in scored], [1.0 - i for i in range(len(response))]
    inputs = policy_datum(prompt, response, sampled, advantages).loss_fn_inputs
    inputs = {**inputs, "weights": data[0].loss_fn_inputs["weights"]}
    data = [types.Datum(model_input=data[0].model_input, loss_fn_inputs=inputs)]
    loss = training.forward(data, "dro", {"beta": 0.3}).result().metrics["loss:sum"]
    expected = -sum(x * advantage - 0.5 * 0.3 * (x - q) ** 2 for x, q, advantage in zip(scored, sampled, advantages))
    assert math.isclose(loss, expected, rel_tol=1e-5), (loss, expected)
    return loss


def other_targets(url, training):
    """Targets that are not the next tokens have the logprobs that they have as next tokens."""
    tokens = encode(url, PROMPTS[0])

    def logprobs(tokens, targets):
        inputs = {"target_tokens": targets, "weights": [1.0] * len(targets)}
        datum = types.Datum(model_input=types.ModelInput.from_ints(tokens), loss_fn_inputs=inputs)
        return logprobs_of(training.forward([datum], "cross_entropy").result())[0]

    got = logprobs(tokens, [20] * len(tokens))
    for i in range(len(tokens)):
        as_next = logprobs(tokens[: i + 1], tokens[1 : i + 1] + [20])[-1]
        assert math.isclose(got[i], as_next, rel_tol=1e-5), (i, got[i], as_next)
    return got


def one_round(url):
    with service(url) as client:
        capabilities = client.get_server_capabilities().supported_models
        assert [model.model_name for model in capabilities] == ["demo"]
        training = client.create_lora_training_client(base_model="demo", rank=8).result()
        info = training.get_info()
        assert info.model_data.model_name == "demo" and info.lora_rank == 8 and info.is_lora
        seen = supervised_loop(url, training, is_first=True)
        seen += policy_loop(url, training, "importance_sampling")
        seen += policy_loop(url, training, "ppo", {"clip_low_threshold": 0.9, "clip_high_threshold": 1.1})
        seen += policy_loop(url, training, "cispo")
        seen += [dro_loss(url, training)] + other_targets(url, training)
        saved = training.save_state("after").result().path
        named = training.save_weights_for_sampler("final").result().path
        more = supervised_loop(url, training)
    return seen, saved, named, more


def greedy(sampler, url):
    prompt = types.ModelInput.from_ints(encode(url, PROMPTS[0]))
    result = sampler.sample(prompt, 1, types.SamplingParams(max_tokens=12, temperature=0), topk_sample_logprobs=3)
    sequence = result.result().sequences[0]
    assert sequence.topk_logprobs_np.token_ids.shape == (len(sequence.tokens), 3)
    assert sequence.topk_logprobs_np.token_ids[:, 0].tolist() == sequence.tokens
    return sequence.tokens, sequence.logprobs


def loops(url):
    seen, saved, named, more = one_round(url)
    again, _, _, more_again = one_round(url)
    assert seen == again and more == more_again, "the same loop twice gives the same bits"
    with service(url) as client:
        base = greedy(client.create_sampling_client(base_model="demo").result(), url)
        trained = greedy(client.create_sampling_client(model_path=named).result(), url)
        assert base != trained
        resumed = client.create_training_client_from_state_with_optimizer(saved).result()
        assert greedy(resumed.save_weights_and_get_sampling_client().result(), url) == trained
        assert supervised_loop(url, resumed) == more, "training continues with the same bits"
        assert greedy(client.create_sampling_client(base_model="demo").result(), url) == base
        resumed.load_state_with_optimizer(saved).result()
        assert supervised_loop(url, resumed) == more
        resumed.load_state(saved).result()
        assert supervised_loop(url, resumed) != more, "without the optimizer's moments"


def expect(error, message, call):
    try:
        call()
    except error as found:
        assert message in str(found), found
        return
    raise AssertionError(f"no {error.__name__} with {message}")


def errors(url):
    with service(url) as client:
        expect(tinker.BadRequestError, "this server has demo", lambda: client.create_lora_training_client("other").result())
        training = client.create_lora_training_client("demo", rank=4, train_mlp=False).result()
        expect(tinker.BadRequestError, "one model at a time", lambda: client.create_lora_training_client("demo").result())
        with service(url) as other:
            expect(tinker.BadRequestError, "one model at a time", lambda: other.create_lora_training_client("demo").result())
        data = [supervised_datum(encode(url, PROMPTS[0]), encode(url, "123"))]
        failed = tinker.RequestFailedError
        expect(failed, "loss_fn is 'gspo'", lambda: training.forward_backward(data, "gspo").result())
        expect(failed, "no beta", lambda: training.forward_backward(data, "dro").result())
        expect(failed, "clip_low_threshold", lambda: training.forward_backward(data, "cross_entropy", {"clip_low_threshold": 1.0}).result())
        expect(failed, "no logprobs", lambda: training.forward_backward(data, "ppo").result())
        beyond = types.Datum(model_input=types.ModelInput.from_ints([5000]), loss_fn_inputs={"target_tokens": [3], "weights": [1.0]})
        expect(failed, "vocabulary", lambda: training.forward_backward([beyond], "cross_entropy").result())
        expect(failed, "optim.lr is 7", lambda: training.optim_step(types.AdamParams(learning_rate=7)).result())
        expect(failed, "path of saved weights", lambda: training.save_state("../up").result())
        training.save_state("twice").result()
        expect(failed, "is there already", lambda: training.save_state("twice").result())
        training.save_state("twice", overwrite=True).result()
        expect(tinker.BadRequestError, "no saved weights", lambda: client.create_sampling_client(model_path="tinker://x/weights/y").result())
        sampler = training.save_weights_and_get_sampling_client().result()
        prompt = types.ModelInput.from_ints(encode(url, PROMPTS[0]))
        expect(tinker.BadRequestError, "topk_prompt_logprobs", lambda: sampler.sample(prompt, 1, types.SamplingParams(), topk_prompt_logprobs=2).result())
        training.forward_backward(data, "cross_entropy").result()  # it is not poisoned
    expect(tinker.TinkerError, "API key", lambda: tinker.ServiceClient(base_url=url, api_key="tml-wrong-key-0123").create_sampling_client(base_model="demo").result())


def params_of_recipe(rate):
    return types.AdamParams(learning_rate=rate, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.01, grad_clip_norm=1.0)


def sft(url, rows):
    """The steps of `tlt sft` with these rows."""
    rows = [json.loads(line) for line in open(rows)]
    pairs = [(encode(url, row["prompt"]), encode(url, row["response"]) + [1]) for row in rows]
    total = sum(len(response) for _, response in pairs)
    data = [supervised_datum(prompt, response, np.float32(1 / total)) for prompt, response in pairs]
    with service(url) as client:
        training = client.create_lora_training_client("demo", rank=4).result()
        for _ in range(2):
            training.forward_backward(data, "cross_entropy")
            training.optim_step(params_of_recipe(1e-3)).result()
        print("saved", training.save_state("sft").result().path)


def train(url, rollouts):
    """The first step of `tlt train` with these rollouts, whose loss is divided by 64."""
    rows = [json.loads(line) for line in open(rollouts)]
    with service(url) as client:
        training = client.create_lora_training_client("demo", rank=4).result()
        sampler = training.save_weights_and_get_sampling_client().result()
        data = []
        for row in rows:
            prompt, response = encode(url, row["input"]), encode(url, row["output"])
            assert len(response) == row["response_tokens"], row
            scored = sampler.compute_logprobs(types.ModelInput.from_ints(prompt + response)).result()
            data.append(policy_datum(prompt, response, scored[len(prompt) :], [row["advantage"] / 64] * len(response)))
        assert any(row["advantage"] != 0 for row in rows)
        training.forward_backward(data, "importance_sampling")
        training.optim_step(params_of_recipe(1e-3)).result()
        print("saved", training.save_state("train").result().path)


if __name__ == "__main__":
    {"loops": loops, "errors": errors, "sft": sft, "train": train}[sys.argv[2]](sys.argv[1], *sys.argv[3:])
    print("ok", flush=True)
    os._exit(0)  # the client's daemon thread can abort a Python before 3.14 that ends (python/cpython#87135)
