# SPDX-License-Identifier: Apache-2.0
"""The part of torch that tinker-cookbook's sl_loop and rl_loop call, over numpy: they use it only to hold lists of
numbers. PyPI's torch for Linux comes with 3 GB of CUDA libraries, too much for a test. cookbook_loops.py puts this
folder last on the path, so that an installed torch takes precedence.
"""
import numpy as np

__version__ = "2.10.0"
float32, float64, int64, bfloat16 = np.dtype("float32"), np.dtype("float64"), np.dtype("int64"), "bfloat16"
bool = np.dtype("bool")


class Generator:  # this and the next two: the package datasets asks whether a value is one
    pass


class nn:
    class Module:
        pass


class Tensor(np.ndarray):
    def contiguous(self):
        return self

    def numpy(self):
        return np.asarray(self)

    def to(self, dtype):
        return self.astype(dtype)


def from_numpy(array):
    return array.view(Tensor)


def tensor(values, dtype=None):
    array = np.asarray(values, dtype=dtype)
    return from_numpy(array.astype(float32) if dtype is None and array.dtype == float64 else array)


def zeros(size):
    return from_numpy(np.zeros(size, float32))


def full(shape, value):
    return from_numpy(np.full(shape, value, float32))


def cat(tensors):
    return from_numpy(np.concatenate(tensors))
