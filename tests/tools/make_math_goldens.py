#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goldens of math_equal_test.cpp: pairs of answers with SymPy's judgement (sympy 1.14).

  make_math_goldens.py pairs                   writes tests/golden/math_pairs.jsonl
  make_math_goldens.py math500 --data DATA     writes tests/golden/math500_classes.json

Of a group below, every two answers are a pair. Each answer stands with what it is in SymPy, written by hand, so
that SymPy judges the mathematics and not a parser. Where the reward is meant to judge otherwise, the pair is in
EXCEPTIONS with the reason.

math500: which of the 500 reference answers are equal, by math-verify 0.9.0 (its own parser, then SymPy), as lists
of row numbers; answers equal to no other are left out. DATA holds math/math500.json.

A row of pairs: {"kind", "a", "b", "sympy", "equal", "why"}; "why" only where `equal` is not SymPy's.
"""
import argparse
import itertools
import json
import pathlib

from sympy import (Abs, acos, asin, atan, binomial, ceiling, Complement, cos, cot, E, Eq, exp, factorial, factorint,
                   FiniteSet, floor, Ge, Gt, I, Integer, Interval, Le, log, Lt, Matrix, N, Ne, oo, pi, Pow, Rational,
                   root, S, simplify, sin, sqrt, Symbol, symbols, tan, Tuple, Union)
from sympy.core.relational import Relational
from sympy.physics.units import cm, convert_to, foot, gram, hour, inch, kilogram, km, m, mile, minute, mm, second
from sympy.sets.sets import Set

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "golden"
a, b, k, n, x, y, z, theta, R = symbols("a b k n x y z theta R")
apple, orange, dollar = symbols("apple orange dollar")
F = Rational


class Words(str):
    """An answer that is no mathematics."""


class Based(tuple):
    """Digits in a base."""


class Listed(tuple):
    """Answers with commas between, in any order."""


GROUPS = {
    "rational": [
        [(r"\frac{1}{2}", F(1, 2)), (r"0.5", F(1, 2)), (r"\frac12", F(1, 2)), ("1/2", F(1, 2)), (r"\dfrac{2}{4}", F(1, 2)),
         (r".50", F(1, 2)), (r"2^{-1}", F(1, 2)), (r"-\frac{1}{-2}", F(1, 2)), (r"\frac{1}{3}", F(1, 3)), ("2", Integer(2))],
        [(r"\frac{\frac{1}{2}}{\frac{3}{4}}", F(2, 3)), (r"\frac{1}{\frac{3}{2}}", F(2, 3)), (r"\frac23", F(2, 3)),
         (r"\frac{1/2}{3/4}", F(2, 3)), (r"\cfrac{1}{1+\cfrac{1}{2}}", F(2, 3)), (r"1/2/3/4", F(1, 24)), (r"\frac{3}{2}", F(3, 2)),
         (r"0.\overline{6}", F(2, 3)), (r"0.6", F(6, 10)), (r"0.667", F(667, 1000))],
        [(r"1\frac{4}{5}", F(9, 5)), ("1 4/5", F(9, 5)), ("1.8", F(9, 5)), (r"\frac95", F(9, 5)), (r"1\cdot\frac{4}{5}", F(4, 5)),
         (r"-1\frac45", F(-9, 5)), (r"-\frac{9}{5}", F(-9, 5)), (r"1+\frac{4}{5}", F(9, 5))],
        [("58,500", Integer(58500)), ("58500", Integer(58500)), (r"58{,}500", Integer(58500)), (r"58,\!500", Integer(58500)),
         (r"58\,500", Integer(58500)), ("58500.0", Integer(58500)), ("5.85e4", Integer(58500)), (r"5.85\times 10^4", Integer(58500)),
         ("58,501", Integer(58501)), ("58.5", F(585, 10))],
        [(r"0.1\overline{6}", F(1, 6)), (r"\frac16", F(1, 6)), ("0.16666666666667", F("0.16666666666667")), ("0.1667", F(1667, 10000)),
         ("1/6", F(1, 6))],
        [("10^{20}", Integer(10)**20), ("10^{20}+1", Integer(10)**20 + 1), ("100000000000000000000", Integer(10)**20),
         ("1e20", Integer(10)**20), (r"2^{20}\cdot5^{20}", Integer(10)**20)],
        [(r"2^{100}-1", Integer(2)**100 - 1), ("1267650600228229401496703205375", Integer(2)**100 - 1),
         ("1267650600228229401496703205376", Integer(2)**100), (r"4^{50}", Integer(2)**100)],
    ],
    "absolute tolerance": [
        [(".0000672", F(672, 10**7)), ("6.72e-5", F(672, 10**7)), ("0.0000673", F(673, 10**7)), ("0", Integer(0)),
         (r"6.72 \times 10^{-5}", F(672, 10**7)), (r"\frac{42}{625000}", F(42, 625000))],
        [("1/2004!", 1 / factorial(2004)), ("0", Integer(0)), ("1/2003!", 1 / factorial(2003)), (r"\frac{1}{2004!}", 1 / factorial(2004)),
         (r"\frac{1}{2004\cdot2003!}", 1 / factorial(2004)), (r"\frac{2004}{2005!}\cdot\frac{2005}{2004}", 1 / factorial(2004))],
        [(r"10^{-30}", F(1, 10**30)), ("0", Integer(0)), (r"2\cdot10^{-30}", F(2, 10**30)), (r"\sqrt2\cdot10^{-30}", sqrt(2) / 10**30)],
        [(r"e^{-40}", exp(-40)), ("0", Integer(0)), (r"e^{-41}", exp(-41)), (r"\frac{1}{e^{40}}", exp(-40))],
        [("1", Integer(1)), ("1.0000000001", F(10000000001, 10**10)), ("0.999999", F(999999, 10**6)), (r"0.\overline{9}", Integer(1))],
    ],
    "decimals": [
        [(r"\pi", pi), ("3.14", F(314, 100)), ("3.14159265358979", F("3.14159265358979")), (r"\frac{22}{7}", F(22, 7)), ("3.1416", F(31416, 10000))],
        [(r"\sqrt{2}", sqrt(2)), ("1.41421356237", F("1.41421356237")), ("1.414", F(1414, 1000)), (r"\frac{2}{\sqrt2}", sqrt(2))],
        [(r"\frac13", F(1, 3)), ("0.33", F(33, 100)), ("0.333333333333", F("0.333333333333")), (r"0.\overline{3}", F(1, 3)), (r"33\frac13\%", F(1, 3))],
    ],
    "radicals": [
        [(r"\sqrt{8}", sqrt(8)), (r"2\sqrt{2}", 2 * sqrt(2)), (r"2\sqrt2", 2 * sqrt(2)), (r"\frac{4}{\sqrt{2}}", 4 / sqrt(2)),
         (r"2^{3/2}", Pow(2, F(3, 2))), (r"\sqrt[4]{64}", root(64, 4)), (r"8^{1/2}", sqrt(8)), (r"\sqrt2\cdot\sqrt4", 2 * sqrt(2)),
         (r"2\sqrt{3}", 2 * sqrt(3)), (r"-2\sqrt2", -2 * sqrt(2)), ("2*sqrt(2)", 2 * sqrt(2)), ("2√2", 2 * sqrt(2))],
        [(r"\sqrt2\sqrt3", sqrt(6)), (r"\sqrt{6}", sqrt(6)), (r"\sqrt{2}+\sqrt{3}", sqrt(2) + sqrt(3)), (r"\sqrt{5}", sqrt(5)),
         (r"\sqrt{5+2\sqrt{6}}", sqrt(5 + 2 * sqrt(6)))],
        [(r"\frac{\sqrt{3}}{3}", sqrt(3) / 3), (r"\frac{1}{\sqrt{3}}", 1 / sqrt(3)), (r"\sqrt{\frac13}", sqrt(F(1, 3))), (r"3^{-1/2}", Pow(3, -F(1, 2))),
         (r"\frac{\sqrt{3}}{2}", sqrt(3) / 2)],
        [(r"\sqrt[3]{16}", root(16, 3)), (r"2\sqrt[3]{2}", 2 * root(2, 3)), (r"2^{4/3}", Pow(2, F(4, 3))), (r"\sqrt[6]{256}", root(256, 6)),
         (r"\sqrt[3]{2}\cdot\sqrt[3]{4}\cdot\sqrt[3]{2}", 2 * root(2, 3)), (r"\sqrt[3]{4}", root(4, 3))],
        [(r"\sqrt{3+2\sqrt{2}}", sqrt(3 + 2 * sqrt(2))), (r"1+\sqrt{2}", 1 + sqrt(2)), (r"\frac{1}{\sqrt2-1}", 1 / (sqrt(2) - 1)),
         (r"\sqrt2-1", sqrt(2) - 1)],
        [(r"\sqrt[3]{-8}", Integer(-2)), ("-2", Integer(-2)), (r"-\sqrt[3]{8}", Integer(-2)), ("2", Integer(2))],
        [(r"\sqrt{-4}", 2 * I), ("2i", 2 * I), (r"2\sqrt{-1}", 2 * I), ("-2i", -2 * I), (r"(-4)^{1/2}", 2 * I)],
        [(r"11\sqrt5+11", 11 * sqrt(5) + 11), (r"11(\sqrt{5}+1)", 11 * sqrt(5) + 11), (r"11 + 11\sqrt{5}", 11 * sqrt(5) + 11),
         (r"\frac{44}{\sqrt5-1}", 44 / (sqrt(5) - 1)), (r"11\sqrt{5+11}", 11 * sqrt(16))],
        [(r"\sqrt{1000003}\cdot\sqrt{1000033}", sqrt(1000003) * sqrt(1000033)), (r"\sqrt{1000036000099}", sqrt(1000003 * 1000033)),
         (r"\sqrt{1000036000098}", sqrt(1000036000098))],
    ],
    "complex": [
        [("6-5i", 6 - 5 * I), (r"6 - 5 i", 6 - 5 * I), ("-5i+6", 6 - 5 * I), ("6+5i", 6 + 5 * I), (r"\frac{61}{6+5i}", 61 / (6 + 5 * I)),
         ("i(-5-6i)", I * (-5 - 6 * I))],
        [("i^2", Integer(-1)), ("-1", Integer(-1)), (r"e^{i\pi}", exp(I * pi)), (r"e^{\pi i}", exp(I * pi)), ("1", Integer(1)), ("i", I)],
        [(r"\frac{1+i\sqrt{3}}{2}", (1 + I * sqrt(3)) / 2), (r"e^{i\pi/3}", exp(I * pi / 3)),
         (r"\cos\frac{\pi}{3}+i\sin\frac{\pi}{3}", (1 + I * sqrt(3)) / 2), (r"\frac{1-i\sqrt3}{2}", (1 - I * sqrt(3)) / 2)],
    ],
    "constants": [
        [(r"\frac{\pi}{2}", pi / 2), (r"\frac{1}{2}\pi", pi / 2), (r"\pi/2", pi / 2), (r"\frac\pi2", pi / 2), ("pi/2", pi / 2), (r"0.5\pi", pi / 2),
         ("π/2", pi / 2), (r"\frac{2}{\pi}", 2 / pi), (r"\arcsin 1", asin(1)), (r"\frac{\pi^2}{2}", pi**2 / 2)],
        [(r"e^2", E**2), (r"e \cdot e", E**2), (r"\exp(2)", E**2), ("2e", 2 * E), (r"e^{\ln 2 + \ln e}", 2 * E)],
        [(r"\ln 8", log(8)), (r"3\ln 2", 3 * log(2)), (r"\ln(2)+\ln(4)", log(8)), (r"\ln 6", log(6)), (r"\log_e 8", log(8)), (r"\log_{10} 8", log(8, 10))],
        [(r"\log_2 8", log(8, 2)), ("3", Integer(3)), (r"\log_{2}{8}", log(8, 2)), (r"\frac{\ln 8}{\ln 2}", log(8) / log(2)), (r"\log 1000", Integer(3)),
         (r"\log_3 8", log(8, 3))],
    ],
    "trigonometry": [
        [(r"\sin 30^\circ", sin(pi / 6)), (r"\frac12", F(1, 2)), (r"\cos 60^{\circ}", cos(pi / 3)), (r"\sin\frac{\pi}{6}", sin(pi / 6)),
         (r"\sin 30", sin(30)), (r"\sin(\pi/6)", sin(pi / 6)), (r"\cos 30^\circ", cos(pi / 6))],
        [(r"\cot x", cot(x)), (r"\frac{\cos x}{\sin x}", cos(x) / sin(x)), (r"\frac{1}{\tan x}", 1 / tan(x)), (r"\tan x", tan(x)),
         (r"\cot y", cot(y)), (r"(\tan x)^{-1}", 1 / tan(x))],
        [(r"\sin^2 x", sin(x)**2), (r"1-\cos^2 x", 1 - cos(x)**2), (r"(\sin x)^2", sin(x)**2), (r"\frac{1-\cos 2x}{2}", (1 - cos(2 * x)) / 2),
         (r"\sin x^2", sin(x**2)), (r"\sin^2(x)", sin(x)**2)],
        [(r"\tan^{-1} 1", atan(1)), (r"\arctan 1", atan(1)), (r"\frac{\pi}{4}", pi / 4), (r"\arctan(1)", atan(1)), (r"\arccos\frac{\sqrt2}{2}", acos(sqrt(2) / 2)),
         (r"\tan 1", tan(1))],
        [(r"\sin x\cos x", sin(x) * cos(x)), (r"\frac{\sin 2x}{2}", sin(2 * x) / 2), (r"\frac12\sin(2x)", sin(2 * x) / 2), (r"\sin 2x", sin(2 * x))],
        [(r"\sin\pi", Integer(0)), ("0", Integer(0)), (r"\cos\frac{\pi}{2}", Integer(0)), (r"\cos\pi+1", Integer(0)), ("0.0001", F(1, 10000))],
    ],
    "formulas": [
        [("(a+5)(b+2)", (a + 5) * (b + 2)), ("ab+2a+5b+10", a * b + 2 * a + 5 * b + 10), ("(b+2)(5+a)", (a + 5) * (b + 2)),
         ("ab+2a+5b+11", a * b + 2 * a + 5 * b + 11), (r"(a+5)\cdot(b+2)", (a + 5) * (b + 2)), ("(a+2)(b+5)", (a + 2) * (b + 5))],
        [("x^5-x^4+x^3-x^2+x-1", x**5 - x**4 + x**3 - x**2 + x - 1), ("(x-1)(x^4+x^2+1)", (x - 1) * (x**4 + x**2 + 1)),
         (r"\frac{x^6-1}{x+1}", (x**6 - 1) / (x + 1)), ("x^5-x^4+x^3-x^2+x+1", x**5 - x**4 + x**3 - x**2 + x + 1)],
        [("2k+2", 2 * k + 2), ("2(k+1)", 2 * k + 2), ("2+2k", 2 * k + 2), ("2n+2", 2 * n + 2), ("2k+1", 2 * k + 1), ("2K+2", 2 * Symbol("K") + 2)],
        [(r"\frac{11+9a}{20}", (11 + 9 * a) / 20), (r"\frac{9a}{20}+\frac{11}{20}", (11 + 9 * a) / 20), ("0.45a+0.55", (11 + 9 * a) / 20),
         (r"\frac{9a+11}{21}", (11 + 9 * a) / 21)],
        [(r"\sqrt{x^2}", sqrt(x**2)), ("x", x), ("|x|", Abs(x)), ("-x", -x)],
        [(r"\sqrt{xy}", sqrt(x * y)), (r"\sqrt{x}\sqrt{y}", sqrt(x) * sqrt(y)), (r"(xy)^{1/2}", sqrt(x * y)), (r"\sqrt{yx}", sqrt(x * y))],
        [("2^{x+1}", 2**(x + 1)), (r"2\cdot 2^x", 2 * 2**x), (r"2^x+2^x", 2 * 2**x), ("4^x", 4**x), ("2^x+1", 2**x + 1)],
        [("x^{10}", x**10), ("x^10", x**10), (r"x^5\cdot x^5", x**10), ("(x^2)^5", x**10), ("x^{1}0", Integer(0))],
        [("3R^2", 3 * R**2), (r"3 R^{2}", 3 * R**2), ("(3R)^2", 9 * R**2), ("3r^2", 3 * Symbol("r")**2)],
        [("n!", factorial(n)), ("n(n-1)!", n * factorial(n - 1)), (r"\frac{(n+1)!}{n+1}", factorial(n + 1) / (n + 1)), ("(n+1)!", factorial(n + 1))],
        [(r"\binom{5}{2}", binomial(5, 2)), ("10", Integer(10)), (r"\frac{5!}{2!3!}", Integer(10)), (r"\dbinom{5}{3}", binomial(5, 3)), (r"\binom{5}{1}", Integer(5))],
        [(r"\lfloor 3.7 \rfloor", floor(F(37, 10))), ("3", Integer(3)), (r"\lceil 2.1 \rceil", ceiling(F(21, 10))), (r"\lfloor\pi\rfloor", Integer(3)),
         (r"\lfloor -3.7\rfloor", Integer(-4)), (r"\lceil 3.7\rceil", Integer(4))],
        [("|-3|", Integer(3)), ("3", Integer(3)), (r"\left|{-3}\right|", Integer(3)), (r"|1-\sqrt{2}|", sqrt(2) - 1), (r"\sqrt2-1", sqrt(2) - 1), ("|3+4i|", Integer(5)),
         ("5", Integer(5))],
        [("a_1+a_2", Symbol("a_1") + Symbol("a_2")), ("a_2+a_1", Symbol("a_1") + Symbol("a_2")), ("a_{1}+a_{2}", Symbol("a_1") + Symbol("a_2")), ("2a_1", 2 * Symbol("a_1"))],
        [(r"1/2x", x / 2), (r"\frac{1}{2}x", x / 2), (r"\frac{x}{2}", x / 2), (r"\frac{1}{2x}", 1 / (2 * x)), ("1/(2x)", 1 / (2 * x))],
        [(r"e^{x+y}", exp(x + y)), (r"e^xe^y", exp(x) * exp(y)), (r"\exp(x)\exp(y)", exp(x) * exp(y)), (r"e^{xy}", exp(x * y))],
        [("x/x", Integer(1)), ("1", Integer(1)), ("x^0", Integer(1)), ("0", Integer(0)), ("x-x", Integer(0))],
    ],
    "percent": [
        [(r"50\%", F(1, 2)), ("50%", F(1, 2)), ("0.5", F(1, 2)), (r"50 \text{ percent}", F(1, 2)), ("50", Integer(50)), (r"\frac12", F(1, 2)), (r"5\%", F(1, 20))],
        [(r"12.5\%", F(1, 8)), (r"\frac{25}{2}\%", F(1, 8)), (r"12\frac12\%", F(1, 8)), (r"\frac18", F(1, 8)), (r"12\%", F(12, 100))],
    ],
    "degrees": [
        [(r"90^\circ", pi / 2), (r"90^{\circ}", pi / 2), (r"90\text{ degrees}", pi / 2), ("90°", pi / 2), (r"90\degree", pi / 2), (r"\frac{\pi}{2}", pi / 2),
         ("90", Integer(90)), (r"\frac{\pi}{2}\text{ radians}", pi / 2), (r"91^\circ", 91 * pi / 180), ("1.57", F(157, 100))],
        [(r"\frac{270}7\text{ degrees}", F(270, 7) * pi / 180), (r"\frac{270}{7}^\circ", F(270, 7) * pi / 180), (r"\frac{3\pi}{14}", 3 * pi / 14)],
    ],
    "units": [
        [(r"15\mbox{ cm}^2", 15 * cm**2), (r"15 \text{ cm}^2", 15 * cm**2), (r"15\text{ square centimeters}", 15 * cm**2), (r"15\,\mathrm{cm}^{2}", 15 * cm**2),
         (r"1500 \text{ mm}^2", 1500 * mm**2), (r"15 \text{ cm}", 15 * cm), ("15", Integer(15)), (r"15 \text{ m}^2", 15 * m**2), ("15 cm^2", 15 * cm**2)],
        [(r"864 \mbox{ inches}^2", 864 * inch**2), (r"864\text{ square inches}", 864 * inch**2), (r"864\text{ in}^2", 864 * inch**2), ("864", Integer(864)),
         (r"6\text{ square feet}", 6 * foot**2), (r"864\text{ inches}", 864 * inch)],
        [(r"5.4 \text{ cents}", F(54, 1000) * dollar), (r"\$0.054", F(54, 1000) * dollar), (r"\$5.40", F(54, 10) * dollar), ("5.4", F(54, 10)),
         (r"0.054\text{ dollars}", F(54, 1000) * dollar)],
        [(r"\$32,\!348", 32348 * dollar), (r"\$32,348", 32348 * dollar), ("32348", Integer(32348)), ("32,348", Integer(32348)), (r"\$32348.00", 32348 * dollar),
         (r"32348\text{ dollars}", 32348 * dollar), (r"\$32,349", 32349 * dollar)],
        [(r"60 \text{ km/h}", 60 * km / hour), (r"60\text{ kilometers per hour}", 60 * km / hour), (r"1\text{ km per minute}", km / minute), (r"60\text{ mph}", 60 * mile / hour),
         (r"60\text{ km}", 60 * km), (r"60\ \frac{\text{km}}{\text{h}}", 60 * km / hour)],
        [(r"2\text{ hours}", 2 * hour), (r"120\text{ minutes}", 120 * minute), (r"2\text{ minutes}", 2 * minute), ("120 minutes", 120 * minute)],
        [(r"5\text{ apples}", 5 * apple), (r"5 \text{ apple}", 5 * apple), (r"5\text{ oranges}", 5 * orange), ("5", Integer(5)), (r"6\text{ apples}", 6 * apple)],
        [(r"-5\text{ kg}", -5 * kilogram), (r"-5000\text{ g}", -5000 * gram), ("-5", Integer(-5)), (r"5\text{ kg}", 5 * kilogram)],
    ],
    "bases": [
        [("52_8", Based(("52", 8))), ("52_{8}", Based(("52", 8))), (r"52_{\text{8}}", Based(("52", 8))), ("52_9", Based(("52", 9))), ("52", Integer(52)), ("42", Integer(42)),
         ("53_8", Based(("53", 8)))],
    ],
    "sets": [
        [(r"\{1,2,3\}", FiniteSet(1, 2, 3)), (r"\{3,1,2\}", FiniteSet(1, 2, 3)), (r"\left\{1,\frac{4}{2},3\right\}", FiniteSet(1, 2, 3)),
         (r"\{1,1,2,3\}", FiniteSet(1, 2, 3)), (r"\{1,2\}", FiniteSet(1, 2)), ("(1,2,3)", Tuple(1, 2, 3)), (r"\{1,2,3,4\}", FiniteSet(1, 2, 3, 4))],
        [(r"\{1\pm\sqrt{5},-2\}", FiniteSet(1 + sqrt(5), 1 - sqrt(5), -2)), (r"\{-2,1+\sqrt5,1-\sqrt5\}", FiniteSet(1 + sqrt(5), 1 - sqrt(5), -2)),
         (r"\{1\pm\sqrt{5},2\}", FiniteSet(1 + sqrt(5), 1 - sqrt(5), 2)), (r"\{1+\sqrt5,-2\}", FiniteSet(1 + sqrt(5), -2))],
        [(r"\emptyset", FiniteSet()), (r"\{\}", FiniteSet()), (r"\varnothing", FiniteSet()), (r"\{0\}", FiniteSet(0)), ("0", Integer(0))],
        [(r"\{(1,2),(3,4)\}", FiniteSet(Tuple(1, 2), Tuple(3, 4))), (r"\{(3,4),(1,2)\}", FiniteSet(Tuple(1, 2), Tuple(3, 4))),
         (r"\{(2,1),(3,4)\}", FiniteSet(Tuple(2, 1), Tuple(3, 4)))],
    ],
    "lists": [
        [("3, 5, 7", Listed((3, 5, 7))), ("7,5,3", Listed((3, 5, 7))), (r"3,\,5,\,7", Listed((3, 5, 7))), (r"3, 5, \text{ and } 7", Listed((3, 5, 7))),
         (r"3,5", Listed((3, 5))), ("(3,5,7)", Tuple(3, 5, 7)), (r"\{3,5,7\}", FiniteSet(3, 5, 7)), ("3,5,8", Listed((3, 5, 8)))],
        [("1,-2", Listed((1, -2))), ("-2,1", Listed((1, -2))), ("-2, 1", Listed((1, -2))), ("(1,-2)", Tuple(1, -2)), ("1,2", Listed((1, 2))),
         ("x=1,x=-2", Listed((1, -2))), (r"x = 1 \text{ or } x = -2", Listed((1, -2)))],
        [(r"1 \pm \sqrt{19}", Listed((1 + sqrt(19), 1 - sqrt(19)))), (r"1+\sqrt{19},1-\sqrt{19}", Listed((1 + sqrt(19), 1 - sqrt(19)))),
         (r"1 \mp \sqrt{19}", Listed((1 + sqrt(19), 1 - sqrt(19)))), (r"1+\sqrt{19}", 1 + sqrt(19)), (r"1\pm\sqrt{18}", Listed((1 + sqrt(18), 1 - sqrt(18)))),
         (r"\frac{2\pm\sqrt{76}}{2}", Listed((1 + sqrt(19), 1 - sqrt(19))))],
        [("1,1", Listed((1, 1))), ("1", Integer(1)), ("1,1,1", Listed((1, 1, 1)))],
    ],
    "tuples": [
        [("(2,4)", Tuple(2, 4)), (r"\left(2,4\right)", Tuple(2, 4)), (r"\left( \frac{4}{2}, 4 \right)", Tuple(2, 4)), ("(4,2)", Tuple(4, 2)), ("[2,4]", Interval(2, 4)),
         ("2,4", Listed((2, 4))), ("(2,4]", Interval.Lopen(2, 4)), ("[2,4)", Interval.Ropen(2, 4)), (r"\{2,4\}", FiniteSet(2, 4))],
        [(r"\left( 3, \frac{\pi}{2} \right)", Tuple(3, pi / 2)), (r"(3,\pi/2)", Tuple(3, pi / 2)), (r"(3,\frac{\pi}{3})", Tuple(3, pi / 3)), (r"(3,90^\circ)", Tuple(3, pi / 2))],
        [("(1,-16,-4,43)", Tuple(1, -16, -4, 43)), ("(1, -16, -4, 43)", Tuple(1, -16, -4, 43)), ("(1,-16,-4)", Tuple(1, -16, -4)), ("(1,-16,-4,42)", Tuple(1, -16, -4, 42))],
        [("(100,200)", Tuple(100, 200)), ("(100, 200)", Tuple(100, 200)), ("100200", Integer(100200)), ("100,200", Integer(100200))],
        [(r"(1,(2,3))", Tuple(1, Tuple(2, 3))), (r"((1,2),3)", Tuple(Tuple(1, 2), 3)), (r"(1,2,3)", Tuple(1, 2, 3)), (r"(\frac22,(2,3))", Tuple(1, Tuple(2, 3)))],
    ],
    "intervals": [
        [("(3,4]", Interval.Lopen(3, 4)), (r"\left(3,4\right]", Interval.Lopen(3, 4)), ("[3,4)", Interval.Ropen(3, 4)), ("[3,4]", Interval(3, 4)),
         (r"x\in(3,4]", Interval.Lopen(3, 4)), (r"3 < x \le 4", Interval.Lopen(3, 4)), (r"3 \le x < 4", Interval.Ropen(3, 4)), (r"4 \ge x > 3", Interval.Lopen(3, 4)),
         (r"\left(\frac62,2^2\right]", Interval.Lopen(3, 4))],
        [(r"(2,\infty)", Interval.open(2, oo)), ("x>2", Interval.open(2, oo)), ("2<x", Interval.open(2, oo)), (r"[2,\infty)", Interval(2, oo)), (r"(-\infty,2)", Interval.open(-oo, 2)),
         (r"x \ge 2", Interval(2, oo)), (r"(2, +\infty)", Interval.open(2, oo)), (r"(2,\infty]", Interval.open(2, oo))],
        [(r"(0,9) \cup (9,36)", Union(Interval.open(0, 9), Interval.open(9, 36))), (r"(9,36)\cup(0,9)", Union(Interval.open(0, 9), Interval.open(9, 36))),
         (r"(0,36)", Interval.open(0, 36)), (r"(0,9]\cup(9,36)", Interval.open(0, 36)), (r"(0,9)\cup[9,36)", Interval.open(0, 36)),
         (r"(0,9)\cup\{9\}\cup(9,36)", Interval.open(0, 36)), (r"(0,9)\cup(9,35)", Union(Interval.open(0, 9), Interval.open(9, 35)))],
        [(r"(-\infty, 2) \cup (3, \infty)", Union(Interval.open(-oo, 2), Interval.open(3, oo))), (r"x\in(-\infty,2)\cup(3,\infty)", Union(Interval.open(-oo, 2), Interval.open(3, oo))),
         (r"(-\infty, 2] \cup (3, \infty)", Union(Interval(-oo, 2), Interval.open(3, oo))), (r"(-\infty,\infty)", Interval(-oo, oo)), (r"\mathbb{R}", S.Reals)],
        [(r"(-\sqrt{3}, \sqrt{3})", Tuple(-sqrt(3), sqrt(3))), (r"(-3^{1/2},3^{1/2})", Tuple(-sqrt(3), sqrt(3))), (r"(\sqrt3,-\sqrt3)", Tuple(sqrt(3), -sqrt(3))),
         (r"[-\sqrt{3}, \sqrt{3}]", Interval(-sqrt(3), sqrt(3)))],
        [(r"\left[ \frac{\pi^2}{8}, \frac{5 \pi^2}{4} \right]", Interval(pi**2 / 8, 5 * pi**2 / 4)), (r"[\pi^2/8,5\pi^2/4]", Interval(pi**2 / 8, 5 * pi**2 / 4)),
         (r"[0.125\pi^2,1.25\pi^2]", Interval(pi**2 / 8, 5 * pi**2 / 4)), (r"\left[ \frac{\pi}{8}, \frac{5 \pi^2}{4} \right]", Interval(pi / 8, 5 * pi**2 / 4))],
        [(r"[1,2]\cup[2,3]", Interval(1, 3)), ("[1,3]", Interval(1, 3)), (r"[1,2.5]\cup[2,3]", Interval(1, 3)), (r"[1,2)\cup(2,3]", Union(Interval.Ropen(1, 2), Interval.Lopen(2, 3)))],
        [(r"\mathbb{R}\setminus\{0\}", Complement(S.Reals, FiniteSet(0))), (r"\mathbb{R} \setminus \{1\}", Complement(S.Reals, FiniteSet(1))),
         (r"\mathbb R\setminus\{\frac{0}{2}\}", Complement(S.Reals, FiniteSet(0)))],
    ],
    "matrices": [
        [(r"\begin{pmatrix} -1/3 \\ 2/3 \\ 5/3 \end{pmatrix}", Matrix([-F(1, 3), F(2, 3), F(5, 3)])),
         (r"\begin{bmatrix} -\frac13 \\ \frac23 \\ \frac53 \end{bmatrix}", Matrix([-F(1, 3), F(2, 3), F(5, 3)])),
         (r"\frac13\begin{pmatrix} -1 \\ 2 \\ 5 \end{pmatrix}", Matrix([-F(1, 3), F(2, 3), F(5, 3)])),
         (r"\begin{pmatrix} -1/3 & 2/3 & 5/3 \end{pmatrix}", Matrix([[-F(1, 3), F(2, 3), F(5, 3)]])),
         (r"\begin{pmatrix} -1/3 \\ 2/3 \\ 4/3 \end{pmatrix}", Matrix([-F(1, 3), F(2, 3), F(4, 3)])), ("(-1/3,2/3,5/3)", Tuple(-F(1, 3), F(2, 3), F(5, 3)))],
        [(r"\begin{pmatrix} -1 & 0 \\ 0 & -1 \end{pmatrix}", Matrix([[-1, 0], [0, -1]])), (r"-\begin{pmatrix}1&0\\0&1\end{pmatrix}", Matrix([[-1, 0], [0, -1]])),
         (r"\left(\begin{array}{cc}-1&0\\0&-1\end{array}\right)", Matrix([[-1, 0], [0, -1]])), (r"\begin{pmatrix} 0 & -1 \\ -1 & 0 \end{pmatrix}", Matrix([[0, -1], [-1, 0]])),
         (r"\begin{pmatrix} -1 & 0 \\ 0 & -1 \\ \end{pmatrix}", Matrix([[-1, 0], [0, -1]])), (r"\begin{pmatrix} -1 \\ 0 \\ 0 \\ -1 \end{pmatrix}", Matrix([-1, 0, 0, -1]))],
        [(r"\begin{pmatrix}\cos\theta&-\sin\theta\\\sin\theta&\cos\theta\end{pmatrix}", Matrix([[cos(theta), -sin(theta)], [sin(theta), cos(theta)]])),
         (r"\begin{bmatrix}\cos \theta & -\sin \theta \\ \sin \theta & \cos \theta\end{bmatrix}", Matrix([[cos(theta), -sin(theta)], [sin(theta), cos(theta)]])),
         (r"\begin{pmatrix}\cos\theta&\sin\theta\\-\sin\theta&\cos\theta\end{pmatrix}", Matrix([[cos(theta), sin(theta)], [-sin(theta), cos(theta)]]))],
    ],
    "equations": [
        [("5x - 7y + 11z + 4 = 0", Eq(5 * x - 7 * y + 11 * z + 4, 0)), ("10x-14y+22z+8=0", Eq(10 * x - 14 * y + 22 * z + 8, 0)),
         ("5x-7y+11z=-4", Eq(5 * x - 7 * y + 11 * z, -4)), ("0=5x-7y+11z+4", Eq(5 * x - 7 * y + 11 * z + 4, 0)), ("5x-7y+11z+4=1", Eq(5 * x - 7 * y + 11 * z + 4, 1)),
         ("-5x+7y-11z-4=0", Eq(-5 * x + 7 * y - 11 * z - 4, 0)), ("5x-7y+11z+5=0", Eq(5 * x - 7 * y + 11 * z + 5, 0)), ("5x-7y+11z+4", 5 * x - 7 * y + 11 * z + 4)],
        [("y=2x+3", Eq(y, 2 * x + 3)), ("y - 2x = 3", Eq(y - 2 * x, 3)), ("2x-y+3=0", Eq(2 * x - y + 3, 0)), (r"y = 2\left(x+\frac32\right)", Eq(y, 2 * x + 3)), ("y=2x-3", Eq(y, 2 * x - 3)),
         ("2x+3", 2 * x + 3), ("x=2y+3", Eq(x, 2 * y + 3)), (r"\frac{y-3}{2}=x", Eq((y - 3) / 2, x))],
        [("x=5", Eq(x, 5)), ("5", Integer(5)), ("5=x", Eq(5, x)), ("x = 10/2", Eq(x, 5)), ("x=10/2=5", Eq(x, 5)), ("y=5", Eq(y, 5)), ("x=-5", Eq(x, -5)), ("x-5=0", Eq(x - 5, 0))],
        [(r"\frac{x^2}{4}+\frac{y^2}{9}=1", Eq(x**2 / 4 + y**2 / 9, 1)), ("9x^2+4y^2=36", Eq(9 * x**2 + 4 * y**2, 36)), (r"\frac{x^2}{9}+\frac{y^2}{4}=1", Eq(x**2 / 9 + y**2 / 4, 1))],
        [(r"x \ne 2", Ne(x, 2)), (r"x\neq 2", Ne(x, 2)), (r"2 \ne x", Ne(x, 2)), ("x=2", Eq(x, 2)), (r"x\ne 3", Ne(x, 3))],
        [("x+y<3", Lt(x + y, 3)), ("2x+2y<6", Lt(2 * x + 2 * y, 6)), ("3>x+y", Gt(3, x + y)), ("-x-y>-3", Gt(-x - y, -3)), (r"x+y\le3", Le(x + y, 3)), ("x+y>3", Gt(x + y, 3)),
         ("-x-y<-3", Lt(-x - y, -3))],
    ],
    "words": [
        [(r"\text{Evelyn}", Words("evelyn")), ("Evelyn", Words("evelyn")), (r"\text{evelyn}", Words("evelyn")), (r"\textbf{Evelyn}", Words("evelyn")), (r"\text{Navin}", Words("navin")),
         (r"\mathrm{Evelyn}", Words("evelyn"))],
        [(r"\text{(C)}", Words("c")), ("(C)", Words("c")), ("C", Words("c")), (r"\text{C}", Words("c")), (r"\text{(E)}", Words("e")), (r"\textbf{(C)}", Words("c"))],
        [(r"\text{even}", Words("even")), ("even", Words("even")), (r"\text{odd}", Words("odd")), (r"\text{Even.}", Words("even"))],
        [(r"\text{east}", Words("east")), ("east", Words("east")), ("seat", Words("seat")), ("East", Words("east"))],
    ],
    "form": [
        [("42", Integer(42)), ("$42$", Integer(42)), (r"\boxed{42}", Integer(42)), ("42.", Integer(42)), (r"\left(42\right)", Integer(42)), ("{42}", Integer(42)), (r"\(42\)", Integer(42)),
         ("42.0", Integer(42)), ("+42", Integer(42)), ("4 2", Words("4 2")), ("24", Integer(24)), ("--42", Integer(42)), (r"\$42", 42 * dollar)],
        [(r"\frac{\frac{\frac{1}{2}}{3}}{4}", F(1, 24)), (r"\frac{1}{24}", F(1, 24)), (r"\frac{1}{\frac{2}{\frac{3}{4}}}", F(3, 8)), (r"\frac38", F(3, 8)), ("1/(2/(3/4))", F(3, 8))],
        [("2(3)", Integer(6)), ("6", Integer(6)), (r"2\cdot3", Integer(6)), ("2*3", Integer(6)), (r"2\times 3", Integer(6)), ("23", Integer(23))],
        [(r"-\frac{\pi}{6}", -pi / 6), (r"\frac{-\pi}{6}", -pi / 6), (r"-\frac{1}{6}\pi", -pi / 6), (r"\frac{\pi}{-6}", -pi / 6), (r"\frac{\pi}{6}", pi / 6), ("-π/6", -pi / 6)],
    ],
}

OMITTED_UNIT = "a unit may be left out, as graders of school mathematics allow"
BASE = "the question asks for the digits in a base: they may stand without it, and their value is no answer"
NAME = "the value of the only variable, or of y, may stand without its name"
DECIMAL = "a decimal of this many digits stands for a number that no decimal is"

# (a, b) or (b, a): the reward's judgement and why it is not SymPy's.
NOTATION = "a closed bracket at infinity is no notation that a teacher accepts"
EXCEPTIONS = {
    (r"5.4 \text{ cents}", "5.4"): OMITTED_UNIT,
    (r"(2,\infty)", r"(2,\infty]"): NOTATION,
    (r"(2, +\infty)", r"(2,\infty]"): NOTATION,
}


def unit_left_out(left, right):
    """True where one answer is the other with a unit after it."""
    for measured, plain in ((left, right), (right, left)):
        free = getattr(measured, "free_symbols", set()) | getattr(measured, "atoms", lambda *_: set())(type(cm))
        if not free and not hasattr(measured, "as_coeff_Mul"):
            continue
        if hasattr(measured, "as_coeff_Mul") and getattr(plain, "is_number", False) and measured.as_coeff_Mul()[0] == plain:
            if free & {apple, orange, dollar} or measured.atoms(type(cm)):
                return True
    return False


def same(left, right):
    """SymPy's judgement."""
    if isinstance(left, Words) or isinstance(right, Words):
        return type(left) is type(right) and left == right
    if isinstance(left, Based) or isinstance(right, Based):
        left, right = (Integer(int(*side)) if isinstance(side, Based) else side for side in (left, right))
    if isinstance(left, Listed) or isinstance(right, Listed):
        if not (isinstance(left, Listed) and isinstance(right, Listed)) or len(left) != len(right):
            return False
        return any(all(same(S(p), S(q)) for p, q in zip(left, order)) for order in itertools.permutations(right))
    if isinstance(left, Tuple) and isinstance(right, Tuple):
        return len(left) == len(right) and all(same(p, q) for p, q in zip(left, right))
    if isinstance(left, Set) and isinstance(right, Set):
        return simplify(left) == simplify(right) or left.is_subset(right) is True and right.is_subset(left) is True
    if isinstance(left, Relational) and isinstance(right, Relational):
        return same_relation(left, right)
    if hasattr(left, "shape") and hasattr(right, "shape"):
        return left.shape == right.shape and all(same(p, q) for p, q in zip(left, right))
    kinds = (Set, Relational, Tuple)
    if any(isinstance(side, kinds) or hasattr(side, "shape") for side in (left, right)):
        return False
    difference = simplify(convert_to(left, [m, kilogram, second]) - convert_to(right, [m, kilogram, second]))
    if difference == 0:
        return True
    verdict = difference.equals(0)
    if verdict is None:  # undecided by proof: a point where they differ decides
        names = sorted(difference.free_symbols | difference.atoms(type(cm)), key=str)
        value = N(difference.subs({name: -F(7 + 3 * i, 5) + I / (i + 2) for i, name in enumerate(names)}), 30)
        assert abs(value) > F(1, 10**20), (left, right)
        verdict = False
    return bool(verdict)


def same_relation(left, right):
    if isinstance(left, (Gt, Ge)):
        left = left.reversed
    if isinstance(right, (Gt, Ge)):
        right = right.reversed
    if type(left) is not type(right):
        return False
    ratio = simplify((left.lhs - left.rhs) / (right.lhs - right.rhs))
    return bool(ratio.is_number and (isinstance(left, (Eq, Ne)) or ratio > 0))


def reason(latex_a, latex_b, left, right):
    """Why the reward says otherwise than SymPy; None: it does not."""
    pair = {latex_a, latex_b}
    for members, why in EXCEPTIONS.items():
        if pair == set(members):
            return why
    if isinstance(left, Based) != isinstance(right, Based):
        based, plain = (left, right) if isinstance(left, Based) else (right, left)
        return BASE if same(left, right) or str(plain) == based[0] else None
    if isinstance(left, Based) and left != right and same(left, right):
        return BASE
    if unit_left_out(left, right):
        return OMITTED_UNIT
    marks = [any(mark in latex for mark in (r"\%", "%", "percent", "degree", r"\circ", "°")) for latex in (latex_a, latex_b)]
    if marks[0] != marks[1]:
        marked, plain = (left, right) if marks[0] else (right, left)
        text = latex_a if marks[0] else latex_b
        factor = F(1, 100) if "%" in text or "percent" in text else pi / 180
        if not any(name in text for name in (r"\sin", r"\cos", "(")) and same(marked / factor, plain) and not same(left, right):
            return OMITTED_UNIT
    for equation, plain in ((left, right), (right, left)):
        if isinstance(equation, Eq) and not isinstance(plain, Relational):
            value = equation.rhs if equation.lhs.is_Symbol else equation.lhs if equation.rhs.is_Symbol else None
            if value is not None and same(value, plain):
                return NAME
    for decimal, exact in ((latex_a, right), (latex_b, left)):
        if sum(ch.isdigit() for ch in decimal) >= 10 and decimal.replace(".", "").isdigit() and "." in decimal and not same(F(decimal), exact):
            is_decimal = getattr(exact, "is_Rational", False) and set(factorint(exact.q)) <= {2, 5}
            if getattr(exact, "is_number", False) and not is_decimal and abs(N(exact - F(decimal)) / N(exact)) < 1e-9:
                return DECIMAL
    return None


def make_pairs():
    rows = []
    for kind, groups in GROUPS.items():
        for group in groups:
            for (latex_a, left), (latex_b, right) in itertools.combinations(group, 2):
                judged = same(left, right)
                row = {"kind": kind, "a": latex_a, "b": latex_b, "sympy": judged, "equal": judged}
                why = reason(latex_a, latex_b, left, right)
                if why:
                    row["equal"], row["why"] = not judged, why
                rows.append(row)
    with open(GOLDEN / "math_pairs.jsonl", "w", encoding="utf-8") as out:
        for row in rows:
            out.write(json.dumps(row, ensure_ascii=False) + "\n")
    print(len(rows), "pairs;", sum(row["sympy"] for row in rows), "equal by SymPy;", sum("why" in row for row in rows), "judged otherwise")


def make_math500(data):
    from math_verify import parse, verify
    answers = [row["answer"] for row in json.loads((data / "math" / "math500.json").read_text(encoding="utf-8"))]
    distinct = list(dict.fromkeys(answers))
    is_number = {answer: answer.replace("-", "", 1).isdigit() for answer in distinct}  # two of them differ
    parsed = {answer: parse("$" + answer + "$", parsing_timeout=None) for answer in distinct}
    classes = []
    for answer in distinct:
        for members in classes:
            if any(not (is_number[answer] and is_number[other]) and verify(parsed[answer], parsed[other], timeout_seconds=None) for other in members):
                members.append(answer)
                break
        else:
            classes.append([answer])
    rows = [[i for i, answer in enumerate(answers) if answer in members] for members in classes]
    text = json.dumps([numbers for numbers in rows if len(numbers) > 1])
    (GOLDEN / "math500_classes.json").write_text(text.replace("], [", "],\n [") + "\n", encoding="utf-8")
    print(len(distinct), "different texts in", len(classes), "classes;", [members for members in classes if len(members) > 1])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["pairs", "math500"])
    parser.add_argument("--data", type=pathlib.Path)
    arguments = parser.parse_args()
    make_pairs() if arguments.what == "pairs" else make_math500(arguments.data)
