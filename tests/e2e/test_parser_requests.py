# SPDX-License-Identifier: Apache-2.0
"""Weir's HTTP/1 parser against Node's: what Weir passes on, Node reads as that one request, from Weir's bytes and from
the client's own alike; what Weir refuses ends with a 4xx and the connection."""
import base64
import json
import re

import pytest

import parser_cases
from parser_strict import Strict, encoded, run_judge

# Behind each case: is the connection still in step?
SENTINEL = b"POST /v1/sentinel HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"


def origin(target):
    """What is passed on of an absolute target."""
    m = re.fullmatch(r"(?i)http://[^/?]+(/.*)?", target)
    return (m.group(1) or "/") if m else target


def check(case, result, records, claimed):
    """What is wrong with the answers to one case; what reached the worker is taken off."""
    direct = result["direct"]["requests"]
    strict = Strict(base64.b64decode(result["answer"]))
    n = 0
    while True:
        method = direct[n][0] if n < len(direct) else None
        answer = strict.answer(method)
        if not answer:
            return
        status, fields, body = answer
        if b"x-judge" in fields:
            number = int(fields[b"x-judge"])
            assert number not in claimed, "answered twice"
            claimed.add(number)
            if n == len(direct) and result["direct"]["fault"] == "upgrade":
                return
            assert n < len(direct), f"passed on, and Node would have said {result['direct']['fault']}: {records[number]}"
            want = [direct[n][0], origin(direct[n][1]), direct[n][2]]
            assert records[number] == want, f"Node alone reads {want}, through Weir {records[number]}"
            assert status == 200 and (body == b"seen" or method == "HEAD")
        elif fields.get(b"connection") == b"close":
            own = n < len(direct) and re.match(r"(http://[^/]+)?/(health|v1/models)", direct[n][1])
            assert 400 <= status < 500 or status == 505 or (own and status == 200), answer
            assert not body or json.loads(body).get("error", {}).get("code") or own
        else:
            # Weir's own answer, and it says that the next request may follow: it has read to the end of this one.
            assert n < len(direct), f"kept open after what Node calls {result['direct']['fault']}: {answer}"
        if fields.get(b"connection") == b"close":
            assert strict.data == b"", "bytes after the last answer"
        n += 1


def judge(weir, cases, cuts):
    """Run the cases; every wrong one is told."""
    results, (last,) = run_judge("judge_requests.js", weir,
                                 [{"bytes": encoded(c + SENTINEL), "cut": cut} for c, cut in zip(cases, cuts)])
    claimed, wrong = set(), []
    for case, result in zip(cases, results):
        try:
            check(case, result, last["records"], claimed)
        except (AssertionError, ValueError, LookupError) as e:
            wrong.append(f"{case!r}\n  {base64.b64decode(result['answer'])!r}\n  {result['direct']}\n  {e}")
    unclaimed = [r for i, r in enumerate(last["records"]) if i not in claimed]
    assert not wrong, f"{len(wrong)} of {len(cases)}:\n" + "\n".join(wrong[:20])
    assert not unclaimed, f"requests that nobody sent: {unclaimed[:20]}"
    return results, last["records"]


def gateway(start_weir):
    return start_weir({"routes": [{"half_close": "keep"}], "limits": {"headers": "64KiB"}})


@pytest.mark.sanitize
def test_the_corpus(start_weir):
    """Every case whole, and cut in two."""
    cases = parser_cases.REQUESTS * 2
    cuts = [0] * len(parser_cases.REQUESTS) + [1 + (7 * i) % max(1, len(c) - 1) for i, c in enumerate(parser_cases.REQUESTS)]
    results, records = judge(gateway(start_weir), cases, cuts)
    assert len(records) > 100           # the comparison has something to compare
    refused = sum(base64.b64decode(r["answer"]).startswith(b"HTTP/1.1 4") for r in results)
    assert refused > 200


def mutated(start_weir, n, seed):
    cases = parser_cases.mutations(parser_cases.REQUESTS, parser_cases.REQUEST_WORDS, n, seed)
    _, records = judge(gateway(start_weir), cases, [i % 3 and len(c) // 2 for i, c in enumerate(cases)])
    assert len(records) > n // 10


def test_three_thousand_mutations(start_weir):
    mutated(start_weir, 3000, 1)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 8))
def test_ten_thousand_mutations(start_weir, seed):
    mutated(start_weir, 10000, seed)
