#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`weir check` from outside. usage: test_check.py CHECK_CLI SOURCE_ROOT"""
import json, pathlib, re, subprocess, sys, tempfile

cli, root = sys.argv[1], pathlib.Path(sys.argv[2])
failures = 0


def check(*args):
    run = subprocess.run([cli, *args], capture_output=True, text=True, check=False, timeout=60)
    return run.returncode, run.stdout, run.stderr


def expect(name, got, want):
    global failures
    if got != want:
        failures += 1
        print(f"{name}:\n got  {got!r}\n want {want!r}")


for example in ("weir.yaml", "full.yaml"):
    path = str(root / "examples" / example)
    expect(example, check(path), (0, f"{path}: ok\n", ""))

page = (root / "docs" / "config.md").read_text()
expect("docs/config.md is what --reference prints", check("--reference"), (0, page, ""))


def keys_of(reference):
    """Names of the keys in its tables, but those that only other sources than the ones of full.yaml have."""
    for name, meaning in re.findall(r"^\| `(\w+)` \|.*\| ([^|]*) \|$", reference, re.M):
        only = re.match(r"\*([a-z, ]+):\*", meaning)
        if not only or {"static", "file"} & set(only[1].split(", ")):
            yield name


full = (root / "examples" / "full.yaml").read_text()
expect("keys that examples/full.yaml lacks",
       [k for k in keys_of(page) if not re.search(rf"^[^#\n]*\b{k}:", full, re.M)], [])

with tempfile.TemporaryDirectory() as folder:
    good, bad, effective = (str(pathlib.Path(folder) / n) for n in ("good.yaml", "bad.yaml", "effective.yaml"))
    pathlib.Path(good).write_text("threads: 2\nadmin: {token: env:SECRET_OF_MINE}\n")
    pathlib.Path(bad).write_text("threads: x\nrotues: []\n")

    status, out, err = check(str(root / "examples" / "full.yaml"), "--print-effective")
    expect("print status", (status, err), (0, ""))
    pathlib.Path(effective).write_text(out)
    expect("what is printed reads back", check(effective, "--print-effective"), (0, out, ""))

    expect("errors", check(bad), (1, "", f'{bad}:1:10: threads: "x" is not a whole number, or auto\n'
                                         f'{bad}:2:1: unknown key "rotues" at the top level; did you mean "routes"?\n'))
    status, out, err = check(bad, "--json")
    expect("errors as JSON", (status, json.loads(out), err), (1, {
        "file": bad, "ok": False, "errors_found": 2, "errors": [
            {"line": 1, "column": 10, "message": 'threads: "x" is not a whole number, or auto'},
            {"line": 2, "column": 1,
             "message": 'unknown key "rotues" at the top level; did you mean "routes"?'}]}, ""))
    status, out, err = check(good, "--json", "--print-effective")
    result = json.loads(out)
    expect("config as JSON", (status, result["ok"], result["config"]["threads"], result["config"]["admin"]["token"]),
           (0, True, 2, "env:SECRET_OF_MINE"))
    missing = str(pathlib.Path(folder) / "none.yaml")
    expect("missing file", check(missing), (1, "", f"{missing}: cannot open: No such file or directory\n"))

expect("no file", check(), (2, "", "weir check: which file? See weir check --help\n"))
expect("two files", check("a", "b"), (2, "", "weir check: one file at a time; b is too much\n"))
expect("bad flag", check("--jsno", "a"), (2, "", "weir check: unknown flag --jsno; did you mean --json?\n"))
expect("help", check("--help")[0], 0)
sys.exit(1 if failures else 0)
