# SPDX-License-Identifier: Apache-2.0
"""Whatever bytes a worker sends, a client that reads strictly gets one answer per request, on this connection and the
next: the one that Node's client reads from the same bytes, an error of Weir's, or one that visibly ends too early."""
import base64
import json

import pytest

import parser_cases
from parser_strict import Strict, encoded, run_judge


def own_error(status, body):
    try:
        return status >= 500 and "code" in json.loads(body)["error"]
    except (ValueError, LookupError, TypeError):
        return False


def one(data, method="GET"):
    """(answer or None where it is cut short, what follows it)."""
    strict = Strict(data)
    try:
        return strict.answer(method), strict.data
    except (AssertionError, ValueError, LookupError):
        return None, b""


def check(case, result):
    data = base64.b64decode(result["answer"])
    answer, rest = one(data, case["method"])
    if answer:
        status, _, body = answer
        direct = result["direct"]
        if not own_error(status, body) and not (case["method"] == "HEAD" and status >= 500):
            assert direct, "passed on whole, and Node would have refused it"
            assert [status, body] == [direct[0], base64.b64decode(direct[1])], "Node alone reads something else"
    if rest:
        status, fields, body = Strict(rest).answer("GET")
        assert body == f"same-{case['i']}".encode() or own_error(status, body), "the next answer is not the next one's"
        assert fields[b"connection"] == b"close" and Strict(rest).data.endswith(body), "bytes after the last answer"
    answer, rest = one(base64.b64decode(result["after"]))
    assert answer and not rest
    assert answer[2] == f"other-{case['i']}".encode() or own_error(answer[0], answer[2]), "another one's answer"
    return bool(answer[2] == f"other-{case['i']}".encode())


def cut(answer):
    """In the head: a second answer that comes once the first one is whole may meet the next request, whoever relays."""
    return min(len(answer) // 2, max(1, answer.find(b"\r\n\r\n")))


def judge(start_weir, answers):
    """Each closes the connection behind it or not, to GET, POST and HEAD, whole and cut in two."""
    weir = start_weir({"breaker": {"enabled": False}})
    cases = [{"i": i, "method": ("GET", "POST", "HEAD", "GET")[i % 4], "bytes": encoded(a), "close": i % 3 != 0,
              "cut": cut(a) if i % 2 else 0} for i, a in enumerate(answers)]
    results, _ = run_judge("judge_answers.js", weir, cases)
    wrong, answered = [], 0
    for case, result in zip(cases, results):
        try:
            answered += check(case, result)
        except (AssertionError, ValueError, LookupError, TypeError) as e:
            wrong.append(f"{case} {base64.b64decode(case['bytes'])[:1000]!r}\n  {base64.b64decode(result['answer'])[:2000]!r}\n"
                         f"  {base64.b64decode(result['after'])!r}\n  {result['direct']}\n  {e}")
    assert not wrong, f"{len(wrong)} of {len(cases)}:\n" + "\n".join(wrong[:20])
    assert answered > len(cases) // 2


@pytest.mark.sanitize
def test_the_corpus(start_weir):
    judge(start_weir, [a for a in parser_cases.ANSWERS for _ in range(5)])


def mutated(start_weir, n, seed):
    judge(start_weir, parser_cases.mutations(parser_cases.ANSWERS, parser_cases.ANSWER_WORDS, n, seed))


def test_a_thousand_mutations(start_weir):
    mutated(start_weir, 1000, 1)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 6))
def test_five_thousand_mutations(start_weir, seed):
    mutated(start_weir, 5000, seed)
