// The part of the program inside the sandbox (code_driver.h) by which the statements of a test
// reach the code: two processes, connected by a channel.
//
// Values of Python's own types, and of a few classes of its library, are sent as data, so that what
// the statements compare are their own values; a subclass of such a type is sent as that type. All
// other objects stay where they are: the other process has a Remote, which sends each operation.
// A Remote is never equal to data, nor ordered with it; numeric operations of a Remote with data give
// only a Remote, which has no number. So no __eq__, __sub__ or __lt__ of the code can stand for the
// right value. What a call does to its arguments (lists, dicts, sets) is sent back.
//
// A message is a request [operation, operands…] or an answer ["value", result, printed, changes] or
// ["raise", class, arguments, printed]. The statements' process answers only what the code needs of
// the functions, iterators and objects that the statements passed to it.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tlt::sandbox {

inline constexpr const char* kCodeValues = R"py(
import builtins, collections, importlib, io, json, numbers, operator, os, socket, struct, sys, types

CHECK = "check"  # the module of the statements
SCALARS = (bool, int, float, str, bytes, bytearray, complex, range)
CONTAINERS = {list: "list", tuple: "tuple", set: "set", frozenset: "frozenset"}
MUTABLE = (list, dict, set, bytearray, collections.deque)

# Classes of the library that are sent as data: how an object is taken apart, and made again.
STANDARD = {
    ("decimal", "Decimal"): (lambda v: [str(v)], None),
    ("fractions", "Fraction"): (lambda v: [v.numerator, v.denominator], None),
    ("datetime", "date"): (lambda v: [v.isoformat()], "fromisoformat"),
    ("datetime", "time"): (lambda v: [v.isoformat()], "fromisoformat"),
    ("datetime", "datetime"): (lambda v: [v.isoformat()], "fromisoformat"),
    ("datetime", "timedelta"): (lambda v: [v.days, v.seconds, v.microseconds], None),
    ("collections", "deque"): (lambda v: [list(v), v.maxlen], None),
    ("collections", "Counter"): (lambda v: [dict(v)], None),
    ("collections", "OrderedDict"): (lambda v: [list(v.items())], None),
}

BINARY = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split()
UNARY = "neg pos invert abs int float round index".split()
ORDER = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}
OPERATIONS = {
    "call": lambda target, /, *arguments, **named: target(*arguments, **named),
    "getattr": getattr, "setattr": setattr, "delattr": delattr, "bool": bool, "len": len, "iter": iter, "next": next,
    "eq": operator.eq, "hash": hash, "str": str, "repr": repr, "isinstance": isinstance, "issubclass": issubclass,
    "getitem": operator.getitem, "setitem": operator.setitem, "delitem": operator.delitem, "format": format,
    "enter": lambda target: target.__enter__(), "exit": lambda target: target.__exit__(None, None, None),
    "await": lambda target: __import__("asyncio").run(target),
    **{name: getattr(operator, f"__{name}__") for name in BINARY + UNARY[:4] + list(ORDER)},
    "int": int, "float": float, "round": round, "index": operator.index,
}


PUBLIC = "getattr setattr getitem setitem bool len eq hash str".split()  # of objects of the test's classes


class Remote:
    """An object of the other process."""
    __slots__ = ("_peer", "_key", "_is_mixed")

    def __init__(self, peer, key):
        object.__setattr__(self, "_peer", peer)
        object.__setattr__(self, "_key", key)
        object.__setattr__(self, "_is_mixed", False)  # made from data and an object of the code

    def __call__(self, *arguments, **named):
        return self._peer.ask("call", (self, *arguments), named)

    def __eq__(self, other):
        if self is other or not isinstance(other, Remote):
            return self is other
        return self._peer.ask("eq", (self, other)) is True

    def __bool__(self):
        check_not_mixed(self)
        return self._peer.ask("bool", (self,)) is True

    def __enter__(self):
        return self._peer.ask("enter", (self,))

    def __exit__(self, *_):
        self._peer.ask("exit", (self,))

    def __contains__(self, item):  # by its items, which are compared here
        return any(item is one or item == one for one in self)

    def __instancecheck__(self, value):
        return isinstance(value, Remote) and self._peer.ask("isinstance", (value, self)) is True

    def __subclasscheck__(self, value):
        return isinstance(value, Remote) and self._peer.ask("issubclass", (value, self)) is True


def check_not_mixed(*operands):
    for one in operands:
        if isinstance(one, Remote) and one._is_mixed:
            raise TypeError("a result of an operator of the code's classes with data is no number")


def forward(name):
    return lambda self, *operands: self._peer.ask(name, (self, *operands))


def forward_binary(name, is_reflected=False):
    def operate(self, other, *_):
        operands = (other, self) if is_reflected else (self, other)
        result = self._peer.ask(name, operands)
        if all(isinstance(one, Remote) and not one._is_mixed for one in operands):
            return result
        if not isinstance(result, Remote):
            raise TypeError(f"the result of `{name}` of an object of the code and data is data")
        result = Remote(result._peer, result._key)
        object.__setattr__(result, "_is_mixed", True)
        return result
    return operate


def forward_unary(name):
    def operate(self, *operands):
        check_not_mixed(self)
        return self._peer.ask(name, (self, *operands))
    return operate


def forward_order(name):
    def compare(self, other):
        if not isinstance(other, Remote):
            return NotImplemented
        check_not_mixed(self, other)
        return self._peer.ask(name, (self, other)) is True
    return compare


def complete_remote():
    for name in "getattr setattr delattr getitem setitem delitem len iter next hash str repr format".split():
        setattr(Remote, f"__{name}__", forward(name))
    for name in BINARY:
        setattr(Remote, f"__{name}__", forward_binary(name))
        setattr(Remote, f"__r{name}__", forward_binary(name, is_reflected=True))
    for name in UNARY:
        setattr(Remote, f"__{name}__", forward_unary(name))
    for name in ORDER:
        setattr(Remote, f"__{name}__", forward_order(name))


complete_remote()


class Peer:
    """One end of the channel. `answers`: what a request of the other side gives."""

    def __init__(self, descriptor, answers):
        self.connection, self.answers, self.process = socket.socket(fileno=descriptor), answers, os.getpid()
        self.objects, self.keys, self.remotes, self.errors = {}, {}, {}, {}

    # ---- messages

    def send(self, message):
        if os.getpid() != self.process:
            os._exit(1)  # forked by the code: which of two answers came first would decide
        text = json.dumps(message).encode()
        self.connection.sendall(struct.pack("!Q", len(text)) + text)

    def receive(self):
        try:
            return json.loads(self.read(*struct.unpack("!Q", self.read(8))))
        except (OSError, EOFError, ValueError, RecursionError):
            os._exit(1)  # the other process has ended, or writes no messages: no statement may catch that

    def read(self, size):
        text = bytearray()
        while len(text) < size:
            part = self.connection.recv(min(size - len(text), 1 << 20))
            if not part:
                raise EOFError
            text += part
        return bytes(text)

    def ask(self, operation, operands, named={}):
        self.send([operation, [self.encode(one) for one in operands],
                   {name: self.encode(value) for name, value in named.items()}])
        given = [*operands, *named.values()]
        while True:
            message = self.receive()
            if message[0] == "value":
                _, result, printed, changes = message
                sys.stdout.write(printed)
                for index, changed in changes:
                    change(given[index], self.decode(changed))
                return given[result[1]] if is_tagged(result, "given") else self.decode(result)
            if message[0] == "raise":
                _, error, arguments, printed = message
                sys.stdout.write(printed)
                raise make_error(self.decode(error), self.decode(arguments))
            self.answer(message)

    def answer(self, message):
        operation, operands, named = message
        kept, printed = sys.stdout, io.StringIO()
        sys.stdout = printed
        try:
            given = [self.decode(one) for one in [*operands, *named.values()]]
            result = self.answers(operation, given[:len(operands)], dict(zip(named, given[len(operands):])))
            reply = self.value_of(result, given, [*operands, *named.values()])
        except BaseException as error:
            reply = self.error_of(error)
        reply.insert(3 if reply[0] == "raise" else 2, printed.getvalue())
        sys.stdout = kept
        self.send(reply)

    def value_of(self, result, given, sent):
        changes = []
        for index, one in enumerate(given):
            if type(one) in MUTABLE:
                encoded = self.encode(one)
                if encoded != sent[index]:
                    changes.append([index, encoded])
        for index, one in enumerate(given):
            if one is result and type(one) in MUTABLE:
                return ["value", ["given", index], changes]
        return ["value", self.encode(result), changes]

    def error_of(self, error):
        try:
            return ["raise", self.encode(type(error)), self.encode(tuple(error.args))]
        except Exception:
            return ["raise", ["builtin", "RuntimeError"], ["tuple", [type(error).__name__]]]

    # ---- values

    def encode(self, value):
        kind = type(value)
        if value is None or kind in (bool, float, str) or (kind is int and abs(value) < 1 << 63):
            return value
        for base in SCALARS:
            if isinstance(value, base):
                return self.encode_scalar(base, value)
        standard = STANDARD.get((kind.__module__, kind.__name__))
        if standard is not None:
            return ["standard", kind.__module__, kind.__name__, self.encode(standard[0](value))]
        for base, name in CONTAINERS.items():
            if isinstance(value, base):
                return [name, [self.encode(one) for one in base.__iter__(value)]]
        if isinstance(value, dict):
            return ["dict", [[self.encode(key), self.encode(one)] for key, one in dict.items(value)]]
        return self.encode_object(value)

    def encode_scalar(self, base, value):
        if base is bool or base is int:
            return ["int", hex(int.__index__(value))]
        if base is bytes or base is bytearray:
            return [base.__name__, base.hex(value)]
        if base is complex:
            return ["complex", value.real, value.imag]
        if base is range:
            return ["range", *(["int", hex(one)] for one in (value.start, value.stop, value.step))]
        return str.__str__(value) if base is str else float.__float__(value)

    def encode_object(self, value):
        if isinstance(value, Remote):
            return ["yours", value._key]
        if isinstance(value, type) and getattr(builtins, value.__name__, None) is value:
            return ["builtin", value.__name__]
        if isinstance(value, numbers.Integral):
            return ["int", hex(int(value))]
        if isinstance(value, numbers.Real):
            return float(value)
        if isinstance(value, types.ModuleType):
            return ["module", value.__name__]
        if isinstance(value, type) and issubclass(value, BaseException):
            base = next(one for one in value.__bases__ if issubclass(one, BaseException))
            return ["error", self.key_of(value), value.__module__, value.__name__, self.encode(base)]
        return ["coroutine" if isinstance(value, types.CoroutineType) else "mine", self.key_of(value)]

    def key_of(self, value):
        if id(value) not in self.keys:
            self.keys[id(value)] = len(self.objects)
            self.objects[len(self.objects)] = value
        return self.keys[id(value)]

    def decode(self, sent):
        if not isinstance(sent, list):
            return sent
        tag, *parts = sent
        if tag in DECODERS:
            return DECODERS[tag](*parts)
        if tag in ("list", "tuple", "set", "frozenset"):
            return getattr(builtins, tag)([self.decode(one) for one in parts[0]])
        if tag == "dict":
            return {self.decode(key): self.decode(one) for key, one in parts[0]}
        if tag == "standard":
            return make_standard(parts[0], parts[1], self.decode(parts[2]))
        return self.decode_object(tag, parts)

    def decode_object(self, tag, parts):
        if tag == "yours":
            return self.objects[parts[0]]
        key = parts[0]
        if tag == "error":
            if key not in self.errors:
                self.errors[key] = make_error_class(parts[1], parts[2], self.decode(parts[3]))
            return self.errors[key]
        if key not in self.remotes:
            self.remotes[key] = Remote(self, key)
        remote = self.remotes[key]
        if tag == "coroutine":
            async def run():
                return self.ask("await", (remote,))
            return run()
        return remote


def is_tagged(sent, tag):
    return isinstance(sent, list) and sent[0] == tag


def builtin_class(name):
    found = getattr(builtins, name)
    if not isinstance(found, type):
        raise TypeError(f"{name} is no class")
    return found


def make_error_class(module, name, base):
    """The library's own, or one like the code's."""
    if module.partition(".")[0] in sys.stdlib_module_names:
        found = getattr(importlib.import_module(module), name, None)
        if isinstance(found, type) and issubclass(found, BaseException):
            return found
    return type(name, (base,), {})


def make_standard(module, name, parts):
    maker = STANDARD[module, name][1]
    made = getattr(importlib.import_module(module), name)
    return getattr(made, maker)(*parts) if maker else made(*parts)


def make_error(error, arguments):
    try:
        return error(*arguments)
    except TypeError:  # a class whose __init__ takes other arguments
        return error.__new__(error, *arguments)


def import_named(name):
    try:
        return importlib.import_module(name)
    except ImportError:
        raise NameError(name) from None


DECODERS = {
    "int": lambda text: int(text, 16), "bytes": bytes.fromhex, "bytearray": bytearray.fromhex,
    "complex": complex, "range": lambda *ends: range(*(int(end[1], 16) for end in ends)),
    "builtin": builtin_class, "module": import_named,
}


def change(value, changed):
    if isinstance(value, (list, bytearray)):
        value[:] = changed
    elif isinstance(value, MUTABLE):
        value.clear()
        (value.extend if isinstance(value, collections.deque) else value.update)(changed)


# ---- the code's side

def serve(space, descriptor):
    def answers(operation, operands, named):
        if operation == "name":
            return space[operands[0]]
        return OPERATIONS[operation](*operands, **named)

    peer = Peer(descriptor, answers)
    while True:
        peer.answer(peer.receive())


# ---- the statements' side

def answer_code(peer, operation, operands, named):
    """The code may call what it was given and iterate over it, and use objects of the test's classes, but not
    their private attributes, which lead to all of the test."""
    target = operands[0]
    if id(target) not in peer.keys:  # else it could call `type`, and make classes of its own here
        raise TypeError("no object of the test")
    if operation in ("getattr", "setattr") and (type(operands[1]) is not str or operands[1].startswith("_")):
        raise AttributeError(operands[1])
    if operation in ("call", "iter", "next") or (operation in PUBLIC and type(target).__module__ == CHECK):
        return OPERATIONS[operation](*operands, **named)
    raise TypeError(f"an object of the test has no {operation} here")


def names_of(tree):
    """The names that are the code's, and those of modules that the code may have imported for the statements.
    Python's own names are not the code's, unless the statements call no other, as in `assert sum(10, 15) == 6`."""
    import ast
    nodes = list(ast.walk(tree))
    used = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    kept = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    kept |= {node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    kept |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    called = [node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    modules = {name for name in used if name in sys.stdlib_module_names and name not in called}
    names = {name for name in used if not hasattr(builtins, name)} - modules
    if not names - kept and not kept:
        names |= set(called[:1])
    return names, modules


def check(statements, descriptor):
    import ast
    tree = ast.parse(statements, "check.py")
    peer = Peer(descriptor, lambda *request: answer_code(peer, *request))
    space = {"__name__": CHECK}
    names, modules = names_of(tree)
    for name in modules:
        try:
            space[name] = importlib.import_module(name)
        except ImportError:  # the statements' own variable
            pass
    for name in names:
        try:
            space[name] = peer.ask("name", (name,))
        except (KeyError, NameError):
            pass
    exec(compile(tree, "check.py", "exec"), space)
)py";

}  // namespace tlt::sandbox
