"""docs/egress-cases.md: every test that a row names is there."""
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_every_row_names_tests_that_exist():
    doc = (ROOT / "docs/egress-cases.md").read_text()
    rows = "\n".join(line for line in doc.splitlines() if line.startswith("|"))
    python = "".join(f.read_text() for f in (ROOT / "tests/integration").glob("test_egress*.py"))
    unit = "".join(f.read_text() for f in (ROOT / "tests/unit").rglob("*.cc"))
    cases = set(re.findall(r"TEST(?:_[FP])?\((\w+),\s*(\w+)\)", unit))
    suites = {suite for suite, _ in cases}
    absent = [name + star for name, star in re.findall(r"::(test_\w+)(\*?)", rows)
              if f"def {name}" + ("" if star else "(") not in python]
    for suite, name in re.findall(r"`([A-Z]\w+)\.(\w+|\*)`", rows):
        if (suite not in suites) if name == "*" else ((suite, name) not in cases):
            absent.append(f"{suite}.{name}")
    assert not absent
    assert len(re.findall(r"::test_\w+", rows)) > 50
