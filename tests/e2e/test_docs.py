# SPDX-License-Identifier: Apache-2.0
"""The front pages keep their word: what they print can be pasted, and both languages say the same."""
import os
import re
import subprocess

import pytest

import weir_harness as h


def page(name):
    with open(os.path.join(h.ROOT, name), encoding="utf-8") as f:
        return f.read()


def blocks(text):
    """The shell of a page, without its comments."""
    found = re.findall(r"^```sh\n(.*?)^```", text, re.S | re.M)
    return [re.sub(r"\s*(^|\s)# .*$", "", b, flags=re.M).strip() for b in found]


def test_both_languages_have_the_same_commands_links_and_ports():
    english, chinese = page("README.md"), page("README.zh-CN.md")
    assert blocks(english) == blocks(chinese)

    def links(text):
        return [target for target in re.findall(r"\]\(([^)]+)\)", text) if not target.startswith("README")]
    assert links(english) == links(chinese)
    assert re.findall(r"^\| (\d+) ", english, re.M) == re.findall(r"^\| (\d+) ", chinese, re.M) == ["30000", "29000", "8848"]
    assert english.count("\n## ") == chinese.count("\n## ")
    assert set(re.findall(r"`([^`\n]+)`", english)) ^ set(re.findall(r"`([^`\n]+)`", chinese)) == set()


PAGES = ["README.md", "README.zh-CN.md", "CONTRIBUTING.md", "CHANGELOG.md",
         *(f"docs/{f}" for f in sorted(os.listdir(os.path.join(h.ROOT, "docs"))) if f.endswith(".md"))]


def anchors(text):
    return {re.sub(r"[^\w\- ]", "", head.strip().lower()).replace(" ", "-") for head in re.findall(r"^#+ (.*)$", text, re.M)}


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name):
    folder = os.path.dirname(os.path.join(h.ROOT, name))
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)]*))?\)", page(name)):
        if target.startswith("http"):
            continue
        path = os.path.join(folder, target) if target else os.path.join(h.ROOT, name)
        assert os.path.exists(path), target
        assert not anchor or not path.endswith(".md") or anchor in anchors(page(path)), f"{target}#{anchor}"


def test_configurations_in_the_pages_are_right(tmp_path):
    """Every block of YAML that begins with a key of the configuration."""
    keys = set(re.findall(r"^(\w+):", page("examples/full.yaml"), re.M))
    seen = 0
    for name in PAGES:
        for block in re.findall(r"^```yaml\n(.*?)^```", page(name), re.S | re.M):
            if block.split(":", 1)[0] not in keys:
                continue
            path = tmp_path / "weir.yaml"
            path.write_text(block, encoding="utf-8")
            assert h.run_weir("check", path) == (0, f"{path}: ok\n", ""), (name, block)
            seen += 1
    assert seen >= 4


def test_the_tests_of_the_field_reports_are_there():
    named = re.findall(r"`(test_\w+)`", page("docs/field-reports.md"))
    folder = os.path.join(h.ROOT, "tests", "e2e")
    there = "".join(page(os.path.join(folder, f)) for f in os.listdir(folder) if f.endswith(".py"))
    assert len(named) > 30
    assert [n for n in named if f"def {n}(" not in there] == []


def test_every_field_report_about_registries_has_a_row():
    text = page("docs/field-reports.md")
    rows = [line for line in text[text.index("## L and M"):text.index("## N.")].split("\n") if re.match(r"\| [LM]\d", line)]
    told = {r for row in rows for r in re.findall(r"\b[LM]\d+\b", row.split("|")[1])}
    assert told == {*(f"L{n}" for n in (1, 3, 5, 6)), *(f"M{n}" for n in (1, 3, 5, 6, 7, 8, 10, 11, 14, 15, 17, 18, 19))}
    assert [row for row in rows if "`test_" not in row and "not offered" not in row] == []


def test_readme_and_admin_examples_run(start_weir, upstream):
    weir = start_weir()
    up = upstream(name="u")
    script = "\n".join(b for n in ("README.md", "docs/admin.md") for b in blocks(page(n)) if "curl " in b)
    assert script.count("curl ") >= 6
    script = re.sub(r"^build/weir serve .*$", "", script, flags=re.M)
    for port, bound in ((8848, weir.registry), (29000, weir.admin)):
        script = script.replace(f"127.0.0.1:{port}", "%s:%d" % bound)
    script = script.replace("http://127.0.0.1:8000", up.url).replace("curl ", "curl -fsS ")
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", script], capture_output=True, text=True, timeout=4 * h.PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    weir.wait_up(up)
    ids = {e["id"] for e in weir.admin_http("GET", "/api/v1/endpoints").json()["endpoints"]}
    assert ids == {"gpu1", "10.0.0.5:8000", "127.0.0.1:%d" % up.port}
    assert weir.admin_http("GET", "/api/v1/endpoints/gpu1").json()["sample"]["gpu_util_percent"] == 35
    assert weir.admin_http("GET", "/api/v1/endpoints/10.0.0.5:8000").json()["sample"]["memory_free_bytes"] == 12 << 30


def test_readme_configs_are_right():
    for config in re.findall(r"build/weir (?:check|serve --config) (\S+)", page("README.md")):
        assert h.run_weir("check", os.path.join(h.ROOT, config))[0] == 0


def test_every_field_report_in_the_table_has_its_tests():
    folder = os.path.join(h.ROOT, "tests", "e2e")
    with open(os.path.join(h.ROOT, "docs", "testing.md"), encoding="utf-8") as f:
        rows = [line for line in f if re.match(r"\| [A-Z]\d", line)]
    for row in rows:
        named = re.findall(r"`(test_\w+\.py)::(test_\w+)`", row)
        assert named or "B8" in row, row
        for file, test in named:
            with open(os.path.join(folder, file), encoding="utf-8") as f:
                assert f"def {test}(" in f.read(), (file, test)
    told = {r for row in rows for r in re.findall(r"\b[A-Z]\d+\b", row.split("|")[1])}
    assert told >= {*(f"A{n}" for n in (1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12)), *(f"B{n}" for n in (1, 2, 3, 5, 6, 8)),
                    *(f"C{n}" for n in (1, 2, 3, 4, 5, 7, 9)), *(f"H{n}" for n in (1, 3, 4, 5, 6, 7, 10)),
                    *(f"I{n}" for n in (1, 2, 4, 6, 8))}
